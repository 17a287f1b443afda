"""Two texts with what differs marked: the elements of tensors, word by word."""

from __future__ import annotations

import difflib
import itertools
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

_WORDS = re.compile(r"[-+]?[\w.]+(?:[eE][-+]?\d+)?|\s+|.")
MOST_WORDS = 4000  # of a text; longer ones differ as a whole


class MarkedPart(NamedTuple):
    """A part of a text, and whether the other text has something else there."""

    text: str
    differs: bool


def marked(ours: str, theirs: str) -> tuple[tuple[MarkedPart, ...], tuple[MarkedPart, ...]]:
    """Both texts in parts; those that differ are marked."""
    if ours == theirs:
        return (MarkedPart(ours, differs=False),), (MarkedPart(theirs, differs=False),)
    one, other = _WORDS.findall(ours), _WORDS.findall(theirs)
    if max(len(one), len(other)) > MOST_WORDS:
        return (MarkedPart(ours, differs=True),), (MarkedPart(theirs, differs=True),)
    if [word.isspace() for word in one] == [word.isspace() for word in other]:
        pairs = list(zip(one, other, strict=True))
        return (
            _joined(MarkedPart(mine, mine != its) for mine, its in pairs),
            _joined(MarkedPart(its, mine != its) for mine, its in pairs),
        )
    blocks = difflib.SequenceMatcher(None, one, other, autojunk=False).get_opcodes()
    return (
        _joined(MarkedPart("".join(one[a:b]), tag != "equal") for tag, a, b, _, _ in blocks),
        _joined(MarkedPart("".join(other[c:d]), tag != "equal") for tag, _, _, c, d in blocks),
    )


def _joined(parts: Iterable[MarkedPart]) -> tuple[MarkedPart, ...]:
    """The parts, with neighbours of one kind as one."""
    groups: Iterable[tuple[bool, Sequence[MarkedPart]]] = (
        (differs, list(group)) for differs, group in itertools.groupby(parts, lambda it: it.differs)
    )
    texts = ((differs, "".join(part.text for part in group)) for differs, group in groups)
    return tuple(MarkedPart(text, differs) for differs, text in texts if text)
