"""The wrapper of a tensor keeps its sizes where `set_` or `out=` changes those of the tensor."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import torch
from torch._ops import OpOverload
from torch._subclasses.functional_tensor import FunctionalTensor, FunctionalTensorMode
from torch.utils._mode_utils import no_dispatch

from aliasproof.corpus.known_bug import KnownBug, program_of, view
from aliasproof.corpus.mends import mends
from aliasproof.ir.program import Program
from aliasproof.ir.schemas import Kind, facts, resolve

aten = torch.ops.aten


@mends("torch._subclasses.functional_tensor:FunctionalTensorMode.__torch_dispatch__")
def mended(
    original: Callable[..., Any],
    mode: FunctionalTensorMode,
    func: Any,
    types: Sequence[type],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
) -> Any:
    """After such a call, the wrapper gets the layout of the tensor in it.

    Torch runs `t_`, `squeeze_` and so on with the wrapper too, but neither `set_` with a tensor nor
    a call that resizes its buffer. Composite operators then see the old sizes.
    """
    result = original(mode, func, types, tuple(args), dict(kwargs or {}))
    if isinstance(func, OpOverload) and _may_change_sizes(func):
        for tensor in (args[0], *(kwargs or {}).values()):
            if isinstance(tensor, FunctionalTensor):
                _update(tensor)
    return result


def _may_change_sizes(op: OpOverload) -> bool:
    return op is aten.set_.source_Tensor or facts(op).kind is Kind.OUT


def _update(wrapper: FunctionalTensor) -> None:
    with no_dispatch():
        inner = torch._from_functional_tensor(wrapper.elem)
        if (wrapper.shape, wrapper.stride()) != (inner.shape, inner.stride()):
            fresh = FunctionalTensor(wrapper.elem, cast(FunctionalTensorMode, wrapper.mode))
            aten.set_.source_Tensor(wrapper, fresh)


def _changes_sizes(program: Program) -> bool:
    return any(_may_change_sizes(resolve(call.op)) for call in program.instructions)


BUG = KnownBug(
    "stale-wrapper",
    "after y.set_(x), and after an out= call that resizes y, composite operators see old sizes",
    "",
    program_of(
        """
        v0 = aten.add.Scalar(x1, 1)
        aten.set_.source_Tensor(v0, x0)
        v1 = aten.outer.default(v0, x0)
        return (v1,)
        """,
        view(1),
        view(1, 1),
    ),
    ("aot", "aot-epilogue", "inductor-fx"),
    ("2.13", "2.15"),
    mended,
    plausible=_changes_sizes,
    rank=960,
)
