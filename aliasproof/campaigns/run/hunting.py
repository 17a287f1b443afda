"""`hunt`: a campaign of Python programs; each is judged and reduced in a process that may die.

It is a fold over results that the store keeps, as `fuzz` is (docs/campaigns.md). The calls that
judge programs are taken in the order of the plan, whichever ends first, and reductions as they end:
of two that lead to one finding, the one that was asked for first is its evidence. So a hunt that
was ended and started again finds the same.

The scheduler of `fuzz` is another one: half of it decides what Python programs do not have, such as
groups that are compiled as one, bugs that are patched on the way, and candidates in forks.
"""

from __future__ import annotations

import itertools
import resource
import time
from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from aliasproof.campaigns.publish.confirmation import Confirmation
from aliasproof.campaigns.publish.python_issue import confirm_python, python_issue, script
from aliasproof.campaigns.run import worker_calls
from aliasproof.campaigns.run.executor import OUTSIDE, memory_of_workers
from aliasproof.campaigns.run.python_hunt import PythonHunt
from aliasproof.campaigns.run.worker_calls import MOST
from aliasproof.campaigns.store.finding import PythonFinding
from aliasproof.campaigns.store.full_disk import require_room
from aliasproof.campaigns.store.plan import Plan
from aliasproof.campaigns.store.python_store import (
    FailingPython,
    JudgedPrograms,
    PythonStore,
    ReducedProgram,
    StoredFinding,
    task_of,
)
from aliasproof.campaigns.store.run_folder import OpenedRun, opened_run
from aliasproof.judge.python_trial import Cause
from aliasproof.processes.interrupts import Interrupts
from aliasproof.processes.isolation import Limits, start_server
from aliasproof.processes.outcome import Death, Outcome, Raised, Returned
from aliasproof.processes.pool import Pool, RemoteCall

# --- python tasks ---------------------------------------------------------------------------------
#
# `PythonTasks`: calls of a hunt's workers, each result kept in the store at once.
#
# A call whose result is in the store does not run again.


LIMITS = Limits(seconds=300.0, nbytes=6 * 2**30)
RENEWAL = 60  # calls of a process
# How often a reduction must end its process before it is given up; and how often a call, if a
# signal ends the process that a user or the kernel sends.
TRIES, TRIES_IF_FROM_OUTSIDE = 2, 5


@dataclass(slots=True, eq=False)
class Judging:
    """A call that judges these programs; `judged` is None until it is done.

    `ends` counts workers that were ended from outside.
    """

    task: str
    numbers: range
    judged: JudgedPrograms | None = None
    ends: int = 0


@dataclass(slots=True, eq=False)
class Reducing:
    """The `number`-th reduction that was asked for; `reduced` is None until it is done."""

    failing: FailingPython
    number: int
    reduced: ReducedProgram | None = None
    ends: int = 0


