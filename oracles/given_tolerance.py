"""A tolerance that a user gives, in place of what is known about rounding.

It holds for all floating-point values that this process compares, whichever oracle asks, so it is
no argument of each of them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from typing import TypeAlias

# Relative and absolute; None for the one that is not given.
GivenTolerance: TypeAlias = tuple[float | None, float | None]
NONE_GIVEN: GivenTolerance = (None, None)

_given: ContextVar[GivenTolerance] = ContextVar("given tolerance", default=NONE_GIVEN)


def compare_within(given: GivenTolerance) -> None:
    """Compare with this tolerance from now on."""
    _given.set(given)


@contextlib.contextmanager
def compared_within(given: GivenTolerance) -> Iterator[None]:
    """Compare with this tolerance while this context is entered."""
    token = _given.set(given)
    try:
        yield
    finally:
        _given.reset(token)


def given_limits(usual: tuple[float, float]) -> tuple[float, float] | None:
    """The given tolerance, with the usual one in place of what is not given; None without any."""
    given = _given.get()
    if given == NONE_GIVEN:
        return None
    rtol, atol = (
        known if limit is None else limit for limit, known in zip(given, usual, strict=True)
    )
    return rtol, atol
