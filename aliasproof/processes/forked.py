"""`forked`: makes a call in a fork of this process, so that its death is a result of the call.

Only for a process that has run no program: a fork inherits the state of earlier programs, but not
their threads. A fork takes milliseconds, and inherits the patches, limits and modules of this
process.
"""

from __future__ import annotations

import faulthandler
import os
import re
import signal
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO, NoReturn

from aliasproof.processes import isolation
from aliasproof.processes.isolation import PREPARATION, StepBegins
from aliasproof.processes.outcome import Death, Frame, Outcome, death_of, frames, outcome_here

POLL = 0.05  # seconds between two polls of a fork that does not answer
# Frames of these folders are on every stack, so they do not show where the process ended.
_HARNESS = tuple(
    str(Path(__file__).parents[1] / room) for room in ("processes", "judge", "campaigns")
)


def forked(call: Callable[[], object]) -> Outcome:
    """What the call returns or raises in a fork, or how it ends the fork."""
    ours, theirs = Pipe(duplex=False)
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as stack:
        pid = os.fork()
        if pid == 0:
            ours.close()
            _answer(call, theirs, stack)
        theirs.close()
        try:
            return _outcome(pid, ours, stack)
        finally:
            ours.close()
            with suppress(ProcessLookupError):  # with all processes that it started
                os.killpg(pid, signal.SIGKILL)


# --- this side ------------------------------------------------------------------------------------


def _outcome(pid: int, pipe: Connection, stack: IO[str]) -> Outcome:
    step = PREPARATION
    outcome: Outcome | None = None
    at_once = os.WEXITED | os.WNOHANG | os.WNOWAIT  # `waitpid` must still see its end
    with suppress(EOFError, OSError):  # the fork has ended
        while outcome is None:
            # The fork may have ended while a process that it started keeps the pipe open.
            if not pipe.poll(POLL) and os.waitid(os.P_PID, pid, at_once) is not None:
                break
            if pipe.poll():
                message = pipe.recv()
                if isinstance(message, StepBegins):
                    step = message.name
                else:
                    outcome = message
    if outcome is not None:
        with suppress(ProcessLookupError):  # it may have ended already
            os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    outcome = outcome or death_of(os.waitstatus_to_exitcode(status), step)
    if not isinstance(outcome, Death):
        return outcome
    return replace(outcome, kind=outcome.violation, step=step, stack=_read(stack))


def _read(stack: IO[str]) -> tuple[Frame, ...]:
    """The Python frames of a process that ended, the innermost first, without those of _HARNESS."""
    stack.seek(0)
    return tuple(
        # Without the folder of the packages, which differs between machines.
        replace(frame, file=re.sub(r"^.*/(site-packages|dist-packages)/", "", frame.file))
        for frame in frames(stack.read())
        if not frame.file.startswith(_HARNESS)
    )


# --- the fork -------------------------------------------------------------------------------------


def _answer(call: Callable[[], object], pipe: Connection, stack: IO[str]) -> NoReturn:
    """Make the call, send its result, and end."""
    try:
        os.setsid()
        isolation.die_with_parent()
        # Without the handlers of the parent: SIGTERM just ends this process.
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        faulthandler.enable(stack, all_threads=False)
        isolation.tell_steps(pipe)
        pipe.send(outcome_here(call))
    finally:  # a fork must never continue as a copy of its parent
        os._exit(1)
