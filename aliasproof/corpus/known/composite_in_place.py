"""`torch.func.functionalize` takes composite operators for custom operators."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator

import torch
from torch._ops import OpOverload

from aliasproof.corpus.known_bug import KnownBug, program_of, view
from aliasproof.ir.program import Program
from aliasproof.ir.schemas import resolve

_COMPOSITE, _FUNCTIONALIZE = "CompositeImplicitAutograd", "Functionalize"


@contextlib.contextmanager
def mended() -> Iterator[None]:
    """A composite operator is its implementation, also under functionalization.

    It has no kernel there, so a fallback takes it. That refuses operators that write, and the
    result of one that returns a view (`atleast_1d`) is a new tensor to it. `torch.cond` uses
    `torch.func.functionalize` for its branches in torch 2.13.
    """
    with torch.library._scoped_library("aten", "IMPL") as library:
        for op in _without_kernel():
            name = op._schema.name.removeprefix("aten::")
            overload = op._schema.overload_name
            library.impl(f"{name}.{overload}" if overload else name, op.decompose, _FUNCTIONALIZE)
        yield


@functools.cache
def _without_kernel() -> tuple[OpOverload, ...]:
    """The composite ATen operators that have no kernel for functionalization."""
    composites = []
    for name in torch._C._dispatch_get_all_op_names():
        if name.startswith("aten::") and _has_kernel(name, _COMPOSITE):
            op = _overload(name)
            # A storage is no argument of an operator in Python, so `set_` stays.
            if op is None or op.overloadpacket is torch.ops.aten.set_:
                continue
            if not _has_kernel(name, _FUNCTIONALIZE):
                composites.append(op)
    return tuple(composites)


def _overload(name: str) -> OpOverload | None:
    packet, _, overload = name.removeprefix("aten::").partition(".")
    # Operators of TorchScript on Python values have no overload in Python.
    candidate = getattr(getattr(torch.ops.aten, packet, None), overload or "default", None)
    return candidate if isinstance(candidate, OpOverload) else None


def _has_kernel(name: str, key: str) -> bool:
    return torch._C._dispatch_has_kernel_for_dispatch_key(name, key)


def _calls_composite(program: Program) -> bool:
    return any(
        call.op.startswith("aten.") and _has_kernel(resolve(call.op).name(), _COMPOSITE)
        for call in program.instructions
    )


BUG = KnownBug(
    "composite-in-place",
    "torch.func.functionalize takes square_, subtract_, fill_diagonal_ and others for custom"
    " operators and refuses them",
    "",
    program_of(
        """
        aten.square_.default(x0)
        return ()
        """,
        view(),
    ),
    ("functionalize", "fx-reinplace"),
    ("2.13", "2.15"),
    mended,
    plausible=_calls_composite,
    rank=90,
)
