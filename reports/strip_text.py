"""Strips of memory as text: a line per call, a sign per byte or per some bytes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from aliasproof.reports.storage_strips import Strip, ViewRow, coverage
from aliasproof.reports.wording import counted, shortened

STRIP_LEGEND = (
    "In a strip of memory, # is read or made, ! is written, + and - are the same in part, and ^ is"
    " a byte that two views share."
)
NO_STRIPS = "No storage has several views, and none is written."
WIDEST_LABEL, WIDEST_STRIP = 40, 64  # columns
_EMPTY = "."


def strip_text(strips: Iterable[Strip], width: int) -> str:
    """The storages that have several views or are written, then the names of the others."""
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
