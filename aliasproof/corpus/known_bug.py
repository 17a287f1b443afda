"""`KnownBug`: a bug of a compiler that has been told apart from all others."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from textwrap import dedent, indent

import torch

from aliasproof.corpus.mends import Mend
from aliasproof.ir.devices import vector_bits
from aliasproof.ir.parsing import parse_source
from aliasproof.ir.program import Input, Program, Storage
from aliasproof.ir.regions import dense_strides

# How the kind of a violation begins that ends a process (aliasproof/processes/outcome.py).
DEATHS = "dies of"


@dataclass(frozen=True, slots=True)
class Mark:
    """How a violation of a bug is recognised that a mend does not remove.

    The oracle must be one of `oracles`, and `kind` a regular expression that the violation's kind
    matches. `when` says for which programs: the reason why the mark is conservative. With
    `reduced`, the mark holds for reduced programs only, since it asks what cannot be left out.
    """

    oracles: tuple[str, ...]
    kind: str
    when: Callable[[Program], bool] = lambda program: True
    reduced: bool = False

    def fits(self, oracle: str, kind: str, program: Program) -> bool:
        """Whether a violation on this program has the mark."""
        return (
            oracle in self.oracles and re.search(self.kind, kind) is not None and self.when(program)
        )


@dataclass(frozen=True, slots=True)
class KnownBug:
    """A bug of a compiler with its minimal program.

    `targets` are the targets that differ from eager on `program`, the first of them is at fault. A
    contract can document the difference; then it is no violation. `versions` are the versions of
    torch in which it was seen, such as '2.13'. `vector_bits` are the widths of the vectors of
    generated code with which it shows (`devices.vector_bits`); empty if it shows with all. `link`
    is the upstream issue or pull request, or empty if a search found none. `mended` corrects torch
    in this process while it is entered: a violation that vanishes then *is* this bug. Where torch
    cannot be mended from Python, or not for all forms of the bug, `mark` recognises it. `plausible`
    is a cheap test of whether a program can show the bug at all; it only saves time. A program can
    show several bugs: the one of the lowest `rank` counts.
    """

    identifier: str
    title: str
    link: str
    program: Program
    targets: tuple[str, ...]
    versions: tuple[str, ...]
    mended: Mend | None = None
    mark: Mark | None = None
    plausible: Callable[[Program], bool] = lambda program: True
    vector_bits: tuple[int, ...] = ()
    rank: int = field(kw_only=True)

    @property
    def ends_process(self) -> bool:
        """Whether the program ends the process in which its target runs."""
        return self.mark is not None and self.mark.kind.startswith(DEATHS)

    @property
    def shows_here(self) -> bool:
        """Whether the vectors of generated code have a width with which the bug shows."""
        return not self.vector_bits or vector_bits() in self.vector_bits

    @property
    def title_and_link(self) -> str:
        """What it is, and where it is reported."""
        return f"{self.title} ({self.link or 'no issue was found in the tracker'})"


# --- how the files of known bugs write their programs ---------------------------------------------


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
    named = [
        Input(f"x{index}", index if tensor.storage < 0 else tensor.storage, *_layout(tensor))
        for index, tensor in enumerate(views)
    ]
    storages = []
    for index in range(1 + max(tensor.storage for tensor in named)):
        of_it = [tensor for tensor in named if tensor.storage == index]
        if bytes_of is not None and index in bytes_of:
            storages.append(Storage(torch.uint8, bytes_of[index]))
        else:
            storages.append(Storage(of_it[0].dtype, max(map(_extent, of_it))))
    head = f"def program({', '.join(tensor.name for tensor in named)}):\n"
    return parse_source(head + indent(dedent(body).strip(), "    ") + "\n", storages, named)


def _layout(tensor: Input) -> tuple[torch.dtype, tuple[int, ...], tuple[int, ...], int]:
    return tensor.dtype, tensor.sizes, tensor.strides, tensor.offset


def _extent(tensor: Input) -> int:
    """The number of elements from the start of the storage to the end of the view."""
    if 0 in tensor.sizes:
        return tensor.offset
    last = sum(
        (size - 1) * stride for size, stride in zip(tensor.sizes, tensor.strides, strict=True)
    )
    return tensor.offset + last + 1


def calls(program: Program, *names: str) -> bool:
    """Whether the program calls an op of one of these names, such as 'expand'."""
    return any(call.op.split(".")[1] in names for call in program.instructions)


def views_dtype(program: Program) -> bool:
    """Whether the program views a tensor as another dtype."""
    return any("view.dtype" in call.op for call in program.instructions)


def writes(program: Program) -> bool:
    """Whether an op of the program writes an operand."""
    return any(call.mutates() for call in program.instructions)


def inputs_share(program: Program) -> bool:
    """Whether two inputs share a storage."""
    used = [tensor.storage for tensor in program.inputs]
    return len(set(used)) < len(used)


def attends(program: Program) -> bool:
    """Whether the program spells out attention."""
    return calls(program, "bmm") and calls(program, "_softmax", "amax")
