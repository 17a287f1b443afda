"""`Isolated`: a process that makes calls for this one. Its death costs one call, and is explained.

The process is forked from a server that has torch imported, which costs milliseconds. For CUDA, it
starts from nothing, since CUDA does not work in a fork of a process that has used it. It runs code
of a user, which may do anything: crash, exit, loop, read a terminal, write to standard output. So

- its standard output is standard error, and its standard input is empty,
- it leads a session of its own, so that it can be ended with all that it started,
- its memory is limited, and so are the seconds of each step of a call (see `step`).

The pipe to it is read by one thread, without locks: Ctrl-C can end a wait at any point, and a
process that is killed leaves nothing behind.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import gc
import itertools
import multiprocessing
import os
import pkgutil
import re
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import forkserver, util
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import IO, Any
from unittest import mock

from aliasproof.processes.interrupts import sigint_deferred, sigint_ignored_by_children
from aliasproof.processes.outcome import Death, Frame, Outcome, death_of, frames, outcome_here

CPU = "cpu"  # as in `aliasproof.ir.devices`, which imports torch
PREPARATION = "aliasproof"  # the step of a call before it names another
# The steps of a trial: a death in the first is the target's, one in the second is ours.
TARGET_STEP, ORACLES_STEP = "the target", "the oracles"
# A path to a socket has at most 103 bytes on some systems, and `multiprocessing` appends 31.
_LONGEST_TEMPORARY = 70
_DUMP_SIGNAL = signal.SIGUSR1  # asks a process for its stack
_DUMP_SECONDS = 0.5  # that it may take to answer


@dataclass(frozen=True, slots=True)
class Limits:
    """What a call may take: seconds for each of its steps, and bytes of memory for its process.

    The memory is what the process allocates after its start. It is limited on Linux only.
    """

    seconds: float
    nbytes: int


@dataclass(frozen=True, slots=True)
class StepBegins:
    """A process says what it does from now on."""

    name: str


def memory_available() -> int:
    """The bytes that processes can take now without ending others."""
    pages = "SC_AVPHYS_PAGES" if "SC_AVPHYS_PAGES" in os.sysconf_names else "SC_PHYS_PAGES"
    free = os.sysconf(pages) * os.sysconf("SC_PAGE_SIZE")
    with contextlib.suppress(OSError):
        # Memory of the file cache is available, too.
        match = re.search(r"MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text())
        return int(match[1]) * 1024 if match else free
    return free


def prepare_environment() -> None:
    """Set what torch reads when it is imported. Workers inherit it."""
    # The warnings of torch's C++ code do not pass through Python's filters.
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    # The server only asks whether there is CUDA. A file of the user may use it in a fork.
    os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")


def start_server(preload: Sequence[str], *, by_fork: bool = False) -> None:
    """Start to import these modules in the server, and return at once.

    With `by_fork`, the server also has what this process has imported, and nothing else of it.
    """
    prepare_environment()
    multiprocessing.set_forkserver_preload(list(preload))
    if len(os.fsencode(tempfile.gettempdir())) > _LONGEST_TEMPORARY:
        with mock.patch.object(tempfile, "tempdir", "/tmp"):  # noqa: S108 - a new folder in it
            util.get_temp_dir()  # it keeps its first answer
    start = _fork_server if by_fork else util.spawnv_passfds
    # The server inherits the handler: Ctrl-C is for this process, which ends the others.
    with sigint_ignored_by_children(), mock.patch.object(util, "spawnv_passfds", start):
        forkserver.ensure_running()


def _fork_server(path: object, args: object, descriptors: Sequence[int]) -> int:
    """Run the server in a fork of this process, with its listener and a pipe. Returns its number.

    `multiprocessing` starts the server by such a call, but in a new interpreter.
    """
    pid = os.fork()
    if pid == 0:
        # Who holds the other end of the pipe keeps the server alive, and others their servers.
        edges = [2, *sorted(descriptors), resource.getrlimit(resource.RLIMIT_NOFILE)[0]]
        for before, after in itertools.pairwise(edges):
            os.closerange(before + 1, after)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        main: Any = forkserver.main  # its stub has other arguments
        try:
            main(*descriptors, forkserver._forkserver._preload_modules)  # type: ignore[attr-defined]
        finally:
            os._exit(0)
    return pid


# --- this side ------------------------------------------------------------------------------------


class Isolated:
    """A process that makes one call at a time. Its death is an outcome of the call."""

    def __init__(self, limits: Limits, device: str = CPU) -> None:
        context: Any = multiprocessing.get_context("forkserver" if device == CPU else "spawn")
        self.limits = limits
        self._pipe, theirs = context.Pipe()
        self._stack = tempfile.NamedTemporaryFile(prefix="aliasproof-", suffix=".stack")  # noqa: SIM115 - until `stop`
        arguments = (theirs, limits.nbytes, self._stack.name, device)
        self._process: BaseProcess = context.Process(
            target=_serve, args=arguments, name="aliasproof worker"
        )
        with sigint_deferred():  # Ctrl-C between fork and note would lose the process
            self._process.start()
        theirs.close()
        self._step, self._since, self._programs = PREPARATION, time.monotonic(), range(0)

    def call(self, function: str, *arguments: object) -> None:
        """Begin a call of a function, given as 'module:name'. The arguments are pickled."""
        self._step, self._since, self._programs = PREPARATION, time.monotonic(), range(0)
        # A process that is dead by now is an outcome, which the next look finds.
        with contextlib.suppress(OSError):
            self._pipe.send((function, arguments))

    def outcome_of(self, function: str, *arguments: object) -> Outcome:
        """Make a call, and wait for its outcome."""
        self.call(function, *arguments)
        while (outcome := self.outcome()) is None:
            wait(self.waitable, max(0.0, self.seconds_left) + 0.01)
        return outcome

    @property
    def waitable(self) -> list[Any]:
        """What `multiprocessing.connection.wait` waits for: something is ready with an outcome."""
        return [self._pipe, self._process.sentinel]

    @property
    def seconds_left(self) -> float:
        """Seconds until the present step is out of time."""
        return self._since + self.limits.seconds - time.monotonic()

    def outcome(self) -> Outcome | None:
        """The outcome of the call; None if it is under way. A `Death` ends the process, too."""
        alive = self._process.is_alive()  # before the look at what it sent until its end
        try:
            while self._pipe.poll():
                message = self._pipe.recv()
                if isinstance(message, Death):
                    return self._bury(message)
                if isinstance(message, range):
                    self._programs = message
                elif isinstance(message, StepBegins):
                    self._step, self._since = message.name, time.monotonic()
                else:
                    outcome: Outcome = message
                    return outcome
        except (EOFError, OSError):  # it has closed its end of the pipe
            return self._death()
        if not alive:
            return self._death()
        return self._hang() if self.seconds_left < 0 else None

    def stop(self) -> None:
        """End the process, and all that it started, at once."""
        pid = self._process.pid
        assert pid is not None
        # Its group exists only after its first instructions; all processes of it end together.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)
        self._process.kill()
        self._process.join()
        self._pipe.close()
        self._stack.close()

    def _death(self) -> Death:
        self._process.join(_DUMP_SECONDS)  # a process that closed its pipe may still live
        death = death_of(self._process.exitcode, self._step, self._frames())
        return self._bury(death)

    def _bury(self, death: Death) -> Death:
        """End the process, and say what it was doing."""
        self.stop()
        return replace(death, step=self._step, programs=self._programs)

    def _hang(self) -> Death:
        pid = self._process.pid
        assert pid is not None
        # The handler is in C, so it answers from an endless loop in C as well.
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, _DUMP_SIGNAL)
        deadline = time.monotonic() + _DUMP_SECONDS
        while not (stack := self._frames()) and time.monotonic() < deadline:
            time.sleep(_DUMP_SECONDS / 50)
        detail = f"no end after {self.limits.seconds:g} s"
        return self._bury(Death("hangs", self._step, detail, stack))

    def _frames(self) -> tuple[Frame, ...]:
        """The stack that the process left."""
        text = Path(self._stack.name).read_text(encoding="utf-8", errors="replace")
        return frames(text)


# --- the other side -------------------------------------------------------------------------------

_to_parent: Connection | None = None
_tells_steps = True


def step(name: str) -> None:
    """Say what this process does from now on: a death is attributed to it, and its time starts.

    It does nothing in a process that is not isolated.
    """
    if _to_parent is not None and _tells_steps:
        _to_parent.send(StepBegins(name))


def begin_programs(indices: Sequence[int]) -> None:
    """Say that these programs are about to run together: a death is attributed to them."""
    if _to_parent is not None:
        _to_parent.send(range(min(indices), max(indices) + 1))


def tell_programs_alone() -> None:
    """From now on, send no steps: in a campaign, they are thousands, and nobody asks for them."""
    global _tells_steps  # noqa: PLW0603 - it is of the process
    _tells_steps = False


def tell_steps(pipe: Connection) -> None:
    """From now on, send the steps of calls to the process that waits for their outcome."""
    global _to_parent, _tells_steps
    _to_parent, _tells_steps = pipe, True


def _serve(pipe: Connection, nbytes: int, stack: str, device: str) -> None:
    """Make the calls that come through the pipe, until it is closed."""
    tell_steps(pipe)
    with open(stack, "w", encoding="utf-8") as dump:  # noqa: PTH123 - kept open for the handlers
        _isolate(nbytes, dump, device)
        while True:
            try:
                function, arguments = pipe.recv()
            except (EOFError, OSError):
                return
            outcome = outcome_here(partial(_call_by_name, function, arguments))
            # Nobody reads the pipe of a process that is being ended.
            with contextlib.suppress(BrokenPipeError):
                pipe.send(outcome)
            # What a death leaves behind is not to be trusted.
            if isinstance(outcome, Death):
                return


def _call_by_name(function: str, arguments: Sequence[object]) -> object:
    return pkgutil.resolve_name(function)(*arguments)


def _isolate(nbytes: int, dump: IO[str], device: str) -> None:
    """Make this process one that can do no harm, and that says where it dies."""
    os.setsid()
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    # On the level of files: C code and processes of the user write to them as well.
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    sys.stdout = sys.stderr  # which is not buffered: what is in a buffer would die with the process
    faulthandler.enable(dump, all_threads=False)
    faulthandler.register(_DUMP_SIGNAL, dump, all_threads=False)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # to write the memory of a crash takes long
    if device != CPU:
        start_device(device)
    else:
        # A lock for forks has no name. Another one, such as that of a progress bar, would be left
        # by a process that is killed, and named as leaked on standard error.
        multiprocessing.set_start_method("fork", force=True)
    limit_memory(nbytes)
    gc.freeze()  # objects from the import of torch never die, so the collector need not visit them


def die_with_parent() -> None:
    """End this process when the server ends, which it does when the first process ends."""
    if sys.platform == "linux":
        set_death_signal = 1  # PR_SET_PDEATHSIG in linux/prctl.h
        ctypes.CDLL(None).prctl(set_death_signal, signal.SIGKILL)


def start_device(device: str) -> None:
    """Start what CUDA needs in this process: gigabytes that are not of the calls, nor limited."""
    import torch  # noqa: PLC0415 - the process that prints a check never imports it

    torch.ones(1, device=device).add_(1).item()


def limit_memory(nbytes: int) -> None:
    """Let this process allocate that many bytes more (on Linux)."""
    status = Path("/proc/self/status")
    if not status.exists():
        return
    # Private writable memory, which is what the limit counts.
    (used,) = re.findall(r"VmData:\s+(\d+) kB", status.read_text())
    _, most = resource.getrlimit(resource.RLIMIT_DATA)
    limit = int(used) * 1024 + nbytes
    if most == resource.RLIM_INFINITY or limit < most:
        resource.setrlimit(resource.RLIMIT_DATA, (limit, most))
