"""`Check`: what the oracles report about one function through several targets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from oracles.verdict import Report, Violation

# The process that prints a check imports no torch, which takes more than a second.
if TYPE_CHECKING:
    from oracles.missed import Opportunity
    from oracles.observation import Observation
    from programs.trace import Trace


@dataclass(frozen=True, slots=True)
class EagerResult:
    """The eager run.

    `unjudged` says why no target can be compared with this run; None if targets can be.
    `raised` is the exception in one line; None if eager returns. There is no observation if the run
    is undefined, and neither observation nor trace if it is in another process.
    """

    observation: Observation | None
    trace: Trace | None
    unjudged: str | None = None
    raised: str | None = None


@dataclass(frozen=True, slots=True)
class TargetResult:
    """What the oracles report about one target, by name.

    `after` is the target that this one builds on. `observation` is its run; None if nothing was
    compared. `missed` is what its last graph could have done in place; None if that was not asked,
    or if the graph is wrong or incomplete.
    """

    target: str
    after: str | None
    reports: Mapping[str, Report]
    observation: Observation | None = None
    missed: Sequence[Opportunity] | None = None

    @property
    def violations(self) -> list[Violation]:
        """All violations, the main one first."""
        return [violation for report in self.reports.values() for violation in report.violations]

    @property
    def violated(self) -> bool:
        """True if the target violates its contract, in both of two runs."""
        return bool(self.violations)


@dataclass(frozen=True, slots=True)
class Check:
    """The outcome of a check. `notes` say what was done to make the function comparable."""

    eager: EagerResult
    results: Mapping[str, TargetResult]
    notes: Sequence[str] = ()

    @property
    def violated(self) -> bool:
        """True if any target violates its contract."""
        return any(result.violated for result in self.results.values())

    def already_in(self, result: TargetResult, violation: Violation) -> str | None:
        """The earliest target that `result.target` builds on and that shows the violation too.

        None if there is none, or if it was not checked.
        """
        earlier = None if result.after is None else self.results.get(result.after)
        if earlier is None:
            return None
        kind = (violation.oracle, violation.kind)
        same = next(
            (found for found in earlier.violations if (found.oracle, found.kind) == kind), None
        )
        return None if same is None else self.already_in(earlier, same) or earlier.target
