"""The documented limitations that a campaign meets, each with its smallest program.

How to read a row: one limitation, that is a clause of a contract. *programs* are those that differ
from eager by it, and *differs* is what differs most often. `python -m benchmarks.limitations`
prints the page docs/limitations.md, which has the programs.

Each program that differs from eager in any result is also given to `check`. *flagged* counts those
that it calls violated or documented; it must be all of them.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch

from aliasproof.checking import check
from aliasproof.generators.features import swarm
from aliasproof.generators.strategies import sample
from aliasproof.oracles.contract import Contract
from aliasproof.oracles.judge import judge
from aliasproof.oracles.verdict import Limitation, Verdict
from aliasproof.programs.ordinary_inputs import ordinary_inputs
from aliasproof.programs.ordinary_syntax import ordinary_source, with_short_names
from aliasproof.programs.program import Program
from aliasproof.reduction.reducer import Reducer
from aliasproof.reduction.simplicity import simplicity
from aliasproof.reports.wording import shortened
from aliasproof.targets.registry import target as target_named
from aliasproof.trials.examination import Examination, examine
from aliasproof.trials.trial import Case
from benchmarks.tables import Table

TARGETS = (
    "functionalize",
    "fx-reinplace",
    "aot",
    "aot-epilogue",
    "reference",
    "reference-copy",
)
SECONDS = 300.0
FIRST_SEED = 12_000  # far from the seeds of other benchmarks
SHARD = 25


@dataclass(frozen=True, slots=True)
class LimitationRow:
    """One limitation: the targets and programs that meet it, and the smallest program as text."""

    name: str
    reason: str
    programs: dict[str, int]
    differs: str
    inputs: str
    program: str

    @property
    def count(self) -> int:
        """Programs of all targets."""
        return sum(self.programs.values())


@dataclass(frozen=True, slots=True)
class Share:
    """Programs of one target that differ from eager, and those of them that `check` flags."""

    target: str
    programs: int
    differing: int
    flagged: int
    violated: int


@dataclass(frozen=True, slots=True)
class LimitationFigures:
    """What was met in this time, in seconds of drawing and judging."""

    seconds: float
    torch: str
    rows: Sequence[LimitationRow]
    shares: Sequence[Share]

    def tables(self) -> list[Table]:
        flagged = sum(share.flagged for share in self.shares)
        differing = sum(share.differing for share in self.shares)
        return [
            Table(
                f"limitations: met in {self.seconds:.0f} s, torch {self.torch}",
                ("limitation", "programs", "differs", "targets"),
                [
                    (
                        row.name,
                        str(sum(row.programs.values())),
                        row.differs,
                        ", ".join(row.programs),
                    )
                    for row in self.rows
                ],
            ),
            Table(
                "limitations: programs that differ from eager",
                ("target", "programs", "differ", "flagged by check", "of these violated"),
                [
                    (
                        share.target,
                        *map(str, (share.programs, share.differing, share.flagged)),
                        str(share.violated),
                    )
                    for share in self.shares
                ],
                [f"{flagged} of {differing} are flagged."],
            ),
        ]


@dataclass(slots=True)
class _Met:
    """A limitation as it is met: programs by target, what differs, and the smallest program."""

    target: str
    smallest: Program
    programs: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)


def measure(
    seconds: float = SECONDS, targets: Sequence[str] = TARGETS, least: int = 1
) -> LimitationFigures:
    """Draw programs for this time, an equal part of it per target; then reduce.

    `least` is the number of programs per target that are drawn in any case.
    """
    met: dict[Limitation, _Met] = {}
    shares = [_draw(name, seconds / len(targets), met, least) for name in targets]
    rows = [_row(limitation, found) for limitation, found in met.items()]
    rows.sort(key=lambda row: -row.count)
    return LimitationFigures(seconds, str(torch.__version__), rows, shares)


def _draw(name: str, seconds: float, met: dict[Limitation, _Met], least: int) -> Share:
    start, count, differing = time.monotonic(), 0, 0
    verdicts: Counter[Verdict] = Counter()
    for program in _programs():
        if count >= least and time.monotonic() - start > seconds:
            break
        count += 1
        found = examine(Case.of(program), target_named(name), attribute=False)
        _note(name, program, found, met)
        if _differs(found):
            differing += 1
            verdicts[check(program, targets=[name]).results[name].verdict] += 1
    violated = verdicts[Verdict.VIOLATED]
    return Share(name, count, differing, violated + verdicts[Verdict.DOCUMENTED], violated)


def _programs() -> Iterator[Program]:
    seed = FIRST_SEED
    while True:
        yield from sample(swarm(seed), seed, SHARD)
        seed += 1


def _differs(found: Examination) -> bool:
    """Whether any result differs, by a contract that excepts nothing."""
    trial = found.trial
    if trial is None:
        return False
    return bool(judge(Contract(), trial.eager, trial.target, trial.trace).violations)


def _note(name: str, program: Program, found: Examination, met: dict[Limitation, _Met]) -> None:
    first: dict[Limitation, str] = {}
    for documented in found.documented:
        shown = documented.difference
        first.setdefault(documented.limitation, f"{shown.oracle}: {shown.kind}")
    for limitation, kind in first.items():
        known = met.setdefault(limitation, _Met(name, program))
        known.programs[name] += 1
        known.kinds[kind] += 1
        # A program with a violation would be reduced to another limitation, if to any.
        smaller = simplicity(program) < simplicity(known.smallest)
        if known.target == name and smaller and not found.violations:
            known.smallest = program


def _row(limitation: Limitation, met: _Met) -> LimitationRow:
    target = target_named(met.target)

    def shows(program: Program) -> int:
        """2 if it shows this limitation and nothing else, 1 if it shows it, 0 if not."""
        found = examine(Case.of(program), target, attribute=False)
        seen = {documented.limitation for documented in found.documented}
        if limitation not in seen or found.violations:
            return 0
        return 2 if seen == {limitation} else 1

    program = met.smallest
    grade = shows(program)
    if grade:
        program = Reducer(program, shows, grade=grade).run()
    program = with_short_names(program)
    return LimitationRow(
        limitation.name,
        limitation.reason,
        dict(met.programs),
        shortened(met.kinds.most_common(1)[0][0]),
        ordinary_inputs(program, near=True),
        ordinary_source(program, near=True),
    )


# --- the page -------------------------------------------------------------------------------------

HEAD = """# Limitations

