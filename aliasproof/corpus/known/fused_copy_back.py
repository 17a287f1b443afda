"""A write is fused with what reads the written tensor at other positions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from aliasproof.corpus.known_bug import KnownBug, program_of, view
from aliasproof.corpus.mends import mends


@mends("torch._inductor.scheduler:Scheduler.fusable_weak_dep")
def mended(
    original: Callable[..., bool], self: Any, weak_dep: Any, reader: Any, writer: Any
) -> bool:
    """What reads an earlier version of a written tensor is not fused with the write.

    After a first write, the scheduler has a new name for the tensor. `fusable_weak_dep` compares
    positions only of what is read by the first name.
    """
    names = self.mutation_real_name
    name = names.get(weak_dep.mutating_buf)
    if any(names.get(read.name) == name for read in reader.read_writes.reads):
        return False
    return original(self, weak_dep, reader, writer)


BUG = KnownBug(
    "fused-copy-back",
    "after a first write, a second one is fused with a read of the tensor at other positions",
    "https://github.com/pytorch/pytorch/issues/198270",
    program_of(
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
    plausible=lambda program: sum(call.mutates() for call in program.instructions) > 1,
    rank=700,
)
