"""A campaign of Python programs: each is drawn, judged and reduced in a process that may die."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from aliasproof.campaigns.publish.python_reproducer import confirm
from aliasproof.campaigns.run.python_reduction import reduced
from aliasproof.campaigns.store.python_finding import PythonFinding
from aliasproof.corpus.known_bugs import KNOWN_BUGS, mended
from aliasproof.corpus.python_bugs import python_bugs
from aliasproof.generators.python_drawing import sample_python
from aliasproof.processes.isolation import Limits, start_server
from aliasproof.processes.outcome import Death, Raised, Returned
from aliasproof.processes.pool import Pool, RemoteCall
from aliasproof.programs.errors import InternalError, Rejected
from aliasproof.trials.python_trial import Cause, examine_python
from aliasproof.trials.worker import start_worker

LIMITS = Limits(seconds=300.0, nbytes=6 * 2**30)
RENEWAL = 60  # calls of a process
PER_CALL = 10  # programs that are drawn and judged in one call
MOST_OF_KIND = 3  # findings of one target, oracle and kind that are reduced


@dataclass(slots=True)
class Judged:
    """What became of the programs of one call."""

    outcomes: Counter[str] = field(default_factory=Counter)
    failing: list[tuple[int, Cause]] = field(default_factory=list)
    mistakes: list[str] = field(default_factory=list)


def judge_programs(seed: int, numbers: range, target: str, past_known: bool) -> Judged:
    """Draw the programs with these numbers and judge each; in a worker."""
    judged = Judged()
    with mended(KNOWN_BUGS.values() if past_known else ()):
        for number, program in zip(numbers, sample_python(seed, numbers), strict=True):
            try:
                cause = examine_python(program, target).cause
            except Rejected:
                judged.outcomes["undefined"] += 1
                continue
            except InternalError as mistake:
                judged.outcomes["mistakes"] += 1
                judged.mistakes.append(f"program {number}: {mistake}")
                continue
            judged.outcomes["holds" if cause is None else "violated"] += 1
            if cause is not None:
                judged.failing.append((number, cause))
    return judged


def reduce_program(seed: int, number: int, cause: Cause, past_known: bool) -> PythonFinding | None:
    """Reduce a failing program, in a worker; None if it does not fail any more."""
    (drawn,) = sample_python(seed, [number])
    with mended(KNOWN_BUGS.values() if past_known else ()):
        finding = reduced(drawn, cause)
    return None if finding is None else replace(finding, seed=seed, number=number)


@dataclass(slots=True)
class PythonHunt:
    """The programs of a seed through a target, until `programs` or `seconds` are used up.

    What runs at the end of the time is given up.

    `outcomes` counts programs: holds, undefined, violated, dies. `findings` has one finding for
    each signature, `seen` counts how many programs had each cause.
    """

    seed: int
    target: str
    programs: int
    seconds: float
    workers: int = 2
    past_known: bool = False
    outcomes: Counter[str] = field(default_factory=Counter)
    seen: Counter[Cause] = field(default_factory=Counter)
    findings: dict[str, PythonFinding] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def run(self) -> Iterator[PythonFinding]:
        """Judge, reduce and confirm; yields each new finding."""
        start_server([__name__])
        start = RemoteCall("", f"{start_worker.__module__}:{start_worker.__name__}")
        pool = Pool(start, LIMITS, self.workers, renewal=RENEWAL)
        end, ranges = time.monotonic() + self.seconds, self._ranges()
        with pool.at_work():
            for numbers in itertools.islice(ranges, 2 * self.workers):
                self._submit(pool, numbers)
            while pool.pending and time.monotonic() < end:
                pool.wait()
                for key, outcome in pool.outcomes():
                    found = self._note(pool, key, outcome)
                    if found is not None:
                        yield found
                    if isinstance(key, range):
                        for numbers in itertools.islice(ranges, 1):
                            self._submit(pool, numbers)

    def _ranges(self) -> Iterator[range]:
        for first in range(0, self.programs, PER_CALL):
            yield range(first, min(first + PER_CALL, self.programs))

    def _submit(self, pool: Pool, numbers: range) -> None:
        arguments = (self.seed, numbers, self.target, self.past_known)
        pool.submit(RemoteCall(numbers, f"{__name__}:{judge_programs.__name__}", arguments))

    def _note(self, pool: Pool, key: object, outcome: object) -> PythonFinding | None:
        if isinstance(outcome, Returned) and isinstance(outcome.value, Judged):
            self.outcomes.update(outcome.value.outcomes)
            self.notes += outcome.value.mistakes
            for number, cause in outcome.value.failing:
                self.seen[cause] += 1
                if self.seen[cause] <= MOST_OF_KIND:
                    arguments = (self.seed, number, cause, self.past_known)
                    name = f"{__name__}:{reduce_program.__name__}"
                    pool.submit(RemoteCall(number, name, arguments))
        elif isinstance(outcome, Returned) and isinstance(outcome.value, PythonFinding):
            return self._confirmed(outcome.value)
        elif isinstance(outcome, Death):
            self._note_death(pool, key, outcome)
        elif isinstance(outcome, Raised):
            self.outcomes["mistakes"] += 1
            self.notes.append(f"programs {key}: {outcome.error}")
        return None

    def _note_death(self, pool: Pool, key: object, death: Death) -> None:
        """Ask each program of a call that died by itself."""
        if isinstance(key, range) and len(key) > 1:
            for number in key:
                self._submit(pool, range(number, number + 1))
            return
        # Drawing runs eager, so eager may be what died.
        self.outcomes["dies"] += 1
        self.notes.append(f"program {key}: {death.step} {death.describe()}")

    def _confirmed(self, finding: PythonFinding) -> PythonFinding | None:
        if finding.signature in self.findings:
            return None
        confirmed, _ = confirm(finding)
        known = next((bug.identifier for bug in python_bugs() if finding.is_of(bug)), "")
        finding = replace(finding, confirmed=confirmed, known=known)
        self.findings[finding.signature] = finding
        return finding
