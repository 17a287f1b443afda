"""Functionalization does not decompose composite in-place operators in a branch of `torch.cond`."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Mapping
from typing import Any
from unittest import mock

import torch
from torch import fx

from corpus.known_bug import KnownBug, view, written
from programs.program import Program
from programs.schemas import resolve


class _Decomposing(fx.Interpreter):
    """Runs a branch. Calls of composite operators run their implementations."""

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        if _is_composite(target):
            # A mode of the tracer would take this for a call of the composite operator.
            with torch._C.DisableTorchFunction():
                return target.decompose(*args, **kwargs)
        return super().call_function(target, args, dict(kwargs))


def _is_composite(target: object) -> bool:
    return isinstance(target, torch._ops.OpOverload) and target.has_kernel_for_dispatch_key(
        torch._C.DispatchKey.CompositeImplicitAutograd
    )


@contextlib.contextmanager
def mended() -> Iterator[None]:
    """What is functionalized in a branch are the operators that composite ones call."""
    # Imported here: it takes two seconds, and other bugs do without.
    from torch._higher_order_ops.auto_functionalize import (  # noqa: PLC0415
        FunctionalCallableWithEpilogue,
    )

    original = FunctionalCallableWithEpilogue.__init__

    @functools.wraps(original)
    def init(self: FunctionalCallableWithEpilogue, branch: Any) -> None:
        original(self, _Decomposing(branch).run if isinstance(branch, fx.GraphModule) else branch)

    with mock.patch.object(FunctionalCallableWithEpilogue, "__init__", init):
        yield


def _writes_by_composite(program: Program) -> bool:
    return any(call.mutates() and _is_composite(resolve(call.op)) for call in program.instructions)


BUG = KnownBug(
    "cond-composite",
    "a branch of torch.cond cannot call subtract_ and others: they are taken for custom operators",
    "",
    written(
        """
        aten.subtract_.Scalar(x0, 1)
        v0 = aten.neg.default(x0)
        return (v0,)
        """,
        view(),
    ),
    ("aot:cond", "aot-epilogue:cond"),
    ("2.13",),
    mended,
    plausible=_writes_by_composite,
)
