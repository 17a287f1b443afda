"""What a hunt draws, counted. Some programs end their process in eager, so workers draw them."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from aliasproof.generators.python_drawing import sample_python
from aliasproof.judge.python_trial import cut_of, is_defined
from aliasproof.judge.trial import start_worker
from aliasproof.processes.isolation import Limits, start_server
from aliasproof.processes.outcome import Death, Raised
from aliasproof.processes.pool import Pool, RemoteCall

LIMITS = Limits(seconds=600.0, nbytes=6 * 2**30)
PER_CALL = 50  # programs
RENEWAL = 20  # calls of a process
DIES = "end their process in eager"


@dataclass(slots=True)
class DrawnPython:
    """Counts of drawn programs.

    `forms` counts how often a form was used in which aliasing situation; `cuts` how many programs
    are defined, and how Dynamo cuts those that were compiled. `programs` have been drawn.
    """

    forms: Counter[tuple[str, str]] = field(default_factory=Counter)
    cuts: Counter[str] = field(default_factory=Counter)
    programs: int = 0

    def draw(self, seed: int, programs: int, frames: int) -> Iterator[int]:
        """Draw them, and compile `frames` of them; yields the number of each that was drawn."""
        every = max(programs // frames, 1) if frames else 0
        start_server([__name__])
        start = RemoteCall("", f"{start_worker.__module__}:{start_worker.__name__}")
        pool = Pool(start, LIMITS, os.cpu_count() or 1, renewal=RENEWAL)
        with pool.at_work():
            for first in range(0, programs, PER_CALL):
                self._submit(pool, seed, range(first, min(first + PER_CALL, programs)), every)
            while pool.pending:
                key, outcome = pool.take()
                assert isinstance(key, range)
                if isinstance(outcome, Raised):
                    raise outcome.error
                if not isinstance(outcome, Death):
                    self._add(outcome.value)
                elif len(key) > 1:
                    for number in key:
                        self._submit(pool, seed, range(number, number + 1), every)
                    continue
                else:
                    self._add(DrawnPython(cuts=Counter({DIES: 1}), programs=1))
                yield from key

    def _submit(self, pool: Pool, seed: int, numbers: range, every: int) -> None:
        call = f"{__name__}:{count_programs.__name__}"
        pool.submit(RemoteCall(numbers, call, (seed, numbers, every)))

    def _add(self, other: DrawnPython) -> None:
        self.forms += other.forms
        self.cuts += other.cuts
        self.programs += other.programs


def count_programs(seed: int, numbers: range, every: int) -> DrawnPython:
    """Draw the programs with these numbers, in a worker; compile each `every`-th, 0 for none."""
    drawn = DrawnPython(programs=len(numbers))
    for number, program in zip(numbers, sample_python(seed, numbers, drawn.forms), strict=True):
        if not every:
            continue
        defined = is_defined(program)
        drawn.cuts["defined in eager" if defined else "undefined in eager"] += 1
        if defined and number % every == 0:
            drawn.cuts["compiled"] += 1
            drawn.cuts[cut_of(program, drawn.cuts)] += 1
    return drawn