@dataclass(frozen=True, slots=True)
class PythonTasks:
    """Runs calls in a pool. Results go into the store."""

    plan: Plan
    folder: Path
    store: PythonStore
    pool: Pool

    @classmethod
    def of(cls, plan: Plan, run: OpenedRun) -> PythonTasks:
        """For the run of a plan. Processes start with the first call."""
        start_server([worker_calls.__name__])
        compiled = str(run.files.compiled_folder().absolute())
        start = RemoteCall("", _name(worker_calls.start_python), (plan.targets, compiled))
        pool = Pool(start, LIMITS, plan.workers, renewal=RENEWAL)
        return cls(plan, run.files.folder, PythonStore(run.store), pool)

    # --- start a call, or take its result from the store ---

    def has_result(self, numbers: range) -> bool:
        """Whether these programs need not be judged."""
        return self.store.judged(task_of(self.plan, numbers)) is not None

    def judge(self, numbers: range) -> Judging:
        """Start to judge programs."""
        task = task_of(self.plan, numbers)
        call = Judging(task, numbers, self.store.judged(task))
        if call.judged is None:
            self._submit(call)
        return call

    def reduce(self, failing: FailingPython, number: int) -> Reducing:
        """Start a reduction."""
        call = Reducing(failing, number, self.store.reduced(failing))
        if call.reduced is None:
            self._submit(call)
        return call

    def _submit(self, call: Judging | Reducing) -> None:
        plan = self.plan
        (target,) = plan.targets
        if isinstance(call, Judging):
            arguments = (plan.seed, call.numbers, target, plan.past_known)
            self.pool.submit(RemoteCall(call, _name(worker_calls.judge_programs), arguments))
        else:
            number, cause = call.failing.number, call.failing.cause
            most = 0 if call.failing.deaths else MOST
            given = (plan.seed, number, cause, plan.past_known, most)
            self.pool.submit(RemoteCall(call, _name(worker_calls.reduce_program), given))

    # --- take results ---

    def settle(self) -> None:
        """Keep the results that are there, in any order."""
        for call, outcome in self.pool.outcomes():
            self._keep(call, outcome)

    def _keep(self, call: Hashable, outcome: Outcome) -> None:
        assert isinstance(call, Judging | Reducing)
        if isinstance(outcome, Death):
            self._note_death(call, outcome)
        elif isinstance(call, Reducing):
            if isinstance(outcome, Raised):
                outcome = Returned(ReducedProgram(mistake=str(outcome.error)))
            self._keep_reduced(call, outcome.value)
        elif isinstance(outcome, Returned):
            self._keep_judged(call, outcome.value)
        else:
            first, count = call.numbers.start, len(call.numbers)
            note = f"programs {first} to {first + count - 1}: {outcome.error}"
            self._keep_judged(call, JudgedPrograms(Counter(mistakes=count), notes=[note]))

    def _keep_judged(self, call: Judging, judged: JudgedPrograms) -> None:
        for text in (*judged.notes, *(cause.kind for _, cause in judged.failing)):
            require_room(text, self.folder)
        self.store.keep_judged(call.task, self.plan, judged)
        call.judged = judged

    def _keep_reduced(self, call: Reducing, reduced: ReducedProgram) -> None:
        require_room(reduced.mistake, self.folder)
        self.store.keep_reduced(call.failing, reduced)
        call.reduced = reduced

    def _note_death(self, call: Judging | Reducing, death: Death) -> None:
        """Split a call that died; keep as drawn what a reduction ends."""
        from_outside = death.status in {-number for number in OUTSIDE}
        call.ends += 1
        if from_outside and call.ends < TRIES_IF_FROM_OUTSIDE:
            self._submit(call)
        elif isinstance(call, Reducing):
            call.failing = self.store.keep_death(call.failing, death.violation)
            if len(call.failing.deaths) < TRIES:
                self._submit(call)
            else:
                self._keep_reduced(call, ReducedProgram(ended=f"{death.step} {death.describe()}"))
        elif len(call.numbers) > 1:
            self._keep_judged(call, JudgedPrograms(split=True))
        else:
            # Drawing runs eager, so eager may be what died.
            note = f"program {call.numbers.start}: {death.step} {death.describe()}"
            self._keep_judged(call, JudgedPrograms(Counter(dies=1), notes=[note]))


def _name(function: Callable[..., object]) -> str:
    return f"{function.__module__}:{function.__name__}"


# --- hunting --------------------------------------------------------------------------------------


PER_CALL = 10  # programs that are drawn and judged in one call
FOR_FOUND, MOST_FOR_FOUND = 0.15, 300.0  # share and seconds of the time that are for what was found
GRACE = 1.0  # seconds that work under way may take after the time is up
POLL = 0.05  # seconds
WRITTEN_EVERY = 10.0  # seconds between two writes of `run.json`
MOST_OF_KIND = 3  # findings of one target, oracle and kind that are reduced
DONE_EARLY = 100  # calls that may wait for one before them


def hunt(
    plan: Plan,
    folder: Path,
    listener: Callable[[PythonHunt], None] = lambda hunt: None,
    interrupts: Interrupts | None = None,
    started: float | None = None,
) -> PythonHunt:
    """Run a hunt and store its findings under `folder`, or go on with the one that is there.

    `listener` is called several times per second. The time of the plan counts from `started` on, in
    seconds of the monotonic clock; by default, from this call. The last part of it is for what was
    found. Ctrl-C ends the search: scripts that wait by then run, until a second Ctrl-C. What is not
    reduced or confirmed waits in the store. Raises `UserError` as `opened_run` does.
    """
    interrupts = interrupts or Interrupts()
    started = time.monotonic() if started is None else started
    with interrupts.counted(), opened_run(plan, folder) as run:
        return _Hunting.of(plan, run, listener, interrupts, started).run()


