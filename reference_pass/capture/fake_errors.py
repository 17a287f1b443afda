"""Errors that fakes raise and eager does not, turned into `Refused` with a reason."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    UnsupportedOperatorException,
)
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

from aliasproof.reference_pass.eager.real_runs import NO_DATA
from aliasproof.reference_pass.exceptions import DataDependent, Refused


@contextlib.contextmanager
def refusals(*, symbolic: bool) -> Iterator[None]:
    """Turn errors of fakes that eager does not raise into `Refused`, with a reason for users.

    `symbolic` says if inputs have symbolic sizes. If not, a symbol is a data-dependent size.
    """
    try:
        yield
    except GuardOnDataDependentSymNode as error:
        raise DataDependent(
            f"a size is data-dependent, and the graph depends on it: whether {error.cond}"
        ) from error
    except (DataDependentOutputException, DynamicOutputShapeException) as error:
        raise DataDependent(
            f"the function is data-dependent, and one graph must be right for all data: {error}"
        ) from error
    except UnsupportedOperatorException as error:
        # Fakes run such an operator on real zeros, which need sizes as numbers.
        what = f"{error} has no kernel for tensors without data of"
        raise _needs_number(what, symbolic=symbolic) from error
    except RuntimeError as error:
        if (refused := _refused(str(error), symbolic=symbolic)) is None:
            raise
        raise refused from error


# Errors that C++ kernels, and their replacements in Python, raise only for symbolic sizes.
_NEEDS_NUMBERS = (
    r"Cannot call \w+\(\) on tensor with symbolic|^Expected out tensor to have.*"
    r"|nbytes % dtype_size == 0 INTERNAL ASSERT FAILED|^Expected !size_bytes_is_heap_allocated_"
    r"|SymIntArrayRef expected to contain only concrete integers"
)


def _needs_number(what: str, *, symbolic: bool) -> Refused:
    if symbolic:
        return Refused(f"{what} symbolic size; trace it with fixed sizes")
    return DataDependent(f"{what} a size that is data-dependent")


def _refused(text: str, *, symbolic: bool) -> Refused | None:
    """The reason why fakes raise an error where eager does not; None for any other error."""
    if NO_DATA in text:
        return DataDependent(
            "a size or a branch depends on data, and one graph must be right for all"
        )
    if "tried to directly modify sizes" in text:
        return _needs_number("a resize_ cannot be traced for a tensor of", symbolic=symbolic)
    if why := re.search(_NEEDS_NUMBERS, text):
        what = f"an operator has no kernel ({why[0]}) for tensors of"
        return _needs_number(what, symbolic=symbolic)
    # Whether such a size is broadcast depends on data; `u0` is the symbol of such a size.
    if re.search(r"Attempting to broadcast.*\bu\d", text):
        return DataDependent(f"a size is data-dependent, and the graph depends on it: {text}")
    return None
