"""A check in isolated processes: results as they arrive, and the meaning of a process's death.

The user's file runs in each process, since most of its objects cannot be sent to another one. So
there is only one process, as long as no target takes long (`aliasproof/processes/pool.py`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeAlias

from aliasproof.ir.errors import UserError
from aliasproof.oracles.check_result import Check, EagerResult, TargetResult
from aliasproof.oracles.given_tolerance import NONE_GIVEN, GivenTolerance
from aliasproof.oracles.verdict import Report, Verdict, Violation, not_applicable, report_of
from aliasproof.processes.isolation import CPU, TARGET_STEP, Limits
from aliasproof.processes.outcome import OUT_OF_MEMORY, Death, Outcome, Raised, Returned
from aliasproof.processes.pool import Pool, RemoteCall
from aliasproof.user_code.given_path import DEFAULT_NAMES, FileNames

# What processes import when they start. The first dispatch mode imports Dynamo.
PRELOADED = ("aliasproof.checks.check_session", "torch._dynamo")
# By name: these functions import torch, which this process does not need.
BEGIN, RUN_TARGET, KNOWN_BUG = (
    f"aliasproof.checks.check_session:{name}" for name in ("begin", "run_target", "known_bug")
)
MOST_STACK = 12  # frames of a stack in the evidence
MEMORY_SHARE = 0.8  # of the available memory, without --memory


@dataclass(frozen=True, slots=True)
class CheckRequest:
    """What to check: a file, the names of function and inputs in it, and the targets.

    All values are compared within `tolerance`, if given. `grad` is as in `check`. Without targets,
    the default ones run. The inputs are moved to `device`, if given.
    """

    path: Path
    names: FileNames = DEFAULT_NAMES
    targets: tuple[str, ...] = ()
    missed: bool = False
    device: str | None = None
    tolerance: GivenTolerance = NONE_GIVEN
    grad: bool | None = None


@dataclass(frozen=True, slots=True)
class Begun:
    """The eager run without its tensors, with notes on the function, and the names of the oracles.

    `targets` has the names of the rows, one or two per target, each with the row that it builds on.
    """

    eager: EagerResult
    notes: tuple[str, ...]
    targets: Mapping[str, str | None]
    oracles: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ShownBug:
    """The known bug that a row shows, with its title."""

    row: str
    identifier: str
    title: str


CheckEvent: TypeAlias = Begun | TargetResult | ShownBug


def shown_bugs(
    begun: Begun, results: Mapping[str, TargetResult], ask: Callable[[str], ShownBug | None]
) -> Iterator[ShownBug]:
    """The known bug of each wrong row. A row that is wrong like an earlier row has its bug.

    A row whose process died is skipped: it would die again.
    """
    check, shown = Check(begun.eager, results), dict[str | None, ShownBug | None]()
    for name in begun.targets:
        result = results[name]
        if not result.violated or result.died:
            continue
        shown[name] = shown.get(check.wrong_like(result)) or ask(name)
        if (bug := shown[name]) is not None:
            yield replace(bug, row=name)


@dataclass(slots=True)
class IsolatedCheck:
    """Runs a check in at most `most` processes."""

    request: CheckRequest
    limits: Limits
    most: int = field(default_factory=lambda: os.cpu_count() or 1)
    _deaths: dict[str, list[Death]] = field(default_factory=dict)

    def results(self) -> Iterator[CheckEvent]:
        """First the eager run, then each target when it ends, then the known bugs that they show.

        Raises `UserError` for bad input.
        """
        begin = RemoteCall("", BEGIN, (self.request,))
        pool = Pool(begin, self.limits, self.most, device=self.request.device or CPU)
        with pool.at_work():
            outcome = pool.prepare()
            if isinstance(outcome, Death):
                raise UserError(f"{self.request.path}: {outcome.step} {self._ending(outcome)}")
            if isinstance(outcome, Raised):
                raise outcome.error
            begun: Begun = outcome.value
            yield begun
            results = dict[str, TargetResult]()
            for name in begun.targets:
                pool.submit(self._call(name))
            while pool.pending:
                key, outcome = pool.take()
                name = str(key)
                again = self._again(name, outcome)
                if again is not None:
                    pool.submit(again)
                else:
                    results[name] = self._result(name, begun, outcome)
                    yield results[name]

            def ask(name: str) -> ShownBug | None:
                pool.submit(RemoteCall(name, KNOWN_BUG, (name,)))
                _, outcome = pool.take()
                # If this fails, only the name of the bug is missing.
                return outcome.value if isinstance(outcome, Returned) else None

            yield from shown_bugs(begun, results, ask)

    def _call(self, name: str, graphs: str = "", *, eager: bool = False) -> RemoteCall:
        return RemoteCall(name, RUN_TARGET, (name, self.request.missed, graphs, eager))

    def _ending(self, death: Death) -> str:
        """How the process ended, which limit it reached, and the line of the user's file."""
        path = self.request.path.resolve()
        line = next((frame.line for frame in death.stack if Path(frame.file) == path), None)
        memory = f" of {self.limits.nbytes / 2**30:.1f} GiB (--memory)"
        option = {"hangs": " (--limit)", OUT_OF_MEMORY: memory}.get(death.kind, "")
        return death.describe() + option + (f", at line {line}" if line is not None else "")

    def _again(self, name: str, outcome: Outcome) -> RemoteCall | None:
        """The next call that is needed to interpret this outcome; None if there is none."""
        if not isinstance(outcome, Death):
            return None
        deaths = self._deaths.setdefault(name, [])
        deaths.append(outcome)
        # A hang costs the whole time limit.
        if outcome.hangs and (outcome.step == TARGET_STEP or len(deaths) > 1):
            return None
        # The oracles on graphs cost the most, and results are better evidence than graphs.
        reason = "" if outcome.step == TARGET_STEP else self._ending(outcome)
        if len(deaths) == 1:
            return self._call(name, reason)
        # The process may die later of what the target did to its memory.
        if len(deaths) == 2 and outcome.step != TARGET_STEP:
            return self._call(name, reason, eager=True)
        return None

    def _result(self, name: str, begun: Begun, outcome: Outcome) -> TargetResult:
        if isinstance(outcome, Raised):
            raise outcome.error
        deaths = self._deaths.get(name, [])
        if isinstance(outcome, Death) or len(deaths) == 2:
            reports = self._reports(deaths, begun.oracles)
            died = self._ending(deaths[-1])
            return TargetResult(name, begun.targets[name], reports, died=died)
        assert isinstance(outcome, Returned)
        result: TargetResult = outcome.value
        if deaths and deaths[0].step == TARGET_STEP:
            reason = f"seen in one run, but not in a second run: {self._ending(deaths[0])}"
            errors = Report(Verdict.UNKNOWN, reason=reason)
            result = replace(result, reports={**result.reports, "errors": errors})
        return replace(result, died=self._ending(deaths[0])) if deaths else result

    def _reports(self, deaths: Sequence[Death], oracles: Sequence[str]) -> dict[str, Report]:
        """The reports on a target whose process died: in two runs, or in one that hangs.

        A death in a later step is the target's fault unless it also happens with eager instead.
        """
        death = deaths[-1]
        if death.step != TARGET_STEP and (death.hangs or len(deaths) > 2):
            reason = f"not the target: {death.step} {self._ending(death)}"
            return dict.fromkeys(oracles, Report(Verdict.UNKNOWN, reason=reason))
        evidence: dict[str, object] = {"process": self._ending(death)}
        if death.step != TARGET_STEP:
            evidence["step"] = f"{death.step}, after the target; not with eager in its place"
        if death.stack:
            evidence["stack"] = "\n".join(map(str, death.stack[:MOST_STACK]))
        ended = not_applicable("a run that ended its process has no results to compare")
        errors = report_of([Violation("errors", death.kind, "call", evidence)])
        return dict.fromkeys(oracles, ended) | {"errors": errors}
