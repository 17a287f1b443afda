"""`Check`: what the oracles report about one function through several targets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from typing import TYPE_CHECKING, TypeAlias

from aliasproof.oracles.verdict import (
    FROM_WORST,
    Documented,
    PlaceNames,
    Report,
    Verdict,
    Violation,
)

# The process that prints a check imports no torch, which takes more than a second.
if TYPE_CHECKING:
    from aliasproof.eager.trace import Trace
    from aliasproof.oracles.missed import Opportunity
    from aliasproof.oracles.observation import Observation

# That both raise says nothing about values, and nothing does that is seen on graphs alone.
_NOT_RESULTS = ("errors", "equivalence", "clobbers", "invariants")


# Of two runs beside each other, as texts: what it is, eager's, the target's.
Row: TypeAlias = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class EagerResult:
    """The eager run, and what is shown of it as texts.

    `unjudged` says why no target can be compared with this run; None if targets can be.
    `raised` is the exception in one line; None if eager returns. There is no observation if the run
    is undefined, and neither observation nor trace if it is in another process. `names` are those
    of inputs and outputs, where the function has names for them. `outputs`, and `inputs`
    afterwards, are texts. `rounded` is the op since which values are compared with a tolerance.
    `unspecified` is a call that only this device runs in one way. `torch` is the version.
    """

    observation: Observation | None
    trace: Trace | None
    unjudged: str | None = None
    raised: str | None = None
    names: PlaceNames = field(default_factory=dict)
    outputs: Sequence[str] = ()
    inputs: Sequence[str] = ()
    rounded: str | None = None
    unspecified: str | None = None
    torch: str = ""

    def without_tensors(self) -> EagerResult:
        """The result with its texts alone, which can be sent from process to process.

        Tensors can be large, and a copy would lose what they share.
        """
        return replace(self, observation=None, trace=None)


@dataclass(frozen=True, slots=True)
class TargetResult:
    """What the oracles report about one target, by name.

    `after` is the target that this one builds on. `observation` is its run; None if nothing was
    compared. `missed` is what its last graph could have done in place; None if that was not asked,
    or if the graph is wrong or incomplete. `eager` is the eager run that it was compared with, if
    that is another one than the check's. `wrong_part` is the pass after which the target is
    wrong, if attribution found one. `died` says how a process died that compared it, in any run.
    `rows` are both runs beside each other, if they differ.
    """

    target: str
    after: str | None
    reports: Mapping[str, Report]
    observation: Observation | None = None
    missed: Sequence[Opportunity] | None = None
    eager: Observation | None = None
    wrong_part: str = ""
    died: str = ""
    rows: Sequence[Row] = ()

    def without_tensors(self) -> TargetResult:
        """As `EagerResult.without_tensors`."""
        return replace(self, observation=None, eager=None)

    @property
    def violations(self) -> list[Violation]:
        """All violations, the main one first."""
        return [violation for report in self.reports.values() for violation in report.violations]

    @property
    def violated(self) -> bool:
        """True if the target violates its contract, in both of two runs."""
        return bool(self.violations)

    @property
    def documented(self) -> list[Documented]:
        """All differences that the target documents, the main one first."""
        return [documented for report in self.reports.values() for documented in report.documented]

    @property
    def notes(self) -> list[Violation]:
        """All differences of graphs alone."""
        return [note for report in self.reports.values() for note in report.notes]

    @property
    def verdict(self) -> Verdict:
        """The verdict on the target: that of its worst report.

        What oracles on results cannot decide, no other oracle decides. An oracle on graphs that is
        unknown leaves it at the results.
        """
        if any(report.differences for report in self.reports.values()):
            return Verdict.VIOLATED if self.violated else Verdict.DOCUMENTED
        verdicts = [
            report.verdict for name, report in self.reports.items() if name not in _NOT_RESULTS
        ]
        return min(verdicts, key=FROM_WORST.index, default=Verdict.NOT_APPLICABLE)

    @property
    def judged(self) -> bool:
        """True if the target was compared with eager in all results.

        What is wrong before a user's code was compared, too.
        """
        return self.inherits or self.verdict not in (Verdict.UNKNOWN, Verdict.NOT_APPLICABLE)

    @property
    def inherits(self) -> bool:
        """True if a layer before a user's code is wrong."""
        return any(report.inherited for report in self.reports.values())


# What `Check.exit_status` answers beside 0.
DIFFERS, NOTHING_JUDGED = 1, 4


@dataclass(frozen=True, slots=True)
class Check:
    """The outcome of a check. `notes` say what was done to make the function comparable.

    `name` is that of what was checked.
    """

    eager: EagerResult
    results: Mapping[str, TargetResult]
    notes: Sequence[str] = ()
    name: str = ""

    def __repr__(self) -> str:
        verdicts = (f"{target} {it.verdict.value}" for target, it in self.results.items())
        return f"<Check {self.name}: {', '.join(verdicts)}>"

    @property
    def violated(self) -> bool:
        """True if any target violates its contract."""
        return any(result.violated for result in self.results.values())

    @property
    def documented(self) -> bool:
        """True if any target differs from eager as it documents."""
        return any(result.documented for result in self.results.values())

    def exit_status(self, *, strict: bool = False) -> int:
        """0 if targets were judged and none is violated, 1 if one is, 4 if none was judged.

        It is 4, too, if a process died and no violation explains that. A difference
        that a target documents is no violation. With `strict`, notes count.
        """
        if self.violated or (strict and any(result.notes for result in self.results.values())):
            return DIFFERS
        if any(result.died for result in self.results.values()):
            return NOTHING_JUDGED
        return 0 if any(result.judged for result in self.results.values()) else NOTHING_JUDGED

    def _repr_html_(self) -> str:
        """A table of verdicts for a notebook, with what each target does wrong below it."""
        names = dict.fromkeys(name for one in self.results.values() for name in one.reports)
        rows = [("target", *names)]
        for target, result in self.results.items():
            verdicts = (result.reports.get(name) for name in names)
            rows.append((target, *("" if it is None else it.verdict.word for it in verdicts)))
        table = "".join(
            f"<tr>{''.join(f'<td>{escape(it)}</td>' for it in row)}</tr>" for row in rows
        )
        said = [self.eager.unjudged] if self.eager.unjudged else []
        for target, result in self.results.items():
            said += [f"{target}: {violation.describe()}" for violation in result.violations]
            said += [f"{target}: {result.died}"] if result.died else []
            sides = (f"{what}: {eager} in eager, {here} here" for what, eager, here in result.rows)
            said += [f"{target}, {side}" for side in sides]
        items = "".join(f"<li>{escape(line)}</li>" for line in said)
        return f"<table>{table}</table><ul>{items}</ul>"

    def already_in(self, result: TargetResult, violation: Violation) -> str | None:
        """The earliest target that `result.target` builds on and that shows the difference too.

        None if there is none, or if it was not checked.
        """
        earlier = None if result.after is None else self.results.get(result.after)
        if earlier is None:
            return None
        kind = (violation.oracle, violation.kind)
        seen = (
            difference for report in earlier.reports.values() for difference in report.differences
        )
        same = next(
            (difference for difference in seen if (difference.oracle, difference.kind) == kind),
            None,
        )
        return None if same is None else self.already_in(earlier, same) or earlier.target
