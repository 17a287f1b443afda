"""The outcome of a call: it returned, it raised, or it ended its process."""

from __future__ import annotations

import contextlib
import re
import signal
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

from aliasproof.ir.errors import (
    DeviceLost,
    InternalError,
    OutOfMemory,
    Rejected,
    UserError,
    require_sound_process,
)

# --- time limit -----------------------------------------------------------------------------------
#
# The time limit of a program in a worker process: SIGALRM ends the process.
#
# There is no handler, since a handler in Python could not end a loop in C++. The parent sees which
# signal ended the worker, and reports a hang. The kernel's timer is not affected when the clock is
# set.


HANGS = signal.SIGALRM  # the signal that ends a worker whose program takes too long

_seconds = 0.0  # no limit, as in all processes except workers


def set_limit(seconds: float) -> None:
    """Set the limit of this process for one program."""
    global _seconds  # noqa: PLW0603 - one per process, like the timer
    _seconds = seconds


@contextlib.contextmanager
def lowered(seconds: float) -> Iterator[None]:
    """Lower the limit of this process, until the context ends."""
    before = _seconds
    set_limit(min(before, seconds) or seconds)
    try:
        yield
    finally:
        set_limit(before)


def begin(times: float = 1.0) -> None:
    """Start the time limit for a program, or for work that may take `times` as long."""
    signal.setitimer(signal.ITIMER_REAL, times * _seconds)


def end() -> None:
    """Stop the time limit."""
    signal.setitimer(signal.ITIMER_REAL, 0)


# --- outcome --------------------------------------------------------------------------------------


DEVICE_LOST, OUT_OF_MEMORY = "loses its device", "runs out of memory"  # kinds of deaths
# Prefixes of the kinds of violations whose target ends its process.
DEATHS = ("dies", "hangs", OUT_OF_MEMORY)


@dataclass(frozen=True, slots=True)
class Frame:
    """A frame of a Python stack."""

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line} in {self.function}"


@dataclass(frozen=True, slots=True)
class Returned:
    """A call returned this value."""

    value: Any


@dataclass(frozen=True, slots=True)
class Raised:
    """A call raised. An error that is not one of aliasproof's own is an `InternalError`."""

    error: Exception


@dataclass(frozen=True, slots=True)
class Death:
    """A call ended its process, or the process was killed. `kind` says how: 'dies of signal 11'.

    `step` is what the process was doing. `stack` has its Python frames, the innermost first.
    `status` is its exit status, negative for a signal; None if it was killed. `programs` are the
    indices of the programs that were running.
    """

    kind: str
    step: str
    detail: str = ""
    stack: tuple[Frame, ...] = ()
    status: int | None = None
    programs: range = range(0)

    @property
    def hangs(self) -> bool:
        """True if the process was killed because a step took too long."""
        return self.kind == "hangs"

    def describe(self) -> str:
        """How the process ended, for people."""
        return f"{self.kind} ({self.detail})" if self.detail else self.kind

    @property
    def violation(self) -> str:
        """How the process ended, as the kind of a violation in a campaign."""
        if self.status is None:
            return self.kind
        if self.status == -HANGS:
            return "hangs"
        if self.status >= 0:
            return f"dies with exit status {self.status}"
        return f"dies of signal {-self.status}"


Outcome: TypeAlias = Returned | Raised | Death


def death_of(status: int | None, step: str, stack: tuple[Frame, ...] = ()) -> Death:
    """The death of a process with this exit status; None if it lives but closed its pipe."""
    if status is None:
        return Death("closes all its files", step, "", stack, 1)
    if status >= 0:
        return Death(f"exits with status {status}", step, "", stack, status)
    name = signal.Signals(-status).name if -status in set(signal.Signals) else ""
    # The kernel kills a process when the machine is out of memory.
    detail = f"{name}, perhaps out of memory" if -status == signal.SIGKILL else name
    return Death(f"dies of signal {-status}", step, detail, stack, status)


def outcome_here(call: Callable[[], object]) -> Outcome:
    """Make a call in this process. An exception that would end it becomes a `Death`."""
    try:
        try:
            return Returned(call())
        except Exception as error:
            require_sound_process(error)
            raise
    except (UserError, Rejected, InternalError) as error:
        return Raised(error)
    except Exception as error:  # noqa: BLE001 - the parent reports it
        text = "".join(traceback.format_exception(error))
        return Raised(InternalError(f"{type(error).__name__}: {error}\n{text}"))
    except DeviceLost as error:
        return Death(DEVICE_LOST, "", str(error))
    except OutOfMemory:
        return Death(OUT_OF_MEMORY, "")
    except SystemExit as end:
        code = end.code
        status = code if isinstance(code, int) else int(code is not None)
        return Death("raises SystemExit", "", f"sys.exit({code!r})", status=status)
    except BaseException as error:  # noqa: BLE001 - the call must not end this process
        return Death(f"raises {type(error).__name__}", "", repr(error), status=1)


def frames(text: str) -> tuple[Frame, ...]:
    """The frames in a stack that `faulthandler` wrote."""
    lines = re.findall(r'^  File "(.*)", line (\d+) in (.*)$', text, re.MULTILINE)
    return tuple(Frame(file, int(line), function) for file, line, function in lines)
