"""`minimize`: reduce a program as long as a check finds it interesting, on several workers."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Generic, Protocol

from aliasproof.ir.program import Program
from aliasproof.ir.python_program import P
from aliasproof.processes.interrupts import raise_interrupt, signal_handler
from aliasproof.reduction.program_steps import PROGRAM
from aliasproof.reduction.reducer import Predicate, Problem, Reducer, ahead
from aliasproof.reduction.syntax_passes import PYTHON


class CandidateCheck(Protocol):
    """Says whether a candidate is interesting, in any thread."""

    def __call__(self, candidate: Any, /) -> int: ...

    def stop(self) -> None:
        """Give up all checks that are under way."""


@dataclass(frozen=True, slots=True)
class Minimized(Generic[P]):
    """The smallest program that was found, and what it cost.

    `again` says in how many further runs it was interesting, if that was asked.
    """

    program: P
    original: P
    reducer: Reducer[P]
    seconds: float
    interrupted: bool
    again: int | None = None

    @property
    def grade(self) -> int:
        """How good a failure the program is, as the check says it."""
        return self.reducer.grade


def minimize(
    program: P,
    check: CandidateCheck,
    workers: int,
    listener: Callable[[Reducer[P]], None],
    best_grade: int = 1,
    again: Callable[[P], int] | None = None,
) -> Minimized[P]:
    """Reduce a program that the check finds interesting.

    The result does not depend on the number of workers. Ctrl-C and SIGTERM end it with the best
    program so far. `listener` is called before the first candidate and after each one. `again` is
    asked about the result at the end.
    """
    problem: Problem[Any] = PROGRAM if isinstance(program, Program) else PYTHON
    started, interrupted, showing = time.monotonic(), False, None
    with ThreadPoolExecutor(workers) as executor:
        several = ahead(executor, workers)

        def evaluate(ask: Predicate[P], candidates: Iterable[P]) -> Generator[int, None, None]:
            with contextlib.closing(several(ask, candidates)) as grades:
                for grade in grades:
                    listener(reducer)
                    yield grade

        reducer = Reducer(problem, program, check, evaluate, best_grade=best_grade)
        try:
            with signal_handler(signal.SIGTERM, lambda number, frame: raise_interrupt()):
                listener(reducer)
                reducer.run()
                listener(reducer)
                showing = None if again is None else again(reducer.current)
        except KeyboardInterrupt:
            interrupted = True
        finally:
            check.stop()  # what was asked ahead need not end
    seconds = time.monotonic() - started
    best: P = problem.canonical(reducer.current)
    return Minimized(best, program, reducer, seconds, interrupted, showing)
