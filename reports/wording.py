"""Phrases that several reports share: counts, times, violation kinds in short."""

from __future__ import annotations

from collections.abc import Sequence

LONGEST_KIND = 90  # characters


def counted(number: int, noun: str) -> str:
    """A number and its noun, in the plural where it must be."""
    return f"{number} {noun}{'s' * (number != 1)}"


def clock(seconds: float) -> str:
    """Minutes and seconds, such as 1:05."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"


def shortened(kind: str, most: int = LONGEST_KIND) -> str:
    """The kind of a violation, or another text, in at most so many characters.

    The kind of an error contains its message, which can be long. The finding has all of it.
    """
    return kind if len(kind) <= most else f"{kind[: most - 1].rstrip()}…"


def listed(names: Sequence[str], most: int) -> str:
    """Some of the names, and how many more there are."""
    rest = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + rest


def in_columns(text: str, most: int) -> str:
    """A sentence in at most so many characters, cut between two words."""
    if len(text) <= most:
        return text
    return text[: most - 1].rpartition(" ")[0].rstrip(",;:") + " …"


def in_lines(text: str, most: int) -> str:
    """At most so many lines of a text."""
    lines = text.splitlines()
    return text if len(lines) <= most else "\n".join(lines[:most]) + " …"


def sites_fired(fired: int, new: int) -> str:
    """How many sites of the compiler programs fired, and how many of them late."""
    return f"{counted(fired, 'site')} of the compiler fired, {new} first in the last quarter"
