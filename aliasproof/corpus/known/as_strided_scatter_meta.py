"""The meta function of `as_strided_scatter` takes the view for the whole storage."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import _prims

from aliasproof.corpus.known_bug import KnownBug, calls, program_of, view


# A function of `torch._prims` gets this code and its own globals, so no name of ours is used here.
def _meta(
    input: torch.Tensor,  # noqa: A002 - the parameter is named so in torch
    src: torch.Tensor,
    size: Sequence[int],
    stride: Sequence[int],
    storage_offset: int,
) -> Any:
    return torch._prims_common.clone_preserve_strides(input)


@contextlib.contextmanager
def mended() -> Iterator[None]:
    """The meta function asks nothing of the storage: the kernel does, and eager has run it.

    Torch compares with the number of elements of the input, but its storage can be longer.
    """
    # The code is replaced and not the function, since other modules have the function already.
    function, code = _prims._as_strided_scatter_meta, _prims._as_strided_scatter_meta.__code__
    function.__code__ = _meta.__code__
    try:
        yield
    finally:
        function.__code__ = code


BUG = KnownBug(
    "as-strided-scatter-meta",
    "the meta function of as_strided_scatter bounds the result by the elements of the view",
    "https://github.com/pytorch/pytorch/pull/186150",
    program_of(
        """
        v0 = aten.as_strided_scatter.default(x0, x1, [1], [1], 1)
        return (v0,)
        """,
        view(1, strides=(2,), storage=0),
        view(1, storage=1),
        bytes_of={0: 8},
    ),
    ("aot", "aot-epilogue"),
    ("2.13",),
    mended,
    plausible=lambda program: calls(program, "as_strided_scatter", "as_strided"),
    rank=60,
)