@dataclass(slots=True)
class _Hunting:
    """The loop of a hunt. Calls that judge are in the order of the plan."""

    hunt: PythonHunt
    opened: OpenedRun
    tasks: PythonTasks
    listener: Callable[[PythonHunt], None]
    interrupts: Interrupts
    started: float
    before: float  # seconds of the hunt until it was started again
    ranges: Iterator[range]
    executor: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1))
    judging: deque[Judging] = field(default_factory=deque)
    reducing: list[Reducing] = field(default_factory=list)
    numbers: Iterator[int] = field(default_factory=itertools.count)
    evidence: dict[str, int] = field(default_factory=dict)  # numbers of reductions, by finding
    confirming: list[tuple[PythonFinding, Future[Confirmation]]] = field(default_factory=list)
    seen: Counter[Cause] = field(default_factory=Counter)
    written: float = field(default_factory=time.monotonic)

    @classmethod
    def of(
        cls,
        plan: Plan,
        run: OpenedRun,
        listener: Callable[[PythonHunt], None],
        interrupts: Interrupts,
        started: float,
    ) -> _Hunting:
        hunt = PythonHunt(plan, run.files.folder, opening=run.notes)
        tasks = PythonTasks.of(plan, run)
        before, _ = run.store.elapsed()
        return cls(hunt, run, tasks, listener, interrupts, started, before, _ranges(plan))

    @property
    def store(self) -> PythonStore:
        """What was found."""
        return self.tasks.store

    def run(self) -> PythonHunt:
        """Judge, reduce and confirm; then write the outcome."""
        try:
            with self.tasks.pool.at_work():
                self._report()
                self._search()
            self._confirm_the_rest()
        finally:
            self.executor.shutdown(wait=False, cancel_futures=True)
        self.hunt.interrupted = self.interrupts.count > 0
        self.opened.files.remove_leftovers()
        self._report()
        self._write(at_end=True)
        self.opened.store.events.note("ended", interrupted=self.hunt.interrupted)
        return self.hunt

    def _search(self) -> None:
        """Judge and reduce until all is done, the time is up, or somebody ends it."""
        while not self.interrupts.count:
            self._fill()
            waits = bool(self.judging or self.reducing or self.confirming)
            # What is done is taken, whatever the time.
            if not waits or (self._late() and not self._can_take):
                break
            if not self._can_take:
                self.tasks.pool.wait()
                self.tasks.settle()
            self._take()
            self._take_confirmed()
            self._report()
        self.tasks.settle()
        self._take()

    def _confirm_the_rest(self) -> None:
        before = self.interrupts.count  # one more Ctrl-C ends the wait
        while self.confirming and self.interrupts.count == before and not self._late():
            time.sleep(POLL)
            self._take_confirmed()
            self._report()

    @property
    def _elapsed(self) -> float:
        return self.before + time.monotonic() - self.started

    def _late(self) -> bool:
        """Whether what is under way must wait until the hunt is started again."""
        seconds = self.hunt.plan.seconds
        if seconds is None or self.hunt.plan.finish:
            return False
        return self._elapsed > max(seconds, self.before) + GRACE

    def _fill(self) -> None:
        """Ask for programs to be judged: two calls per worker, and what is stored already."""
        seconds = self.hunt.plan.seconds
        reserved = min(FOR_FOUND * (seconds or 0.0), MOST_FOR_FOUND)
        is_over = seconds is not None and self._elapsed > seconds - reserved
        while len(self.judging) < DONE_EARLY:
            undone = sum(call.judged is None for call in self.judging)
            numbers = next(self.ranges, None) if undone < 2 * self.hunt.plan.workers else None
            if numbers is None:
                break
            # What is in the store is taken, whatever the time: it is a part of the hunt.
            if is_over and not self.tasks.has_result(numbers):
                self.ranges = iter(())
                break
            self.judging.append(self.tasks.judge(numbers))

    # --- the fold ---

    @property
    def _can_take(self) -> bool:
        """Whether a result is there that is next in order."""
        judged = bool(self.judging) and self.judging[0].judged is not None
        return judged or any(call.reduced is not None for call in self.reducing)

    def _take(self) -> None:
        """Take the results that are there."""
        while self.judging and self.judging[0].judged is not None:
            self._take_judged(self.judging.popleft())
        for call in [call for call in self.reducing if call.reduced is not None]:
            self.reducing.remove(call)
            self._take_reduced(call)
        self.hunt.reducing = len(self.reducing)

    def _take_judged(self, call: Judging) -> None:
        assert call.judged is not None
        if call.judged.split:
            alone = (range(number, number + 1) for number in reversed(call.numbers))
            self.judging.extendleft(map(self.tasks.judge, alone))
        self.hunt.add_judged(call.judged)
        for failing in self.store.failing(call.task):
            self.seen[failing.cause] += 1
            if self.seen[failing.cause] > MOST_OF_KIND:
                self.hunt.repeats += 1
                continue
            self.reducing.append(self.tasks.reduce(failing, next(self.numbers)))

    def _take_reduced(self, call: Reducing) -> None:
        """Count a reduction. Of those that lead to one finding, the first asked for is evidence."""
        assert call.reduced is not None
        self.hunt.add_reduced(call.reduced, call.failing.number)
        finding = call.reduced.finding
        if finding is None:
            return
        name = finding.identifier
        if self.evidence.setdefault(name, call.number) < call.number:
            self.store.keep_occurrence(name, call.failing)
            return
        self.evidence[name] = call.number
        self._withdraw_other(finding)
        self.store.keep_finding(finding, script(finding), call.failing)
        kept = self.store.finding(name)
        assert kept is not None
        if kept.finding.confirmed is not None:
            self._add(kept)
        else:
            self.opened.files.write_python(kept.finding, kept.script, None)
            self.confirming.append(
                (kept.finding, self.executor.submit(confirm_python, kept.finding))
            )
            self.hunt.confirming = len(self.confirming)

    def _withdraw_other(self, finding: PythonFinding) -> None:
        """Remove what another program has shown of this finding."""
        name, kept = finding.identifier, self.store.finding(finding.identifier)
        if kept is None or kept.finding.number == finding.number:
            return
        self.confirming = [it for it in self.confirming if it[0].identifier != name]
        for found in (self.hunt.findings, self.hunt.unconfirmed):
            found.pop(name, None)
        self.opened.files.remove_finding(name)
        self.store.store.remove_finding(name)

    def _add(self, kept: StoredFinding) -> None:
        """Add what a script showed, or did not; its files may not be there after a kill."""
        self.opened.files.write_python(kept.finding, kept.script, kept.issue)
        self.hunt.add_finding(kept.finding)

    def _take_confirmed(self) -> None:
        """The findings whose scripts have run."""
        for finding, asked in [it for it in self.confirming if it[1].done()]:
            self.confirming.remove((finding, asked))
            confirmation = asked.result()
            found = replace(finding, confirmed=confirmation.shown)
            issue = python_issue(found, confirmation.output) if confirmation.shown else None
            self.store.keep_confirmation(found, asdict(confirmation), issue)
            kept = self.store.finding(found.identifier)
            assert kept is not None
            self._add(kept)
            self.hunt.news.append(found)
        self.hunt.confirming = len(self.confirming)

    # --- reports ---

    def _report(self) -> None:
        self.hunt.elapsed = self._elapsed
        self.listener(self.hunt)
        if time.monotonic() - self.written > WRITTEN_EVERY:
            self._write()

    def _write(self, *, at_end: bool = False) -> None:
        self.written = time.monotonic()
        hunt = self.hunt
        counts = (hunt.outcomes.total(), hunt.outcomes["violated"], len(hunt.findings))
        kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        self.opened.store.note_progress(hunt.elapsed, {}, counts, kib, memory_of_workers())
        # Until the end, `run.json` says that the run did not come to it.
        self.opened.files.write_outcome(hunt.to_json() | ({} if at_end else {"interrupted": True}))


def _ranges(plan: Plan) -> Iterator[range]:
    """The programs of each call, in order."""
    index, step = plan.share
    most = plan.programs
    for call in itertools.count(index - 1, step):
        numbers = range(call * PER_CALL, (call + 1) * PER_CALL)
        if most is not None:
            numbers = numbers[: max(most - numbers.start, 0)]
        if not numbers:
            return
        yield numbers
