"""`Check`: what the oracles report about one function through several targets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from typing import TYPE_CHECKING, TypeAlias

from aliasproof.oracles.verdict import (
    FROM_WORST,
    PlaceNames,
    Report,
    Reported,
    Verdict,
    Violation,
)

# The process that prints a check imports no torch, which takes more than a second.
if TYPE_CHECKING:
    from aliasproof.eager.trace import Trace
    from aliasproof.oracles.missed import Opportunity
    from aliasproof.oracles.observation import Observation

# *errors* compares no values, and the others only see graphs: neither is a verdict on results.
NOT_RESULTS = ("errors", "equivalence", "clobbers", "invariants")


# One line of two runs side by side: its name, eager's text, the target's text.
Row: TypeAlias = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class EagerResult:
    """The eager run, and texts that show it.

    `unjudged` says why no target can be compared with this run; None if targets can be.
    `raised` is the exception in one line; None if eager returns. `observation` is None if the run
    is undefined in eager; `observation` and `trace` are None if they are in another process.
    `names` are the user's names of inputs and outputs, where the function has them. `outputs` and
    `inputs` (after the run) are texts. `rounded` is the first op after which values are compared
    with a tolerance. `unspecified` is a call that torch does not specify. `torch` is the version.
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
        """The result without tensors, so that it can be sent from process to process.

        Tensors can be large, and copies would lose their aliasing.
        """
        return replace(self, observation=None, trace=None)


@dataclass(frozen=True, slots=True)
class TargetResult(Reported):
    """What the oracles report about one target, by the oracle's name.

    `after` is the target that this one builds on. `observation` is its run; None if nothing was
    compared. `missed` lists what its last graph could do in place; None if this was not searched,
    or if the graph is wrong or incomplete. `eager` is the eager run that the target was compared
    with, if it is not the eager run of the check. `wrong_part` is the pass after which the target
    is wrong, if attribution found one. `died` says how a process died during a comparison, in any
    run. `rows` show both runs side by side, if they differ. `untested` says what of the user's
    code the verdict does not cover.
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
    untested: str = ""

    def without_tensors(self) -> TargetResult:
        """As `EagerResult.without_tensors`."""
        return replace(self, observation=None, eager=None)

    @property
    def violated(self) -> bool:
        """True if the target violates its contract in both of two runs."""
        return bool(self.violations)

    @property
    def notes(self) -> list[Violation]:
        """All differences that only graphs show."""
        return [note for report in self.reports.values() for note in report.notes]

    @property
    def verdict(self) -> Verdict:
        """The verdict on the target: that of its worst report.

        Only oracles on results can leave it undecided: an oracle on graphs that is unknown does not
        change the verdict.
        """
        if any(report.differences for report in self.reports.values()):
            return Verdict.VIOLATED if self.violated else Verdict.DOCUMENTED
        verdicts = [
            report.verdict for name, report in self.reports.items() if name not in NOT_RESULTS
        ]
        return min(verdicts, key=FROM_WORST.index, default=Verdict.NOT_APPLICABLE)

    @property
    def judged(self) -> bool:
        """True if all results of the target were compared with eager.

        A layer upstream of the user's code that is wrong counts as compared, too.
        """
        return self.inherits or self.verdict not in (Verdict.UNKNOWN, Verdict.NOT_APPLICABLE)

    @property
    def inherits(self) -> bool:
        """True if a layer upstream of the user's code is wrong."""
        return any(report.inherited for report in self.reports.values())


# The exit statuses of a check, beside 0.
DIFFERS, NOTHING_JUDGED = 1, 4


@dataclass(frozen=True, slots=True)
class Check:
    """The outcome of a check of `name`.

    `notes` say what was changed to make the function comparable.
    """

    eager: EagerResult
    results: Mapping[str, TargetResult]
    notes: Sequence[str] = ()
    name: str = ""

    def __repr__(self) -> str:
        verdicts = (f"{target} {it.verdict.value}" for target, it in self.results.items())
        return f"<Check {self.name}: {', '.join(verdicts)}>"

    def __bool__(self) -> bool:
        raise TypeError("use .violated of a check, or aliasproof.assert_equivalent in a test")

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

        It is 4, too, if a process died and no violation explains that. A documented difference is
        no violation. With `strict`, notes count as violations.
        """
        if self.violated or (strict and any(result.notes for result in self.results.values())):
            return DIFFERS
        if any(result.died for result in self.results.values()):
            return NOTHING_JUDGED
        return 0 if any(result.judged for result in self.results.values()) else NOTHING_JUDGED

    def _repr_html_(self) -> str:
        """A table of verdicts for a notebook, followed by the differences of each target."""
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

    def wrong_part(self, result: TargetResult) -> str:
        """Where a target is first wrong. If it is wrong like an earlier row, that row says it."""
        earlier = self.wrong_like(result)
        return (result if earlier is None else self.results[earlier]).wrong_part

    def wrong_like(self, result: TargetResult) -> str | None:
        """The earlier target that already shows all violations of this one; None if none does."""
        earlier = {self.already_in(result, violation) for violation in result.violations}
        return earlier.pop() if len(earlier) == 1 else None

    def already_in(self, result: TargetResult, violation: Violation) -> str | None:
        """The earliest target that `result.target` builds on and that already shows the difference.

        None if there is none, or if it was not checked.
        """
        earlier = None if result.after is None else self.results.get(result.after)
        if earlier is None:
            return None
        what = (violation.oracle, violation.kind, violation.place)
        seen = (it for report in earlier.reports.values() for it in report.differences)
        same = next((it for it in seen if (it.oracle, it.kind, it.place) == what), None)
        return None if same is None else self.already_in(earlier, same) or earlier.target
