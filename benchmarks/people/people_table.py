"""Runs the functions in processes that may die, and makes the tables."""

from __future__ import annotations

import collections
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from aliasproof.processes.isolation import Limits
from aliasproof.processes.outcome import Death, Raised, Returned
from benchmarks.people import people_check
from benchmarks.people.people_check import GivenAnswer, PlantedAnswers
from benchmarks.people.people_functions import names as all_names
from benchmarks.people.planted_kinds import KINDS
from benchmarks.people.planted_passes import RIGHT_PASSES
from benchmarks.tables import Table
from benchmarks.worker_processes import Key, WorkerCalls, require_known

LIMITS = Limits(seconds=600.0, nbytes=6 * 2**30)
CALLS = WorkerCalls(people_check.__name__, "begin", "answer", LIMITS, renewal=20)
TABLES = ("as it is", "right passes", "wrong passes")  # without the shorter forms for tests
WRONG_PASSES = ("wrong passes", "a wrong pass")
WRONG = "WRONG"


@dataclass(frozen=True, slots=True)
class PeopleTable:
    """The answers about all functions. `deaths` has a line for each call that gave no answer."""

    given: Sequence[GivenAnswer]
    right: Sequence[GivenAnswer]
    planted: Sequence[PlantedAnswers]
    deaths: Sequence[str] = ()

    def tables(self) -> list[Table]:
        """Functions by target; right passes; kinds of wrong passes. Below, what is not as it is."""
        return [self._by_function(), self._by_right_pass(), self._by_kind()]

    def _by_function(self) -> Table:
        verdicts: dict[str, dict[str, str]] = collections.defaultdict(dict)
        for answer in self.given:
            verdicts[answer.function][answer.target] = answer.verdict
        targets = list(dict.fromkeys(answer.target for answer in self.given))
        rows = [
            (function, *(by_target.get(target, "-") for target in targets))
            for function, by_target in verdicts.items()
        ]
        notes = [*_counts(self.given), *_reasons(self.given), *self.deaths]
        return Table(f"people: {len(rows)} functions", ("function", *targets), rows, notes)

    def _by_right_pass(self) -> Table:
        rows = []
        for name in [one.__name__ for one in RIGHT_PASSES]:
            verdicts = [one.verdict for one in self.right if one.target.endswith(f":{name}")]
            wrong, known = verdicts.count(WRONG), verdicts.count("holds")
            rows.append((name, str(len(verdicts)), str(known), str(wrong)))
        columns = ("right pass", "functions", "hold", "wrong")
        return Table("people: right passes", columns, rows, [*_reasons(self.right)])

    def _by_kind(self) -> Table:
        rows = []
        answers = [answer for planted in self.planted for answer in planted.answers]
        for kind in KINDS:
            of_kind = [answer for answer in answers if answer.kind == kind]
            flagged, named = (
                sum(answer.flagged for answer in of_kind),
                sum(answer.flagged and answer.named for answer in of_kind),
            )
            missed = len(of_kind) - flagged
            rows.append((kind, *map(str, (len(of_kind), flagged, named, missed))))
        notes = list(self._misses())
        unusable = [planted for planted in self.planted if planted.unusable]
        notes += [f"no passes for {planted.function}: {planted.unusable}" for planted in unusable]
        columns = ("wrong pass", "changes the result", "flagged", "named", "missed")
        return Table("people: planted passes", columns, rows, notes)

    def _misses(self) -> Iterator[str]:
        for planted in self.planted:
            for answer in planted.answers:
                if answer.flagged and answer.named:
                    continue
                what = "flagged, not named" if answer.flagged else f"missed ({answer.verdict})"
                graph = "" if answer.here else "; not in the graph that check gives to the pass"
                yield (
                    f"  {what}: {answer.function}, {answer.kind} at {answer.site}: the plain run"
                    f" differs in {answer.changes}{graph}{''.join(f'; {x}' for x in answer.lines)}"
                )


def _counts(answers: Sequence[GivenAnswer]) -> Iterator[str]:
    for target in dict.fromkeys(answer.target for answer in answers):
        counts = collections.Counter(one.verdict for one in answers if one.target == target)
        yield f"{target}: " + ", ".join(f"{count} {verdict}" for verdict, count in counts.items())


def _reasons(answers: Sequence[GivenAnswer]) -> Iterator[str]:
    """What is wrong or not judged, and why."""
    for answer in answers:
        if answer.lines:
            reason = "; ".join(answer.lines)
            yield f"  {answer.verdict}: {answer.function}, {answer.target}: {reason}"


def measure(names: Sequence[str] = (), passes: Sequence[str] = TABLES) -> PeopleTable:
    """Check these functions, or all of them: as they are, under right and under wrong passes.

    Raises `UserError` for unknown names.
    """
    known = all_names()
    require_known(names, known, "function", "people")
    keys = [(name, what) for what in passes for name in names or known]
    answers: dict[Key, Any] = {}
    deaths = []
    for key, outcome in CALLS.outcomes({key: key for key in keys}):
        if isinstance(outcome, Raised):
            deaths.append(f"  {', '.join(key)}: {outcome.error!r}")
        elif isinstance(outcome, Death):
            deaths.append(f"  {', '.join(key)}: {outcome.step} {outcome.describe()}")
        else:
            assert isinstance(outcome, Returned)
            answers[key] = outcome.value
        print(f"{len(answers)} of {len(keys)}: {', '.join(key)}", flush=True)
    given, right = (
        [one for key in keys if key[1] in kinds for one in answers.get(key, ())]
        for kinds in (("as it is", "as it is, in graphs"), ("right passes",))
    )
    wrong = [answers[key] for key in keys if key[1] in WRONG_PASSES and key in answers]
    return PeopleTable(given, right, wrong, deaths)
