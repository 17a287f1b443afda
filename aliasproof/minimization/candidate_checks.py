"""A reduction on several workers, and the checks whether a candidate is interesting.

A check runs in isolated processes, or is a script. Several threads call it at once, one per worker.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import os
import queue
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Protocol, TextIO

from aliasproof.ir.errors import InternalError, UserError, shown
from aliasproof.ir.printing import inputs_source, source
from aliasproof.ir.program import Program
from aliasproof.ir.python_program import AnyProgram, P, PythonProgram
from aliasproof.ir.serialization import dumps
from aliasproof.ir.stored_text import read_text, write_text, writing
from aliasproof.processes.interrupts import raise_interrupt, signal_handler
from aliasproof.processes.isolation import CPU, Isolated, Limits
from aliasproof.processes.outcome import Death, Outcome, Raised, Returned
from aliasproof.reduction.program_steps import PROGRAM
from aliasproof.reduction.reducer import Predicate, Problem, Reducer, evaluate_ahead
from aliasproof.reduction.syntax_passes import PYTHON

if TYPE_CHECKING:
    from aliasproof.campaigns.failure.failure import Kept
    from aliasproof.minimization.minimize_python import KeptPython

# A name, since the function runs in other processes.
CALL = "operator:call"
_LONGEST_WAIT = 0.05  # seconds between two checks of limits


class CandidateCheck(Protocol):
    """Grades a candidate: 0 if it is not interesting. Any thread may call it."""

    def __call__(self, candidate: Any, /) -> int: ...

    def stop(self) -> None:
        """Cancel all running checks."""


@dataclass(slots=True)
class _Worker:
    """A process, and whether its preparation has ended."""

    process: Isolated
    prepared: bool = False


class Stopped(Exception):
    """A check was cancelled, since the reduction ends."""


@dataclass(slots=True)
class TargetCheck:
    """Tries candidates on a target, each in a process that may die or hang.

    `preparation` is the name of a function and its arguments: each process calls it first.
    `mistakes` counts candidates on which aliasproof itself failed; they are not interesting.
    """

    kept: Kept | KeptPython
    preparation: tuple[str, *tuple[object, ...]]
    limits: Limits
    device: str = CPU
    mistakes: int = 0
    _idle: queue.SimpleQueue[_Worker] = field(default_factory=queue.SimpleQueue)
    _stopping: threading.Event = field(default_factory=threading.Event)

    @contextlib.contextmanager
    def at_work(self, workers: int) -> Iterator[None]:
        """Start processes, and end them when the context ends."""
        for _ in range(workers):
            self._idle.put(self._new_worker())
        try:
            yield
        finally:
            self.stop()
            # Each thread returns its worker as soon as it sees the flag.
            for _ in range(workers):
                self._idle.get().process.stop()

    def stop(self) -> None:
        self._stopping.set()

    def _new_worker(self) -> _Worker:
        worker = _Worker(Isolated(self.limits, self.device))
        worker.process.call(*self.preparation)
        return worker

    def __call__(self, candidate: AnyProgram) -> int:
        worker = self._idle.get()
        try:
            if not worker.prepared:
                prepared = self._await_outcome(worker.process)
                if isinstance(prepared, Raised):
                    raise prepared.error
                if isinstance(prepared, Death):
                    worker, ended = self._new_worker(), prepared.describe()
                    raise UserError(f"a process that was to try candidates ended: {ended}")
                worker.prepared = True
            worker.process.call(CALL, self.kept.grade, candidate)
            outcome = self._await_outcome(worker.process)
            if isinstance(outcome, Death):
                worker = self._new_worker()
                return self.kept.grade_of_death(outcome)
            if isinstance(outcome, Returned):
                grade: int = outcome.value
                return grade
            self.mistakes += isinstance(outcome.error, InternalError)
            return 0
        finally:
            self._idle.put(worker)

    def _await_outcome(self, process: Isolated) -> Outcome:
        while (outcome := process.outcome()) is None:
            if self._stopping.is_set():
                raise Stopped
            wait(process.waitable, _LONGEST_WAIT)
        return outcome


@dataclass(frozen=True, slots=True)
class ScriptCheck:
    """Runs a script of the user, as C-Reduce does: a candidate is interesting at exit status 0.

    The script runs in a new folder, with `program.py` and `program.json` as arguments. After
    `seconds`, it is killed with all processes that it started.
    """

    script: Path
    seconds: float
    _stopping: threading.Event = field(default_factory=threading.Event)

    def stop(self) -> None:
        self._stopping.set()

    def __call__(self, candidate: Program) -> int:
        with tempfile.TemporaryDirectory(prefix="aliasproof-") as folder:
            for name, text in (
                ("program.py", file_source(candidate)),
                ("program.json", dumps(candidate)),
            ):
                (Path(folder) / name).write_text(text, encoding="utf-8")
            process = subprocess.Popen(
                [str(self.script.resolve()), "program.py", "program.json"],
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            try:
                return int(self._status(process) == 0)
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def _status(self, process: subprocess.Popen[bytes]) -> int | None:
        """The exit status; None after the time limit."""
        deadline = time.monotonic() + self.seconds
        while time.monotonic() < deadline:
            if self._stopping.is_set():
                raise Stopped
            with contextlib.suppress(subprocess.TimeoutExpired):
                return process.wait(_LONGEST_WAIT)
        return None


def file_source(program: AnyProgram) -> str:
    """A Python file; for a `Program`, with its inputs, as `aliasproof check` takes it."""
    if isinstance(program, PythonProgram):
        return program.source
    head = "import torch\n\naten = torch.ops.aten\n\n\n"
    return f"{head}{source(program)}\n\n{inputs_source(program)}"


# --- remembered checks ----------------------------------------------------------------------------
#
# `RememberedCheck` and `RepeatedCheck` are thread-safe, as the checks that they wrap.


@dataclass(slots=True)
class RememberedCheck:
    """Checks each program once, and immediately appends its grade to a file.

    A reduction makes the same checks in the same order, so a command that resumes reuses the cached
    grades and continues where it stopped. `remembered` counts the reused grades. The first line of
    the file describes the check. Without a file, grades are cached only in this process.
    """

    check: CandidateCheck
    answers: dict[str, int] = field(default_factory=dict)
    remembered: int = 0
    _file: TextIO | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @classmethod
    @contextlib.contextmanager
    def with_file(
        cls, check: CandidateCheck, path: Path | None, question: Mapping[str, object]
    ) -> Iterator[RememberedCheck]:
        """Read the grades in a file, and append to it until the context ends.

        Raises `UserError` if they are of another check, or if the file cannot be written.
        """
        if path is None:
            yield cls(check)
            return
        answers = _answers_of(path, question) if path.exists() else {}
        with writing(f"--resume {path}"):
            # The file is rewritten: a killed process may have left a partial line.
            lines = [json.dumps(question), *(f"{digest} {it}" for digest, it in answers.items())]
            write_text(path, "\n".join(lines) + "\n")
            file = path.open("a", encoding="utf-8")
        with file:
            yield cls(check, answers, _file=file)

    def __call__(self, candidate: AnyProgram, /) -> int:
        text = dumps(candidate.renamed()) if isinstance(candidate, Program) else candidate.source
        digest = hashlib.sha256(text.encode()).hexdigest()
        known = self.answers.get(digest)
        if known is not None:
            self.remembered += 1
            return known
        grade = self.check(candidate)
        with self._lock:
            self.answers[digest] = grade
            if self._file is not None:
                self._file.write(f"{digest} {grade}\n")
                self._file.flush()
        return grade

    def stop(self) -> None:
        self.check.stop()


def _answers_of(path: Path, question: Mapping[str, object]) -> dict[str, int]:
    first, _, rest = read_text(path).partition("\n")
    try:
        asked = json.loads(first)
    except (ValueError, RecursionError) as error:
        raise UserError(f"--resume {path}: this is no file of answers of a reduction") from error
    if asked != json.loads(json.dumps(question)):
        other = asked if isinstance(asked, dict) else {}
        differing = [key for key in question if other.get(key) != question[key]] or list(question)
        raise UserError(
            f"--resume {path}: its answers are to another question, with"
            f" {', '.join(f'{key} {shown(other.get(key))}' for key in differing)}; name a new file"
        )
    lines = (line.split(" ") for line in rest.splitlines())
    # The last line may be partial.
    return {it[0]: int(it[1]) for it in lines if len(it) == 2 and it[1].isdecimal()}


@dataclass(slots=True)
class RepeatedCheck:
    """Checks each program `times` times: it is interesting if all runs find it interesting.

    A program that is interesting only in some runs is flaky. If the first program is flaky, one
    interesting run suffices for a candidate.
    """

    check: CandidateCheck
    times: int
    flaky: bool = False

    def showing(self, program: AnyProgram) -> int:
        """In how many runs a program is interesting."""
        return sum(self.check(program) > 0 for _ in range(self.times))

    def __call__(self, candidate: AnyProgram, /) -> int:
        answers = (self.check(candidate) for _ in range(self.times))
        if self.flaky:
            return next(filter(None, answers), 0)
        shown = list(itertools.takewhile(bool, answers))
        return min(shown) if len(shown) == self.times else 0

    def stop(self) -> None:
        self.check.stop()


# --- the reduction --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Minimized(Generic[P]):
    """The smallest program that was found, and its cost.

    `again` is the number of further runs in which it was interesting; None if there were none.
    """

    program: P
    original: P
    reducer: Reducer[P]
    seconds: float
    interrupted: bool
    again: int | None = None

    @property
    def grade(self) -> int:
        """The grade of the program: a larger one is a better failure."""
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

    The result does not depend on the number of workers. Ctrl-C and SIGTERM end the reduction with
    the best program so far. `listener` is called before the first candidate and after each one.
    `again` is called with the result at the end.
    """
    problem: Problem[Any] = PROGRAM if isinstance(program, Program) else PYTHON
    started, interrupted, showing = time.monotonic(), False, None
    with ThreadPoolExecutor(workers) as executor:
        several = evaluate_ahead(executor, workers)

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
            check.stop()  # cancels the checks ahead
    seconds = time.monotonic() - started
    best: P = problem.canonical(reducer.current)
    return Minimized(best, program, reducer, seconds, interrupted, showing)
