"""The nodes of a graph as lines: the call, the layouts of its tensors, and their storages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

WIDEST_CALL = 70  # columns for calls before the layouts; a longer call moves its layouts


@dataclass(frozen=True, slots=True)
class ShownLayout:
    """The layout of a tensor in elements, and its storage's letter. Symbolic sizes are text."""

    dtype: str
    sizes: tuple[int | str, ...]
    strides: tuple[int | str, ...]
    offset: int | str
    contiguous: bool
    storage: str

    def __str__(self) -> str:
        text = f"{self.dtype}[{', '.join(map(str, self.sizes))}]"
        # Most tensors are contiguous at offset 0, so these defaults are left out.
        if not self.contiguous:
            text += f" strides [{', '.join(map(str, self.strides))}]"
        return f"{text} offset {self.offset}" if self.offset else text


@dataclass(frozen=True, slots=True)
class NodeLine:
    """One node of a graph: its name and call, the tensors that it returns, the storages it writes.

    The output node has no name.
    """

    name: str
    call: str
    tensors: tuple[ShownLayout, ...] = ()
    writes: tuple[str, ...] = ()

    @property
    def storages(self) -> str:
        """The storages of its tensors and those that it writes, marked with '!'."""
        named = dict.fromkeys((*(tensor.storage for tensor in self.tensors), *self.writes))
        return ", ".join(f"{letter}!" if letter in self.writes else letter for letter in named)


def letter(number: int) -> str:
    """The letter of a storage: A, B, ..., Z, AA, AB, ..."""
    rest, last = divmod(number, 26)
    return (letter(rest - 1) if rest else "") + chr(ord("A") + last)


def graph_text(lines: Sequence[NodeLine]) -> str:
    """A graph as text: one line per node, with columns for call, layouts and storages."""
    rows = [
        (
            f"{line.name} = {line.call}" if line.name else line.call,
            ", ".join(map(str, line.tensors)),
            line.storages,
        )
        for line in lines
    ]
    # A line without storages (the return) needs no columns, so ignore its length.
    calls = min(max((len(call) for call, _, stored in rows if stored), default=0), WIDEST_CALL)
    layouts = max((len(tensors) for _, tensors, _ in rows), default=0)
    return "\n".join(
        f"{call:{calls}}  {tensors:{layouts}}  {stored}".rstrip() for call, tensors, stored in rows
    )
