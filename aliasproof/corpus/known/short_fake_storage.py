"""A fake storage is as long as the first input needs, and the real one can be longer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from aliasproof.corpus.known_bug import KnownBug, inputs_share, program_of, view
from aliasproof.corpus.mends import mends


@mends("torch._subclasses.meta_utils:MetaConverter.set_storage_memo")
def mended(
    original: Callable[..., Any], converter: Any, source: Any, fake: torch.UntypedStorage
) -> None:
    """A fake storage is as long as the real one, as torch 2.15 has it.

    AOTAutograd makes a base of the whole storage, and Inductor asserts its size.
    """
    if fake.nbytes() < source.size:
        fake.resize_(source.size)
    original(converter, source, fake)


BUG = KnownBug(
    "short-fake-storage",
    "merged inputs that do not reach the end of their storage raise 'expected size 3==2'",
    "https://github.com/pytorch/pytorch/pull/185014",
    program_of(
        """
        aten.add_.Scalar(x0, 1)
        v0 = aten.mul.Scalar(x1, 2)
        return (v0,)
        """,
        view(2, storage=0, dtype=torch.uint8),
        view(2, storage=0, dtype=torch.uint8),
        bytes_of={0: 3},
    ),
    ("inductor",),
    ("2.13",),
    mended,
    plausible=inputs_share,
    rank=800,
)
