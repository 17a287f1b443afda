"""`forked`: makes a call in a fork of this process, so that its death is an answer.

For a process that has run no program: what ran before would run on in a fork, and its threads would
not. A fork takes milliseconds, and inherits the mends, the limits and the modules of this process.
"""

from __future__ import annotations

import faulthandler
import os
import re
import signal
import tempfile
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO, NoReturn

from aliasproof.programs.errors import (
    InternalError,
    OutOfMemory,
    Rejected,
    UserError,
    require_sound_process,
)
from aliasproof.trials import isolation, time_limit
from aliasproof.trials.isolation import (
    OUT_OF_MEMORY,
    PREPARATION,
    Death,
    Frame,
    Outcome,
    Raised,
    Returned,
)

# The exit status of a worker in which a program asked for status 0: a pool takes a worker that ends
# with 0 for one that has done its work.
ZERO = 72
# The exit status of a process that could allocate no more memory.
NO_MEMORY = 73
# The kinds of violations start so whose target ends its process.
DEATHS = ("dies", "hangs", OUT_OF_MEMORY)
POLL = 0.05  # seconds between two looks at a fork that does not answer
# Frames of these folders are on every stack, and say nothing about where it ended.
_HARNESS = tuple(str(Path(__file__).parents[1] / room) for room in ("trials", "campaigns"))


def forked(call: Callable[[], object]) -> Outcome:
    """What the call returns or raises in a fork, or how it ends that process."""
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
            with suppress(ProcessLookupError):  # with all that it started
                os.killpg(pid, signal.SIGKILL)


def kind_of_end(exit_code: int) -> str:
    """How a process ended, as the kind of a violation. Negative for a signal."""
    if exit_code == -time_limit.HANGS:
        return "hangs"
    if exit_code == NO_MEMORY:
        return OUT_OF_MEMORY
    if exit_code >= 0:
        return f"dies with exit status {0 if exit_code == ZERO else exit_code}"
    return f"dies of signal {-exit_code}"


# --- this side ------------------------------------------------------------------------------------


def _outcome(pid: int, pipe: Connection, stack: IO[str]) -> Outcome:
    step, outcome = PREPARATION, None
    with suppress(EOFError, OSError):  # it has ended
        while outcome is None:
            # A process that the call started may hold the pipe open.
            if not pipe.poll(POLL) and _has_ended(pid):
                break
            if pipe.poll():
                message = pipe.recv()
                if isinstance(message, Returned | Raised):
                    outcome = message
                else:
                    step = message.name
    if outcome is not None:
        with suppress(ProcessLookupError):  # nothing is left to do for it
            os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    return outcome or Death(kind_of_end(os.waitstatus_to_exitcode(status)), step, "", _read(stack))


def _has_ended(pid: int) -> bool:
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _read(stack: IO[str]) -> tuple[Frame, ...]:
    """The Python frames of a process that ended, the innermost first, as far as they tell."""
    stack.seek(0)
    found = re.findall(r'^  File "(.*)", line (\d+) in (.*)$', stack.read(), re.MULTILINE)
    return tuple(
        Frame(_short(file), int(line), function)
        for file, line, function in found
        if not file.startswith(_HARNESS)
    )


def _short(file: str) -> str:
    """The file without the folder of the packages, which differs between machines."""
    return re.sub(r"^.*/(site-packages|dist-packages)/", "", file)


# --- the fork -------------------------------------------------------------------------------------


def _answer(call: Callable[[], object], pipe: Connection, stack: IO[str]) -> NoReturn:
    """Make the call, send what it gives, and end."""
    status = 1
    try:
        os.setsid()
        isolation.die_with_parent()
        # Whoever asks this process to end means just that.
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        faulthandler.enable(stack, all_threads=False)
        isolation.tell_steps(pipe)
        pipe.send(_made(call))
    except SystemExit as exit_:
        status = exit_.code if isinstance(exit_.code, int) else int(exit_.code is not None)
    except OutOfMemory:
        status = NO_MEMORY
    finally:  # a fork must never go on as the process that it was forked from
        os._exit(status)


def _made(call: Callable[[], object]) -> Outcome:
    try:
        return Returned(call())
    except (UserError, Rejected, InternalError) as error:
        return Raised(error)
    except Exception as error:  # noqa: BLE001 - the other side reports it
        require_sound_process(error)
        return Raised(InternalError(f"{type(error).__name__}: {error}"))
