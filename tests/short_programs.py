"""Programs as tests write them, from a body and inputs."""

from __future__ import annotations

from dataclasses import replace
from textwrap import dedent, indent

import torch

from aliasproof.corpus.bug_files import program_with
from aliasproof.ir.program import Input, Program, Storage
from aliasproof.ir.regions import dense_strides


def view(
    *sizes: int,
    strides: tuple[int, ...] | None = None,
    offset: int = 0,
    storage: int | None = None,
    dtype: torch.dtype = torch.float32,
) -> Input:
    """An input, dense unless strides are given, in a storage of its own unless one is named."""
    strides = dense_strides(sizes) if strides is None else strides
    return Input("", -1 if storage is None else storage, dtype, sizes, strides, offset)


def program_of(body: str, *views: Input, bytes_of: dict[int, int] | None = None) -> Program:
    """The program with this body, as `source` prints it, and inputs x0, x1, ...

    A storage is as long as its views need; `bytes_of` gives other lengths, in bytes. The dtype of a
    storage is that of its first view, or uint8 where its length is given.
    """
    named = [replace(tensor, name=f"x{index}") for index, tensor in enumerate(views)]
    given = {index: Storage(torch.uint8, nbytes) for index, nbytes in (bytes_of or {}).items()}
    head = f"def program({', '.join(tensor.name for tensor in named)}):\n"
    return program_with(head + indent(dedent(body).strip(), "    ") + "\n", named, given)
