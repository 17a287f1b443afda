"""A campaign of Python programs: each is drawn, judged and reduced in a process that may die."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import torch

from aliasproof.campaigns.failure.straight_line import name_of_line, straight_line
from aliasproof.campaigns.publish.confirmation import Confirmation
from aliasproof.campaigns.publish.python_reproducer import confirm
from aliasproof.campaigns.run.python_reduction import MOST, reduced
from aliasproof.campaigns.store.python_finding import PythonFinding
from aliasproof.corpus.known_bugs import KNOWN_BUGS, mended
from aliasproof.corpus.python_bugs import python_bugs
from aliasproof.generators.python_drawing import sample_python
from aliasproof.processes.interrupts import Interrupts
from aliasproof.processes.isolation import Limits, start_server
from aliasproof.processes.outcome import Death, Raised, Returned
from aliasproof.processes.pool import Pool, RemoteCall
from aliasproof.programs.errors import InternalError, Rejected
from aliasproof.targets.user_names import grant
from aliasproof.trials.python_trial import Cause, examine_python
from aliasproof.trials.worker import start_worker

LIMITS = Limits(seconds=300.0, nbytes=6 * 2**30)
RENEWAL = 60  # calls of a process
PER_CALL = 10  # programs that are drawn and judged in one call
FOR_FOUND, MOST_FOR_FOUND = 0.15, 300.0  # share and seconds of the time that are for what was found
POLL = 0.05  # seconds
MOST_OF_KIND = 3  # findings of one target, oracle and kind that are reduced


@dataclass(slots=True)
class Judged:
    """What became of the programs of one call."""

    outcomes: Counter[str] = field(default_factory=Counter)
    failing: list[tuple[int, Cause]] = field(default_factory=list)
    mistakes: list[str] = field(default_factory=list)


def judge_programs(seed: int, numbers: range, target: str, past_known: bool) -> Judged:
    """Draw the programs with these numbers and judge each; in a worker."""
    grant([target])
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


def reduce_program(
    seed: int, number: int, cause: Cause, past_known: bool, most: int = MOST
) -> PythonFinding | AllowedByDocs | None:
    """Reduce a failing program, in a worker; None if it does not fail any more."""
    grant([cause.target])
    (drawn,) = sample_python(seed, [number])
    with mended(KNOWN_BUGS.values() if past_known else ()):
        finding = reduced(drawn, cause, most)
    return None if finding is None else named(replace(finding, seed=seed, number=number))


def named(finding: PythonFinding) -> PythonFinding | AllowedByDocs:
    """The finding with the known bug that it is, and the name that `fuzz` has for it."""
    line = straight_line(finding.program)
    name = line and name_of_line(line, finding.target, finding.oracle)
    if name and name.documented:
        return AllowedByDocs(name.documented)
    known = next((bug.identifier for bug in python_bugs() if finding.is_of(bug)), "")
    if name:
        return replace(finding, line=name.identifier, known=known or name.known)
    return replace(finding, known=known)


class AllowedByDocs(NamedTuple):
    """Why a reduced program is no violation: the documentation allows what it shows."""

    reason: str


class Reducing(NamedTuple):
    """The key of a reduction: the number of the program, and how many candidates it may try."""

    number: int
    cause: Cause
    most: int = MOST


@dataclass(slots=True)
class PythonHunt:
    """The programs of a seed through a target, until `programs` or `seconds` are used up.

    The last part of the time is for what was found: no program is drawn then. What is not reduced
    at its end is given up.

    `outcomes` counts programs: holds, undefined, violated, documented, dies. `findings` are
    confirmed by their scripts, `unconfirmed` are not; both have one finding for each signature.
    `seen` counts how many programs had each cause. `notes` tell mistakes of aliasproof, and
    programs that end a process.
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
    unconfirmed: dict[str, PythonFinding] = field(default_factory=dict)
    reducing: int = 0
    elapsed: float = 0.0
    interrupted: bool = False
    notes: list[str] = field(default_factory=list)
    _confirming: dict[str, tuple[PythonFinding, Future[Confirmation]]] = field(default_factory=dict)

    @property
    def confirming(self) -> int:
        """How many reduced programs wait for their scripts."""
        return len(self._confirming)

    def run(
        self,
        listener: Callable[[PythonHunt], None] = lambda hunt: None,
        interrupts: Interrupts | None = None,
    ) -> Iterator[tuple[PythonFinding, Confirmation]]:
        """Judge, reduce and confirm; yields what was reduced, with what its script showed.

        `listener` is called several times per second. Ctrl-C ends the search: scripts that run by
        then are waited for, until a second Ctrl-C.
        """
        interrupts = interrupts or Interrupts()
        started = time.monotonic()
        start_server([__name__])
        start = RemoteCall("", f"{start_worker.__module__}:{start_worker.__name__}")
        pool = Pool(start, LIMITS, self.workers, renewal=RENEWAL)
        executor = ThreadPoolExecutor(1)
        try:
            with interrupts.counted():
                with pool.at_work():
                    for _ in self._search(pool, executor, interrupts, started):
                        listener(self)
                        yield from self._confirmed()
                self.interrupted = interrupts.count > 0
                while self._confirming and interrupts.count < 2:
                    time.sleep(POLL)
                    yield from self._confirmed()
        finally:
            executor.shutdown(wait=False, cancel_futures=True)
        listener(self)

    def _search(
        self, pool: Pool, executor: Executor, interrupts: Interrupts, started: float
    ) -> Iterator[None]:
        """Judge and reduce until all is done, the time is up, or somebody ends it."""
        ranges = self._ranges()
        for numbers in itertools.islice(ranges, 2 * self.workers):
            self._submit(pool, numbers)
        while (pool.pending or self._confirming) and not interrupts.count:
            self.elapsed = time.monotonic() - started
            if self.elapsed > self.seconds:
                break
            pool.wait()
            for key, outcome in pool.outcomes():
                self._note(pool, executor, key, outcome)
                if isinstance(key, range) and self.elapsed < self._drawing:
                    for numbers in itertools.islice(ranges, 1):
                        self._submit(pool, numbers)
            yield

    @property
    def _drawing(self) -> float:
        """Seconds in which programs are drawn."""
        return self.seconds - min(FOR_FOUND * self.seconds, MOST_FOR_FOUND)

    def _ranges(self) -> Iterator[range]:
        for first in range(0, self.programs, PER_CALL):
            yield range(first, min(first + PER_CALL, self.programs))

    def _submit(self, pool: Pool, numbers: range) -> None:
        arguments = (self.seed, numbers, self.target, self.past_known)
        pool.submit(RemoteCall(numbers, f"{__name__}:{judge_programs.__name__}", arguments))

    def _reduce(self, pool: Pool, key: Reducing) -> None:
        self.reducing += 1
        arguments = (self.seed, key.number, key.cause, self.past_known, key.most)
        pool.submit(RemoteCall(key, f"{__name__}:{reduce_program.__name__}", arguments))

    def _note(self, pool: Pool, executor: Executor, key: object, outcome: object) -> None:
        self.reducing -= isinstance(key, Reducing)
        value = outcome.value if isinstance(outcome, Returned) else None
        if isinstance(value, Judged):
            self.outcomes.update(value.outcomes)
            self.notes += value.mistakes
            for number, cause in value.failing:
                self.seen[cause] += 1
                if self.seen[cause] <= MOST_OF_KIND:
                    self._reduce(pool, Reducing(number, cause))
        elif isinstance(value, PythonFinding):
            if value.signature not in (*self.findings, *self.unconfirmed, *self._confirming):
                asked = executor.submit(confirm, value)
                self._confirming[value.signature] = (value, asked)
        elif isinstance(value, AllowedByDocs):
            self.outcomes.update(violated=-1, documented=1)
        elif isinstance(outcome, Death):
            self._note_death(pool, key, outcome)
        elif isinstance(outcome, Raised):
            self.outcomes["mistakes"] += 1
            self.notes.append(f"programs {key}: {outcome.error}")

    def _note_death(self, pool: Pool, key: object, death: Death) -> None:
        """Ask each program of a call that died by itself; keep as drawn what a reduction ends."""
        if isinstance(key, range) and len(key) > 1:
            for number in key:
                self._submit(pool, range(number, number + 1))
        elif isinstance(key, Reducing) and key.most:
            self._reduce(pool, key._replace(most=0))
        else:
            # Drawing runs eager, so eager may be what died.
            self.outcomes["dies"] += 1
            self.notes.append(f"program {key}: {death.step} {death.describe()}")

    def _confirmed(self) -> Iterator[tuple[PythonFinding, Confirmation]]:
        """The findings whose scripts have run."""
        for signature, (finding, asked) in list(self._confirming.items()):
            if not asked.done():
                continue
            del self._confirming[signature]
            confirmation = asked.result()
            finding = replace(finding, confirmed=confirmation.shown)
            (self.findings if confirmation.shown else self.unconfirmed)[signature] = finding
            yield finding, confirmation

    def to_json(self) -> dict[str, object]:
        """The outcome as JSON values."""
        known = Counter(finding.known for finding in self.findings.values() if finding.known)
        return {
            "version": 1,
            "torch": str(torch.__version__),
            "target": self.target,
            "seed": self.seed,
            "seconds": round(self.elapsed, 1),
            "past known bugs": self.past_known,
            "interrupted": self.interrupted,
            "programs": dict(self.outcomes),
            "findings": [{"name": name, **it.to_json()} for name, it in self.findings.items()],
            "known bugs": dict(known),
            "unconfirmed": sorted(self.unconfirmed),
            "notes": self.notes,
        }