A *limitation* is a difference from eager that the documentation of a target states. `aliasproof check` shows it as *documented*, with
the same evidence as a violation and with its source; a campaign counts it and makes no finding of it. `aliasproof targets` prints all
clauses of all contracts. These are the limitations that random programs met in {seconds:.0f} seconds (torch {torch}, {programs} programs).

`python -m benchmarks.limitations > docs/limitations.md` makes this page anew. Each program can be saved as a file and given to
`aliasproof check FILE.py --target TARGET`.

Of {differing} programs that differ from eager in any result, `check` flags {flagged}: {violated} as violated, the others as documented.
"""  # noqa: E501 - lines of a page


def page(figures: LimitationFigures) -> str:
    """The page docs/limitations.md."""
    head = HEAD.format(
        seconds=figures.seconds,
        torch=figures.torch,
        programs=f"{sum(share.programs for share in figures.shares):,}",
        differing=sum(share.differing for share in figures.shares),
        flagged=sum(share.flagged for share in figures.shares),
        violated=sum(share.violated for share in figures.shares),
    )
    table = ["| limitation | programs | what differs | targets |", "|---|---|---|---|"]
    table += [
        f"| [{row.name}](#{number}) | {row.count} | {row.differs} | {', '.join(row.programs)} |"
        for number, row in enumerate(figures.rows, 1)
    ]
    sections = [
        f'<a id="{number}"></a>\n\n## {row.name}\n\nTarget {next(iter(row.programs))}.'
        f" {row.reason[:1].upper()}{row.reason[1:]}.\n\n"
        f"```python\nimport torch\n\naten = torch.ops.aten\n\n\n{row.inputs.strip()}\n\n\n"
        f"{row.program.strip()}\n```\n"
        for number, row in enumerate(figures.rows, 1)
    ]
    return "\n".join([head, *table, "", *sections])


if __name__ == "__main__":
    from benchmarks.__main__ import measurement_settings

    with measurement_settings():
        found = measure()
    print(page(found), end="")
