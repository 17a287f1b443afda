"""A write is fused with what reads the written tensor at other positions."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any
from unittest import mock

import torch

from aliasproof.corpus.known_bug import KnownBug, view, written
from aliasproof.programs.program import Program


@contextlib.contextmanager
def mended() -> Iterator[None]:
    """What reads an earlier version of a written tensor is not fused with the write.

    After a first write, the scheduler has a new name for the tensor. `fusable_weak_dep` compares
    positions only of what is read by the first name.
    """
    from torch._inductor.scheduler import Scheduler  # noqa: PLC0415 - takes two seconds

    original = Scheduler.fusable_weak_dep

    def fusable_weak_dep(self: Any, weak_dep: Any, reader: Any, writer: Any) -> bool:
        names = self.mutation_real_name
        name = names.get(weak_dep.mutating_buf)
        if any(names.get(read.name) == name for read in reader.read_writes.reads):
            return False
        return original(self, weak_dep, reader, writer)

    with mock.patch.object(Scheduler, "fusable_weak_dep", fusable_weak_dep):
        yield


def _writes(program: Program) -> bool:
    return sum(call.mutates() for call in program.instructions) > 1


BUG = KnownBug(
    "fused-copy-back",
    "after a first write, a second one is fused with a read of the tensor at other positions",
    "https://github.com/pytorch/pytorch/issues/198270",
    written(
        """
        aten.index_put_.default(x0, [x1], x2)
        v0 = aten.flip.default(x0, [0])
        aten.add_.Tensor(x0, v0)
        return ()
        """,
        view(4),
        view(1, dtype=torch.int64),
        view(1),
    ),
    ("inductor",),
    ("2.13",),
    mended,
    plausible=_writes,
)
