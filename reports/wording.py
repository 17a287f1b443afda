"""Phrases that several reports share: counts, times, violation kinds in short."""

from __future__ import annotations

LONGEST_KIND = 90  # characters


def counted(number: int, noun: str) -> str:
    """A number and its noun, in the plural where it must be."""
    return f"{number} {noun}{'s' * (number != 1)}"


def clock(seconds: float) -> str:
    """Minutes and seconds, such as 1:05."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"


def shortened(kind: str) -> str:
    """The kind of a violation in at most `LONGEST_KIND` characters.

    The kind of an error contains its message, which can be long. The finding has all of it.
    """
    return kind if len(kind) <= LONGEST_KIND else f"{kind[: LONGEST_KIND - 1].rstrip()}…"
