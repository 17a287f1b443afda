"""`PythonTasks`: calls of a hunt's workers, each result kept in the store at once.

A call whose result is in the store does not run again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from pathlib import Path

from aliasproof.campaigns.run import python_calls
from aliasproof.campaigns.run.executor import OUTSIDE
from aliasproof.campaigns.run.python_calls import MOST
from aliasproof.campaigns.store.full_disk import require_room
from aliasproof.campaigns.store.opened_run import OpenedRun
from aliasproof.campaigns.store.plan import Plan
from aliasproof.campaigns.store.python_store import (
    FailingPython,
    JudgedPrograms,
    PythonStore,
    ReducedProgram,
    task_of,
)
from aliasproof.processes.isolation import Limits, start_server
from aliasproof.processes.outcome import Death, Outcome, Raised, Returned
from aliasproof.processes.pool import Pool, RemoteCall

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
        start_server([python_calls.__name__])
        compiled = str(run.files.compiled_folder().absolute())
        start = RemoteCall("", _name(python_calls.start), (plan.targets, compiled))
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
            self.pool.submit(RemoteCall(call, _name(python_calls.judge_programs), arguments))
        else:
            number, cause = call.failing.number, call.failing.cause
            most = 0 if call.failing.deaths else MOST
            given = (plan.seed, number, cause, plan.past_known, most)
            self.pool.submit(RemoteCall(call, _name(python_calls.reduce_program), given))

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
