"""How functions are written in Relax, if there are several ways.

A patch of a known bug of TVM chooses a way that avoids the bug.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from dataclasses import dataclass, replace

from aliasproof.corpus.patching import Patch


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


relax_constant_written = Patch(functools.partial(spelled, "constants_given"))
relax_view_not_known = Patch(functools.partial(spelled, "known_views"))
relax_result_written = Patch(functools.partial(spelled, "results_given"))
relax_field_taken_again = Patch(functools.partial(spelled, "fields_once"))
relax_tuple_field_written = Patch(functools.partial(spelled, "tuples_late"))
relax_number_on_the_left = Patch(functools.partial(spelled, "numbers_last"))
