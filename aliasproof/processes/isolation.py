"""`Isolated`: a process that makes calls for this one. Its death costs one call, and is explained.

The process is forked from a server that has imported torch, which takes milliseconds. For CUDA, it
starts as a new interpreter, since CUDA does not work in a fork of a process that has used it. It
runs a user's code, which may do anything: crash, exit, loop, read a terminal, write to standard
output. So

- its standard output is standard error, and its standard input is empty,
- it leads its own session, so that it can be killed with all processes that it started,
- its memory is limited, and so are the seconds of each step of a call (see `step`).

The pipe to it is read by one thread, without locks: Ctrl-C can end a wait at any point, and a
killed process leaves nothing behind.
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
from collections.abc import Callable, Iterable, Iterator, Sequence
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
PREPARATION = "aliasproof"  # the step of a call until it names another
# The steps of a trial: a death in the first is the target's, a death in the second is ours.
TARGET_STEP, ORACLES_STEP = "the target", "the oracles"
# Some systems limit the path of a socket to 103 bytes, of which `multiprocessing` appends 31.
_LONGEST_TEMPORARY = 70
_DUMP_SIGNAL = signal.SIGUSR1  # asks a process for its stack
_DUMP_SECONDS = 0.5  # for the process to write its stack
_NO_LIMIT = 1e6  # seconds; as many as a poll accepts
# Frames of these folders are on every stack, so they do not show where a process ended.
_HARNESS = tuple(
    str(Path(__file__).parents[1] / room) for room in ("processes", "judge", "campaigns")
)


@dataclass(frozen=True, slots=True)
class Limits:
    """What a call may take: seconds for each of its steps, and bytes of memory for its process.

    The memory is what the process allocates after its start. It is limited on Linux only; 0 for the
    limit of this process.
    """

    seconds: float
    nbytes: int


@dataclass(frozen=True, slots=True)
class StepBegins:
    """Sent by a process: the step that it begins."""

    name: str


def memory_available() -> int:
    """The bytes that processes can allocate now without the kernel killing others."""
    pages = "SC_AVPHYS_PAGES" if "SC_AVPHYS_PAGES" in os.sysconf_names else "SC_PHYS_PAGES"
    free = os.sysconf(pages) * os.sysconf("SC_PAGE_SIZE")
    with contextlib.suppress(OSError):
        # Memory of the file cache is available, too.
        match = re.search(r"MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text())
        return int(match[1]) * 1024 if match else free
    return free


def prepare_environment() -> None:
    """Set the environment variables that torch reads when it is imported. Workers inherit them."""
    # The warnings of torch's C++ code do not pass through Python's filters.
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    # The server only checks whether CUDA exists; user code may use CUDA in a fork of it.
    os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")


def start_server(preload: Sequence[str], *, by_fork: bool = False) -> None:
    """Start to import these modules in the server, without waiting.

    With `by_fork`, the server is a fork: it also has the modules that this process has imported.
    """
    prepare_environment()
    multiprocessing.set_forkserver_preload([*preload, "aliasproof.processes.server_exit"])
    if len(os.fsencode(tempfile.gettempdir())) > _LONGEST_TEMPORARY:
        with mock.patch.object(tempfile, "tempdir", "/tmp"):  # noqa: S108 - a new folder in it
            util.get_temp_dir()  # cached by `util`
    start = _fork_server if by_fork else util.spawnv_passfds
    # The server inherits the handler: it ignores Ctrl-C, since this process ends the others.
    with sigint_ignored_by_children(), mock.patch.object(util, "spawnv_passfds", start):
        forkserver.ensure_running()


def _fork_server(path: object, args: object, descriptors: Sequence[int]) -> int:
    """Run the server in a fork of this process, with its listener and a pipe. Returns its pid.

    It replaces the function by which `multiprocessing` starts the server in a new interpreter.
    """
    pid = os.fork()
    if pid == 0:
        # Close all other files: an inherited end of a pipe would keep this or another server alive.
        edges = [2, *sorted(descriptors), resource.getrlimit(resource.RLIMIT_NOFILE)[0]]
        for before, after in itertools.pairwise(edges):
            os.closerange(before + 1, after)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        main: Any = forkserver.main  # its stub has another signature
        try:
            main(*descriptors, forkserver._forkserver._preload_modules)  # type: ignore[attr-defined]
        finally:
            os._exit(0)
    return pid


# --- this side ------------------------------------------------------------------------------------


class Isolated:
    """A process that makes one call at a time. Its death is an outcome of the call.

    With `only`, it is a fork of this process, which makes this call and no other.
    """

    def __init__(
        self, limits: Limits, device: str = CPU, only: Callable[[], object] | None = None
    ) -> None:
        method = "fork" if only is not None else "forkserver" if device == CPU else "spawn"
        context: Any = multiprocessing.get_context(method)
        self.limits = limits
        self._pipe, theirs = context.Pipe()
        self._stack = tempfile.NamedTemporaryFile(prefix="aliasproof-", suffix=".stack")  # noqa: SIM115 - until `stop`
        arguments = (theirs, limits.nbytes, self._stack.name, device, only)
        self._process: BaseProcess = context.Process(
            target=_serve, args=arguments, name="aliasproof worker"
        )
        with sigint_deferred():  # Ctrl-C right after the fork would lose the process
            self._process.start()
        theirs.close()
        self._step, self._since, self._programs = PREPARATION, time.monotonic(), range(0)

    def call(self, function: str, *arguments: object) -> None:
        """Begin a call of a function, given as 'module:name'. The arguments are pickled."""
        self._step, self._since, self._programs = PREPARATION, time.monotonic(), range(0)
        # A process that is already dead is an outcome, which the next poll finds.
        with contextlib.suppress(OSError):
            self._pipe.send((function, arguments))

    def outcome_of(self, function: str, *arguments: object) -> Outcome:
        """Make a call, and wait for its outcome."""
        self.call(function, *arguments)
        return self.awaited()

    def awaited(self) -> Outcome:
        """Wait for the outcome of the call."""
        while (outcome := self.outcome()) is None:
            wait(self.waitable, max(0.0, self.seconds_left) + 0.01)
        return outcome

    @property
    def waitable(self) -> list[Any]:
        """Handles for `multiprocessing.connection.wait`: one is ready when there is an outcome."""
        return [self._pipe, self._process.sentinel]

    @property
    def seconds_left(self) -> float:
        """Seconds until the current step times out."""
        return self._since + self.limits.seconds - time.monotonic()

    def outcome(self) -> Outcome | None:
        """The outcome of the call; None while it runs. After a `Death`, the process is stopped."""
        alive = self._process.is_alive()  # before reading the pipe, which then has all that it sent
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
        """Kill the process, and all processes that it started."""
        if self._pipe.closed:  # its pid may be that of another process by now
            return
        pid = self._process.pid
        assert pid is not None
        # It leads a group only after its first instructions; killing the group ends all of them.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)
        self._process.kill()
        self._process.join()
        self._pipe.close()
        self._stack.close()

    def _death(self) -> Death:
        self._process.join(_DUMP_SECONDS)  # a process that closed its pipe may still be alive
        death = death_of(self._process.exitcode, self._step, self._frames())
        return self._bury(death)

    def _bury(self, death: Death) -> Death:
        """Stop the process, and add what it was doing."""
        self.stop()
        return replace(death, step=self._step, programs=self._programs)

    def _hang(self) -> Death:
        pid = self._process.pid
        assert pid is not None
        # The handler is written in C, so it also interrupts an endless loop in C.
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, _DUMP_SIGNAL)
        deadline = time.monotonic() + _DUMP_SECONDS
        while not (stack := self._frames()) and time.monotonic() < deadline:
            time.sleep(_DUMP_SECONDS / 50)
        detail = f"no end after {self.limits.seconds:g} s"
        return self._bury(Death("hangs", self._step, detail, stack))

    def _frames(self) -> tuple[Frame, ...]:
        """The stack that the process dumped."""
        text = Path(self._stack.name).read_text(encoding="utf-8", errors="replace")
        return frames(text)


def forked(call: Callable[[], object]) -> Outcome:
    """What a call returns or raises in a fork of this process, or how it ends the fork.

    Only for a process that has run no program: a fork inherits the state of earlier programs, but
    not their threads. A fork takes milliseconds, and inherits the patches, limits and modules of
    this process.
    """
    process = Isolated(Limits(_NO_LIMIT, 0), only=call)
    try:
        outcome = process.awaited()
    finally:
        process.stop()
    if not isinstance(outcome, Death):
        return outcome
    return replace(outcome, kind=outcome.violation, stack=tuple(_telling(outcome.stack)))


def _telling(stack: Iterable[Frame]) -> Iterator[Frame]:
    """The frames of a stack that show where a process ended."""
    for frame in stack:
        if not frame.file.startswith(_HARNESS):
            # Without the folder of the packages, which differs between machines.
            file = re.sub(r"^.*/(site-packages|dist-packages)/", "", frame.file)
            yield replace(frame, file=file)


# --- the other side -------------------------------------------------------------------------------

_to_parent: Connection | None = None
_tells_steps = True


def step(name: str) -> None:
    """Announce what this process does next: a death is attributed to it, and its time starts now.

    Does nothing in a process that is not isolated.
    """
    if _to_parent is not None and _tells_steps:
        _to_parent.send(StepBegins(name))


def begin_programs(indices: Sequence[int]) -> None:
    """Announce that these programs will run together: a death is attributed to them."""
    if _to_parent is not None:
        _to_parent.send(range(min(indices), max(indices) + 1))


def tell_programs_alone() -> None:
    """Send no steps from now on: a campaign has thousands of them, and does not need them."""
    global _tells_steps  # noqa: PLW0603 - one per process
    _tells_steps = False


def _serve(
    pipe: Connection,
    nbytes: int,
    stack: str,
    device: str,
    only: Callable[[], object] | None,
) -> None:
    """Make the only call, or those that arrive through the pipe, until it is closed."""
    global _to_parent, _tells_steps
    _to_parent, _tells_steps = pipe, True
    with open(stack, "w", encoding="utf-8") as dump:  # noqa: PTH123 - kept open for the handlers
        _isolate(nbytes, dump, device)
        for call in _received(pipe) if only is None else [only]:
            outcome = outcome_here(call)
            # While this process is being stopped, nobody reads its pipe.
            with contextlib.suppress(BrokenPipeError):
                pipe.send(outcome)
            # The state of this process after such an end cannot be trusted.
            if isinstance(outcome, Death):
                return


def _received(pipe: Connection) -> Iterator[Callable[[], object]]:
    with contextlib.suppress(EOFError, OSError):
        while True:
            yield partial(_call_by_name, *pipe.recv())


def _call_by_name(function: str, arguments: Sequence[object]) -> object:
    return pkgutil.resolve_name(function)(*arguments)


def _isolate(nbytes: int, dump: IO[str], device: str) -> None:
    """Isolate this process, limit its resources, and make it report where it dies."""
    os.setsid()
    if sys.platform == "linux":  # the server ends when the first process ends
        set_death_signal = 1  # PR_SET_PDEATHSIG in linux/prctl.h
        ctypes.CDLL(None).prctl(set_death_signal, signal.SIGKILL)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    # At the level of file descriptors, which C code and child processes use as well.
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    sys.stdout = sys.stderr  # unbuffered: a buffer would be lost if the process dies
    faulthandler.enable(dump, all_threads=False)
    faulthandler.register(_DUMP_SIGNAL, dump, all_threads=False)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # writing a core dump takes long
    if device != CPU:
        import torch  # noqa: PLC0415 - the process that prints a check never imports it

        # To initialize CUDA takes gigabytes, which the limit must not count.
        torch.ones(1, device=device).add_(1).item()
    else:
        # A fork context uses locks without names. A named lock, such as that of a progress bar,
        # would stay behind when the process is killed, and be reported as leaked on standard error.
        multiprocessing.set_start_method("fork", force=True)
    if nbytes:
        limit_memory(nbytes)
    gc.freeze()  # objects from the import of torch live forever, so the collector can skip them


def limit_memory(nbytes: int) -> None:
    """Let this process allocate this many further bytes (on Linux)."""
    status = Path("/proc/self/status")
    if not status.exists():
        return
    # VmData is private writable memory, which RLIMIT_DATA limits.
    (used,) = re.findall(r"VmData:\s+(\d+) kB", status.read_text())
    _, most = resource.getrlimit(resource.RLIMIT_DATA)
    limit = int(used) * 1024 + nbytes
    if most == resource.RLIM_INFINITY or limit < most:
        resource.setrlimit(resource.RLIMIT_DATA, (limit, most))
