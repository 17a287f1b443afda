"""Runs the programs in processes that may die, and makes the table."""

from __future__ import annotations

import collections
from collections.abc import Sequence
from dataclasses import dataclass

from aliasproof.processes.isolation import Limits
from aliasproof.processes.outcome import Death, Outcome, Raised, Returned
from benchmarks.sharing import beside_eager
from benchmarks.sharing.beside_eager import MODES, SharingAnswer, SharingResult
from benchmarks.tables import Table
from benchmarks.worker_processes import Key, WorkerCalls, require_known

BACKENDS = ("aot_eager", "aliasproof")
LIMITS = Limits(seconds=120.0, nbytes=6 * 2**30)
CALLS = WorkerCalls(beside_eager.__name__, "prepare", "named_result", LIMITS, renewal=50)


@dataclass(frozen=True, slots=True)
class SharingTable:
    """The results of all programs."""

    results: Sequence[SharingResult]

    def tables(self) -> list[Table]:
        """The answers by backend and mode; then a line for each program that is not right."""
        rows, notes = [], []
        for backend in BACKENDS:
            for mode in MODES:
                results = [
                    result
                    for result in self.results
                    if result.backend == backend and result.mode == mode
                ]
                counts = collections.Counter(result.answer for result in results)
                rows.append((f"{backend}, {mode}", *(str(counts[key]) for key in SharingAnswer)))
                notes += _lines(f"{backend}, {mode}", results)
        number = len({result.program for result in self.results})
        title = f"sharing: {number} programs whose inputs share memory, compared with eager"
        return [Table(title, ("backend, mode", *SharingAnswer), rows, notes)]


def _lines(title: str, results: Sequence[SharingResult]) -> list[str]:
    """What is not right, the worst first."""
    worst_first = (SharingAnswer.WRONG, SharingAnswer.RAISES, SharingAnswer.BITS)
    lines = [
        f"  {answer}: {result.program}: {result.differences[0]}"
        for answer in worst_first
        for result in results
        if result.answer == answer
    ]
    return ["", f"{title}: {len(lines)} not right", *lines] if lines else []


def measure(names: Sequence[str] = (), seed: int = 0) -> SharingTable:
    """Compare these programs with eager; all of them, if none is given.

    The seed decides the values, and the order of the calls. Raises `UserError` for unknown names.
    """
    known = beside_eager.programs()
    require_known(names, known, "program", "sharing")
    keys = [
        (name, backend, mode) for name in names or known for backend in BACKENDS for mode in MODES
    ]
    results: dict[Key, SharingResult] = {}
    for key, outcome in CALLS.outcomes({key: (*key, seed) for key in keys}):
        results[key] = result = _result(key, outcome)
        print(f"{len(results)} of {len(keys)}: {', '.join(key)}: {result.answer}", flush=True)
    return SharingTable([results[key] for key in keys])


def _result(key: Key, outcome: Outcome) -> SharingResult:
    """The result of a call to `named_result` for this program, backend and mode."""
    if isinstance(outcome, Raised):
        raise outcome.error  # of this benchmark, since what programs raise is a result
    if isinstance(outcome, Death):
        text = f"{outcome.step}: {outcome.describe()}"
        program, backend, mode = key
        return SharingResult(program, backend, mode, str(SharingAnswer.RAISES), [text])
    assert isinstance(outcome, Returned)
    result: SharingResult = outcome.value
    return result
