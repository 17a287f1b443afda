"""How functions are written in Relax (target *relax*), if there are several ways.

A patch of a known bug of TVM chooses a way that avoids the bug.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Spelling:
    """Switches, each of which is off by default.

    `by_functions`: private functions return the constants. The other switches are for patches.
    `fields_once`: a field of a tuple is taken once. `tuples_late`: a tuple is bound at its use.
    `known_views`: calls that keep the order of elements are reshapes. `numbers_last`: no operator
    has a number before a tensor. `constants_given`: constants are arguments. `results_given`: only
    constants that private functions would return are arguments.
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
    """The present switches."""
    return _NOW[-1]


@contextlib.contextmanager
def spelled(switch: str) -> Iterator[None]:
    """Turn on a switch within this context."""
    _NOW.append(replace(spelling(), **{switch: True}))
    yield
    _NOW.pop()
