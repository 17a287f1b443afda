"""A tolerance that a user gives, in place of the known rounding errors.

It applies to all floating-point values that this process compares, in every oracle, so it is not
passed as an argument.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from typing import TypeAlias

# Relative and absolute; None for one that is not given.
GivenTolerance: TypeAlias = tuple[float | None, float | None]
NONE_GIVEN: GivenTolerance = (None, None)

_given: ContextVar[GivenTolerance] = ContextVar("given tolerance", default=NONE_GIVEN)


def compare_within(given: GivenTolerance) -> None:
    """Use this tolerance from now on."""
    _given.set(given)


@contextlib.contextmanager
def compared_within(given: GivenTolerance) -> Iterator[None]:
    """Use this tolerance in this context."""
    token = _given.set(given)
    try:
        yield
    finally:
        _given.reset(token)


def given_limits(usual: tuple[float, float]) -> tuple[float, float] | None:
    """The given tolerance, completed by the usual one; None if none is given."""
    given = _given.get()
    if given == NONE_GIVEN:
        return None
    rtol, atol = (
        known if limit is None else limit for limit, known in zip(given, usual, strict=True)
    )
    return rtol, atol
