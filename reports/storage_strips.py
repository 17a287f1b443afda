"""The memory of a program as strips of bytes: which bytes each view covers, call by call.

A strip is one storage. It has a row per call that returns or writes a view of the storage, and the
bytes that two of its views share: the solver names one element of each, and their common byte.
`strip_text` draws strips with characters, the page of a run draws them as pictures.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch

from aliasproof.ir.regions import Region, overlap
from aliasproof.oracles.smt import Witness, decide
from aliasproof.oracles.verdict import Violation
from aliasproof.reports.console import counted, shortened
from aliasproof.reports.node_lines import NodeLine, ShownLayout, letter

MOST_BYTES = 1 << 16  # of a view; for a larger one, all bytes from its first to its last are drawn
MOST_SHARED = 8  # pairs of views of one storage
MOST_ROWS = 60  # of one storage
_NAME = re.compile(r"[A-Za-z_]\w*")


@dataclass(frozen=True, slots=True)
class SharedByte:
    """A byte that two views share, with an element of each. `byte` is an offset in the storage.

    It is `at_fault` if the two views must not share it.
    """

    first: str
    second: str
    first_index: tuple[int, ...]
    second_index: tuple[int, ...]
    byte: int
    at_fault: bool = False

    def __str__(self) -> str:
        one = _element(self.first, self.first_index)
        other = _element(self.second, self.second_index)
        fault = ", which they must not share" if self.at_fault else ""
        return f"byte {self.byte} is in {one} and in {other}{fault}"


def _element(name: str, index: tuple[int, ...]) -> str:
    """An element of a tensor, such as `v0[1]`; 'input 0' has no name that an index can follow."""
    if not index:
        return name
    return f"{name}{' at ' * (' ' in name)}[{', '.join(map(str, index))}]"


@dataclass(frozen=True, slots=True)
class ViewRow:
    """A call that returns a view of the storage, or that writes one.

    `spans` are its bytes within the storage: start and end of each run, ascending. They are not
    `known` if the layout depends on data. `name` is empty for a call without a result.
    """

    name: str
    call: str
    layout: str
    spans: tuple[tuple[int, int], ...]
    writes: bool = False
    known: bool = True

    @property
    def described(self) -> str:
        """Its bytes in words."""
        if not self.spans:
            return "no bytes" if self.known else "unknown bytes"
        ends = [f"{first} to {end - 1}" for first, end in self.spans[:4]]
        more = len(self.spans) - len(ends)
        return f"bytes {', '.join(ends)}{f' and {more} more runs' if more else ''}"

    @property
    def label(self) -> str:
        """The row in words, for a screen reader."""
        return f"{self.name or 'a call'} {'writes' if self.writes else 'covers'} {self.described}"


@dataclass(frozen=True, slots=True)
class Strip:
    """A storage of `nbytes` bytes, with its rows in the order of the calls.

    `nbytes` is the end of its last view if the size is unknown. `left_out` counts the rows and
    pairs for which there is no room.
    """

    storage: str
    nbytes: int
    rows: tuple[ViewRow, ...]
    shared: tuple[SharedByte, ...] = ()
    left_out: tuple[int, int] = (0, 0)

    @property
    def aliased(self) -> bool:
        """Whether it has several views, or is written: a single row is not informative."""
        return len(self.rows) > 1 or any(row.writes for row in self.rows)


@dataclass(frozen=True, slots=True)
class StripSet:
    """The strips of one program or graph, under a title."""

    title: str
    strips: tuple[Strip, ...]

    @property
    def at_fault(self) -> bool:
        """Whether two views share a byte that they must not share."""
        return any(shared.at_fault for strip in self.strips for shared in strip.shared)


@dataclass(slots=True)
class _Storage:
    """A strip under construction. `pairs` are views that overlap, by name, with their regions."""

    rows: list[ViewRow] = field(default_factory=list)
    pairs: dict[tuple[str, str], tuple[Region, Region]] = field(default_factory=dict)
    nbytes: int = 0

    def add(self, row: ViewRow) -> None:
        """Add a row. The storage is at least as long as its views."""
        self.rows.append(row)
        self.nbytes = max(self.nbytes, max((end for _, end in row.spans), default=0))

    def strip(self, letter: str, place: str = "") -> Strip:
        """The strip, with the bytes that the pairs share; the pair at `place` is at fault."""
        in_order = sorted(self.pairs, key=lambda names: ", ".join(names) != place)
        shared = []
        for names in in_order[:MOST_SHARED]:
            found = decide(*self.pairs[names])
            if isinstance(found, Witness):  # else the solver gave up
                elements = found.indices_a, found.indices_b
                shared.append(SharedByte(*names, *elements, found.byte, ", ".join(names) == place))
        left_out = max(len(self.rows) - MOST_ROWS, 0), max(len(self.pairs) - MOST_SHARED, 0)
        return Strip(letter, self.nbytes, tuple(self.rows[:MOST_ROWS]), tuple(shared), left_out)


@dataclass(frozen=True, slots=True)
class _Named:
    """A tensor of a graph at a moment: its first name, its storage's letter, and its region there.

    `region` is None if its layout depends on data.
    """

    name: str
    storage: str
    region: Region | None


def strips_of_graph(lines: Iterable[NodeLine]) -> tuple[Strip, ...]:
    """The strips of a graph; its storages have the letters of the lines.

    Each written view is paired with the other views that exist at that moment.
    """
    storages: dict[str, _Storage] = {}
    views: dict[str, _Named] = {}
    for line in lines:
        for name in dict.fromkeys((*(it.storage for it in line.tensors), *line.writes)):
            _add_line(storages.setdefault(name, _Storage()), name, line, views)
        if line.name and len(line.tensors) == 1:
            (tensor,) = line.tensors
            same = _in_place(line, tensor.storage, views)
            # `view.t_()` changes the layout of the tensor `view`, and makes no other tensor.
            name = line.name if same is None else views[same].name
            view = _Named(name, tensor.storage, _region(tensor))
            views |= {other: view for other, it in views.items() if it.name == name}
            views[line.name] = view
    return tuple(storage.strip(name) for name, storage in storages.items())


def _in_place(line: NodeLine, letter: str, views: Mapping[str, _Named]) -> str | None:
    """The operand that a call returns; None if the result is another tensor."""
    packet = line.call.partition("(")[0].rpartition(".")[0]
    operands = _operands(line.call, letter, views)
    return operands[0] if letter in line.writes and packet.endswith("_") and operands else None


def _add_line(storage: _Storage, letter: str, line: NodeLine, views: Mapping[str, _Named]) -> None:
    tensors = [tensor for tensor in line.tensors if tensor.storage == letter]
    operands = [views[name] for name in _operands(line.call, letter, views)]
    # A call that writes may not return the written tensor; a call on lists returns nothing. The
    # written tensor is in the first argument, which may be a list.
    arguments = line.call.partition("(")[2]
    first = arguments.partition("]" if arguments.startswith("[") else ",")[0]
    written = (view for view in operands if view.name in _NAME.findall(first))
    regions = [*map(_region, tensors)] if tensors else [view.region for view in written]
    known = [region for region in regions if region is not None]
    same = _in_place(line, letter, views)
    # A call that only changes the layout of its operand, or its storage, writes no byte.
    bytes_change = same is None or not line.tensors or [views[same].region] == regions
    writes = letter in line.writes and bytes_change
    layout = ", ".join(map(str, tensors))
    spans = _merged(itertools.chain.from_iterable(map(_spans, known)))
    row = ViewRow(line.name, line.call, layout, spans, writes, len(known) == len(regions))
    storage.add(row)
    if writes and len(known) == 1:
        names = [it.name for it in operands if it.region == known[0]]
        _add_pairs(storage, _Named((names or [line.name])[0], letter, known[0]), views.values())


def _add_pairs(storage: _Storage, written: _Named, views: Iterable[_Named]) -> None:
    """Pair the written view with all others that overlap it without being equal to it."""
    assert written.region is not None
    for other in dict.fromkeys(views):
        if other.storage != written.storage or other.region in (None, written.region):
            continue
        if other.name != written.name and overlap(written.region, other.region):
            pair = written.region, other.region
            storage.pairs.setdefault((written.name, other.name), pair)


def _operands(call: str, letter: str, views: Mapping[str, _Named]) -> list[str]:
    """The views of a storage that a call names, in their order in the call."""
    named = (name for name in _NAME.findall(call.partition("(")[2]) if name in views)
    return [name for name in named if views[name].storage == letter]


def _region(layout: ShownLayout) -> Region | None:
    """The bytes within the storage; None if they depend on data."""
    numbers = (*layout.sizes, *layout.strides, layout.offset)
    if not all(isinstance(number, int) for number in numbers):
        return None
    itemsize = getattr(torch, layout.dtype).itemsize
    strides = tuple(int(stride) * itemsize for stride in layout.strides)
    return Region(int(layout.offset) * itemsize, tuple(map(int, layout.sizes)), strides, itemsize)


def strips_of_tensors(
    tensors: Mapping[str, torch.Tensor], violation: Violation | None = None
) -> tuple[Strip, ...]:
    """The strips of tensors in memory, with all pairs that overlap.

    The pair of a `violation` of *aliasing* is at fault.
    """
    storages: dict[int, _Storage] = {}
    regions: dict[str, tuple[int, Region]] = {}
    for name, tensor in tensors.items():
        memory, whole = tensor.untyped_storage(), Region.of(tensor)
        region = replace(whole, start=whole.start - memory.data_ptr())
        storage = storages.setdefault(memory._cdata, _Storage(nbytes=memory.nbytes()))
        layout = f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"
        storage.add(ViewRow(name, "", layout, _merged(_spans(region))))
        for other, (where, earlier) in regions.items():
            if where == memory._cdata and overlap(earlier, region):
                storage.pairs[other, name] = earlier, region
        regions[name] = memory._cdata, region
    place = "" if violation is None else violation.place
    return tuple(it.strip(letter(number), place) for number, it in enumerate(storages.values()))


def _spans(region: Region) -> list[tuple[int, int]]:
    """The runs of bytes of a region; for a large region, a single run."""
    if region.numel * region.itemsize > MOST_BYTES:
        return [region.interval]
    addresses = region.addresses()
    runs = np.split(addresses, np.flatnonzero(np.diff(addresses) > 1) + 1)
    return [(int(run[0]), int(run[-1]) + 1) for run in runs if run.size]


def _merged(spans: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """The union of runs, ascending."""
    merged: list[tuple[int, int]] = []
    for first, end in sorted(spans):
        if merged and first <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        elif end > first:
            merged.append((first, end))
    return tuple(merged)


def coverage(spans: Sequence[tuple[int, int]], nbytes: int, cells: int) -> list[float]:
    """The share of each of `cells` equal parts of a storage that the runs cover, 0 to 1."""
    covered = [0.0] * cells
    per_cell = nbytes / cells if cells else 1.0
    for first, end in spans:
        for cell in range(int(first / per_cell), min(cells, -int(-end // per_cell))):
            low, high = max(first, cell * per_cell), min(end, (cell + 1) * per_cell)
            covered[cell] += max(high - low, 0.0) / per_cell
    return covered


# --- strip text -----------------------------------------------------------------------------------
#
# Strips of memory as text: a line per call, a character per byte or for several bytes.


STRIP_LEGEND = (
    "In a strip of memory, # is read or made, ! is written, + and - are the same in part, and ^ is"
    " a byte that two views share."
)
NO_STRIPS = "No storage has several views, and none is written."
WIDEST_LABEL, WIDEST_STRIP = 40, 64  # columns
_EMPTY = "."


def strip_text(strips: Iterable[Strip], width: int) -> str:
    """Draw the storages that have several views or are written, then name the others."""
    shown = [strip for strip in strips if strip.aliased]
    others = [f"{strip.storage} ({strip.rows[0].name})" for strip in strips if not strip.aliased]
    texts = ["\n".join(_lines(strip, width)) for strip in shown] or [NO_STRIPS]
    return "\n\n".join([*texts, *([f"one view each: {', '.join(others)}"] if others else [])])


def _lines(strip: Strip, width: int) -> Iterator[str]:
    labels = [_label(row) for row in strip.rows]
    left = max(map(len, labels), default=0)
    room = max(min(width - left - 2, WIDEST_STRIP), 8)
    per_sign = max(-(-strip.nbytes // room), 1)
    signs = -(-strip.nbytes // per_sign)
    yield f"storage {strip.storage}: {counted(strip.nbytes, 'byte')}, {per_sign} per sign"
    for label, row in zip(labels, strip.rows, strict=True):
        yield f"{label:{left}}  {_bar(row, signs, signs * per_sign)}".rstrip()
    rows, pairs = strip.left_out
    if rows:
        yield f"and {counted(rows, 'call')} more"
    if strip.shared:
        marked = {shared.byte // per_sign for shared in strip.shared}
        marks = "".join("^" if sign in marked else " " for sign in range(signs))
        yield f"{'':{left}}  {marks}".rstrip()
        yield from map(str, strip.shared)
    if pairs:
        yield f"and {counted(pairs, 'pair')} more that share bytes"


def _label(row: ViewRow) -> str:
    text = f"{row.name} = {row.call}" if row.name and row.call else row.name or row.call
    return shortened(text, WIDEST_LABEL)


def _bar(row: ViewRow, signs: int, nbytes: int) -> str:
    if not row.spans:
        return row.described
    whole, part = "!-" if row.writes else "#+"
    covered = coverage(row.spans, nbytes, signs)
    return "".join(_EMPTY if share == 0 else whole if share > 0.999 else part for share in covered)
