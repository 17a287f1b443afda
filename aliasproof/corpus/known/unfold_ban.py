"""Writes through `unfold` are banned also where there is one window, which overlaps nothing."""

from __future__ import annotations

import torch

from aliasproof.corpus.known_bug import KnownBug, Mark, calls, program_of, view
from aliasproof.corpus.mends import mends_kernel


@mends_kernel("unfold", "Functionalize")
def mended(original: object, x: torch.Tensor, dim: int, size: int, step: int) -> object:
    """One window is made as the window of a step at least as long as itself, which is not banned.

    Torch bans writes if the window is longer than the step, however many windows there are.
    """
    assert callable(original)
    length = x.shape[dim] if x.dim() else 1
    if size > step and (length - size) // step == 0:
        return original(x, dim, size, max(size, step))
    return original(x, dim, size, step)


BUG = KnownBug(
    "unfold-ban",
    "a write through unfold with one window is refused, though nothing overlaps",
    "https://github.com/pytorch/pytorch/issues/165409",
    program_of(
        """
        v0 = aten.unfold.default(x0, 0, 2, 1)
        aten.add_.Scalar(v0, 0)
        return ()
        """,
        view(2),
    ),
    ("functionalize", "aot", "aot-epilogue", "fx-reinplace"),
    ("2.13", "2.15"),
    mended,
    # The ban itself, also where several windows overlap.
    mark=Mark(("errors",), "While executing unfold, functionalization encountered a tensor being"),
    plausible=lambda program: calls(program, "unfold"),
    rank=30,
)
