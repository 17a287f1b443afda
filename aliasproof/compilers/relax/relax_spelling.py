"""How functions are written in Relax (target *relax*), where there are several ways.

A patch of a known bug of TVM writes them in a way that does not meet it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Spelling:
    """Switches, each of which is off by default.

    `by_functions`: constants are what private functions return. The rest are for patches.
    `fields_once`: a field of a tuple is taken once. `tuples_late`: a tuple is bound where it is
    used. `known_views`: what keeps the order of elements is a reshape. `numbers_last`: no operator
    has a number before a tensor. `constants_given`: constants are arguments. `results_given`: the
    same where private functions would return them.
    """

    by_functions: bool = False
    fields_once: bool = False
    tuples_late: bool = False
    known_views: bool = False
    numbers_last: bool = False
    constants_given: bool = False
    results_given: bool = False


_NOW = [Spelling()]


def spelling() -> Spelling:
    """How functions are written now."""
    return _NOW[-1]


@contextlib.contextmanager
def spelled(switch: str) -> Iterator[None]:
    """Switch one on while this is entered."""
    _NOW.append(replace(spelling(), **{switch: True}))
    yield
    _NOW.pop()
