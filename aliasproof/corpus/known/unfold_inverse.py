"""The inverse of `unfold` sets elements to 0 that no window covers."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch._ops import OpOverload

from aliasproof.corpus.known_bug import KnownBug, Mark, calls, program_of, view
from aliasproof.corpus.view_inverses import (
    Call,
    reachable,
    replaced_in_modes,
    undoing,
    with_strides_of,
)

aten = torch.ops.aten


@contextlib.contextmanager
def mended() -> Iterator[None]:
    """The inverse leaves elements that no window covers as they are in the base.

    Torch calls `unfold_backward`, which starts from zeros and does not know the base. So the base
    is remembered when its windows are made: before each write through a view, functionalization
    makes the view anew from the latest base.
    """
    bases: dict[tuple[object, ...], Any] = {}

    def inverse(call: Call, op: OpOverload, args: Sequence[Any]) -> Any:
        if op in {aten.unfold.default, aten.unfold_copy.default}:
            bases[(*args[0].shape, *args[1:])] = args[0]
        elif op is aten.unfold_backward.default and undoing("unfold"):
            written_view, *how = args
            base = bases[(*how[0], *how[1:])]
            windows = call(aten.ones_like.default, written_view, dtype=torch.int64)
            covered = call(aten.ne.Scalar, call(aten.unfold_backward.default, windows, *how), 0)
            new = call(aten.unfold_backward.default, written_view, *how)
            return with_strides_of(call, base, call(aten.where.self, covered, new, base))
        return NotImplemented

    with replaced_in_modes(inverse)():
        yield


BUG = KnownBug(
    "unfold-inverse",
    "a write through unfold sets elements to 0 that no window covers",
    "https://github.com/pytorch/pytorch/issues/198102",
    program_of(
        """
        v0 = aten.unfold.default(x0, 0, 1, 2)
        aten.add_.Scalar(v0, 1)
        return (x0,)
        """,
        view(2),
    ),
    ("functionalize", "aot", "aot-epilogue", "fx-reinplace"),
    ("2.13", "2.15"),
    mended if reachable("unfold") else None,
    # Mended, the graph chooses between the windows and the base, which is another symbolic value.
    mark=Mark(("equivalence",), "wrong symbolic value", lambda program: calls(program, "unfold")),
    plausible=lambda program: calls(program, "unfold"),
    rank=20,
)
