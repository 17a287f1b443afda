"""Whether a candidate of a reduction is interesting: asked in isolated processes, or of a script.

Both kinds of check are called in several threads at once, one per worker.
"""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from pathlib import Path

from aliasproof.campaigns.failure.failure import Kept
from aliasproof.ir.errors import InternalError, UserError
from aliasproof.ir.printing import inputs_source, source
from aliasproof.ir.program import Program
from aliasproof.ir.serialization import dumps
from aliasproof.minimize_request import MinimizeRequest, Subject
from aliasproof.processes.isolation import Isolated, Limits
from aliasproof.processes.outcome import Death, Outcome, Raised, Returned

# By name: the functions run in the other processes.
ATTEND = "aliasproof.minimize_session:attend"
CALL = "operator:call"
_LONGEST_WAIT = 0.05  # seconds between two looks at limits


@dataclass(slots=True)
class _Worker:
    """A process, and whether its preparation has ended."""

    process: Isolated
    prepared: bool = False


def _not_prepared(outcome: Outcome) -> Exception:
    if isinstance(outcome, Raised):
        return outcome.error
    assert isinstance(outcome, Death)
    return UserError(f"a process that was to try candidates ended: {outcome.describe()}")


class Stopped(Exception):
    """A check was given up, since the reduction ends."""


def outcome_of(process: Isolated, function: str, *arguments: object) -> Outcome:
    """Make a call in a process, and wait for its outcome."""
    process.call(function, *arguments)
    while (outcome := process.outcome()) is None:
        wait(process.waitable, _LONGEST_WAIT)
    return outcome


@dataclass(slots=True)
class TargetCheck:
    """Tries candidates on a target, each in a process that can die or hang.

    `mistakes` counts candidates on which aliasproof itself failed; they are not interesting.
    """

    request: MinimizeRequest
    subject: Subject
    kept: Kept
    limits: Limits
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
            # Each thread puts its worker back as soon as it sees the flag.
            for _ in range(workers):
                self._idle.get().process.stop()

    def stop(self) -> None:
        """Give up all checks that are under way."""
        self._stopping.set()

    def _new_worker(self) -> _Worker:
        worker = _Worker(Isolated(self.limits, self.subject.program.device))
        worker.process.call(ATTEND, self.request, self.subject)
        return worker

    def __call__(self, candidate: Program) -> int:
        worker = self._idle.get()
        try:
            if not worker.prepared:
                prepared = self._await_outcome(worker.process)
                if not isinstance(prepared, Returned):
                    worker = self._new_worker() if isinstance(prepared, Death) else worker
                    raise _not_prepared(prepared)
                worker.prepared = True
            worker.process.call(CALL, self.kept.grade, candidate)
            outcome = self._await_outcome(worker.process)
            if isinstance(outcome, Death):
                worker = self._new_worker()
            return self._grade(outcome)
        finally:
            self._idle.put(worker)

    def _await_outcome(self, process: Isolated) -> Outcome:
        while (outcome := process.outcome()) is None:
            if self._stopping.is_set():
                raise Stopped
            wait(process.waitable, _LONGEST_WAIT)
        return outcome

    def _grade(self, outcome: Outcome) -> int:
        if isinstance(outcome, Returned):
            grade: int = outcome.value
            return grade
        if isinstance(outcome, Raised):
            self.mistakes += isinstance(outcome.error, InternalError)
            return 0
        return self.kept.grade_of_death(outcome)


@dataclass(frozen=True, slots=True)
class ScriptCheck:
    """Asks a script of the user, as C-Reduce does: exit status 0 says that it is interesting.

    The script runs in a new folder, with `program.py` and `program.json` as arguments. After
    `seconds`, it is ended with all that it started.
    """

    script: Path
    seconds: float
    _stopping: threading.Event = field(default_factory=threading.Event)

    def stop(self) -> None:
        """Give up all checks that are under way."""
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


def file_source(program: Program) -> str:
    """A file that `aliasproof check` takes: the program, and its inputs."""
    head = "import torch\n\naten = torch.ops.aten\n\n\n"
    return f"{head}{source(program)}\n\n{inputs_source(program)}"
