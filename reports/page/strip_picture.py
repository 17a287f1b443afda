"""Strips of memory as pictures: the rectangles of each row, which a template writes as SVG."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from aliasproof.reports.storage_strips import SharedByte, Strip, ViewRow, coverage

PARTLY, WHOLE = 1, 2  # how much of a cell is covered
MOST_TICKS = 8
MOST_CELLS = 512  # the width of a picture; a small storage has a cell per byte


@dataclass(frozen=True, slots=True)
class Bar:
    """A rectangle: its left edge and width in cells; `partly` if it has gaps too small to draw."""

    left: int
    width: int
    partly: bool


@dataclass(frozen=True, slots=True)
class PictureRow:
    """A row of a strip: its bars, and the cells of bytes that it shares."""

    row: ViewRow
    bars: tuple[Bar, ...]
    marks: tuple[int, ...]

    @property
    def label(self) -> str:
        """The row in words, for a screen reader."""
        name = self.row.name or "a call"
        return f"{name} {'writes' if self.row.writes else 'covers'} {self.row.described}"


@dataclass(frozen=True, slots=True)
class Tick:
    """A byte that the axis names, at a cell and at so many percent of the width."""

    byte: int
    cell: float
    percent: float


@dataclass(frozen=True, slots=True)
class StripPicture:
    """A strip with the rows to draw, `cells` wide, and the ticks of its axis."""

    strip: Strip
    cells: int
    rows: tuple[PictureRow, ...]
    ticks: tuple[Tick, ...]


def strip_picture(strip: Strip) -> StripPicture:
    """The picture of a strip."""
    cells = max(min(strip.nbytes, MOST_CELLS), 1)
    rows = tuple(
        PictureRow(row, tuple(_bars(row, strip.nbytes, cells)), _marks(row, strip, cells))
        for row in strip.rows
    )
    return StripPicture(strip, cells, rows, tuple(_ticks(strip.nbytes, cells)))


def _ticks(nbytes: int, cells: int) -> Iterator[Tick]:
    """The first byte, some at steps of a power of two, and the end."""
    step = 1
    while nbytes > step * MOST_TICKS:
        step *= 2
    # A label needs room before that of the end.
    for byte in [*range(0, nbytes - step // 2, step), nbytes]:
        share = byte / max(nbytes, 1)
        yield Tick(byte, round(share * cells, 2), round(100 * share, 2))


def _bars(row: ViewRow, nbytes: int, cells: int) -> Iterator[Bar]:
    if not nbytes:
        return
    shares = [
        0.0 if it == 0 else 1.0 if it > 0.999 else 0.5 for it in coverage(row.spans, nbytes, cells)
    ]
    left = 0
    for share, group in itertools.groupby(shares):
        width = len(list(group))
        if share:
            yield Bar(left, width, share < 1)
        left += width


def _marks(row: ViewRow, strip: Strip, cells: int) -> tuple[int, ...]:
    """The cells of the bytes that this row shares with another one."""

    def covered(shared: SharedByte) -> bool:
        in_pair = row.writes or row.name in (shared.first, shared.second)
        return in_pair and any(first <= shared.byte < end for first, end in row.spans)

    marked = (shared.byte * cells // strip.nbytes for shared in strip.shared if covered(shared))
    return tuple(dict.fromkeys(marked))
