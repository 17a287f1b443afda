"""`ConfirmationServer`: runs scripts in fresh processes that have imported only torch.

This file is also the server's program. `python -I confirmation_server.py` imports torch and nothing
of this project, and forks a process for each script. A fork takes milliseconds, an import of torch
more than a second. The parent and the server exchange lines of JSON.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import json
import os
import resource
import runpy
import select
import signal
import subprocess
import sys
import threading
import time
import traceback
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, NamedTuple

POLL = 0.02  # seconds between two polls of running scripts
# What reproducers import.
PRELOADED = (
    "torch",
    "torch._functorch.aot_autograd",
    "torch.fx.experimental.proxy_tensor",
    "torch.fx.passes.reinplace",
)
# What scripts with `torch.compile` need: importing these takes longer than compiling a program.
COMPILERS = (
    *PRELOADED,
    "torch._dynamo.backends.registry",
    "torch._dynamo.backends.debugging",
    "torch._inductor.compile_fx",
    "torch._inductor.codegen.cpp",
    "torch._inductor.codegen.cpp_wrapper_cpu",
)
# Inductor starts a pool of processes to compile in, which only costs time for one small program.
# Its cache on disk could give a script the compiled code of another program.
ENVIRONMENT = {
    "TORCHINDUCTOR_COMPILE_THREADS": "1",
    "TORCHINDUCTOR_FX_GRAPH_CACHE": "0",
    "TORCHINDUCTOR_AUTOGRAD_CACHE": "0",
}
PATIENCE = 0.5  # seconds that a server has to end its scripts and itself
TRIES = 3  # of a script that is killed while it runs, or whose server is killed
TIMEOUT = 120.0  # seconds. A script runs one small program, so one that takes longer hangs.
MEMORY = 8 * 2**30  # bytes that a script may allocate (on Linux), for the same reason


class Ran(NamedTuple):
    """How a script ended. `status` is None if it ran into the time limit, negative for a signal.

    `seconds` is processor time: of the script, of the processes that it waited for, and of the
    server since its last answer.
    """

    status: int | None
    stdout: str
    stderr: str
    seconds: float


STOPPED = Ran(None, "", "the server of confirmations ended", 0.0)


class ServerEnded(Exception):
    """The server was killed before a script had ended."""


# --- the side of the campaign ---------------------------------------------------------------------


@dataclass(slots=True)
class ConfirmationServer:
    """Starts the server when the first script is to run. Any thread may call `run`.

    After `stop()`, `run()` returns `STOPPED` immediately.

    `modules` are imported before the first script. With `niceness`, the search has priority over
    the scripts. `seconds` is the processor time of all scripts together.
    """

    modules: tuple[str, ...] = PRELOADED
    niceness: int = 0
    seconds: float = 0.0
    _process: subprocess.Popen[bytes] | None = None
    _waiting: dict[int, Future[Ran]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _number: int = 0
    _stopped: bool = False
    _reader: threading.Thread | None = None

    def run(self, script: Path, timeout: float = TIMEOUT) -> Ran:
        """Run a script, with its folder as the working folder. `timeout` is in seconds.

        If the script or the server is killed from outside, which says nothing about the script, it
        runs again.
        """
        ran = None
        for _ in range(TRIES):
            try:
                ran = self._run(script, timeout)
            except (ServerEnded, BrokenPipeError):
                if self._reader is not None:
                    self._reader.join()
            else:
                if ran.status not in (-signal.SIGKILL, -signal.SIGTERM):
                    return ran
        if ran is not None:
            return ran
        raise RuntimeError(f"{TRIES} servers of confirmations ended at {script}")

    def _run(self, script: Path, timeout: float) -> Ran:
        future: Future[Ran] = Future()
        with self._lock:
            if self._stopped:
                return STOPPED
            process = self._process = self._process or self._start()
            self._number += 1
            number = self._number
            self._waiting[number] = future
            request = {"number": number, "script": str(script.resolve()), "timeout": timeout}
            assert process.stdin is not None
            process.stdin.write(json.dumps(request).encode() + b"\n")
            process.stdin.flush()
        return future.result()

    def stop(self) -> None:
        """End the server and all running scripts for good."""
        with self._lock:
            process, self._process, self._stopped = self._process, None, True
        if process is not None and process.stdin is not None:
            # The server kills its scripts at the end of its input. It may be gone already.
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()
            # It may also still be importing torch, for many seconds.
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(PATIENCE)
            process.kill()
            process.wait()
            # The reader answers all waiting callers that no result will come.
            if self._reader is not None:
                self._reader.join()

    def _start(self) -> subprocess.Popen[bytes]:
        # -I ignores PYTHONPATH, the working folder and the user's packages.
        process = subprocess.Popen(
            [sys.executable, "-I", __file__, *self.modules],
            env=os.environ | ENVIRONMENT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            # A session of its own: Ctrl-C ends the search, not the confirmation of its findings.
            start_new_session=True,
        )
        os.setpriority(os.PRIO_PROCESS, process.pid, self.niceness)
        self._reader = threading.Thread(target=self._take_answers, args=(process,), daemon=True)
        self._reader.start()
        return process

    def _take_answers(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        with process.stdout:
            for line in process.stdout:
                answer = json.loads(line)
                waiting = self._waiting.pop(answer.pop("number"))
                ran = Ran(**answer)
                self.seconds += ran.seconds
                waiting.set_result(ran)
        # When the server ends, no caller is left waiting.
        with self._lock:
            killed = self._process is process
            for waiting in self._waiting.values():
                if killed:
                    waiting.set_exception(ServerEnded())
                else:
                    waiting.set_result(STOPPED)
            self._waiting.clear()
            self._process = None if killed else self._process
        process.wait()


# --- the server -----------------------------------------------------------------------------------


@dataclass(slots=True)
class _Script:
    """A running script, in a session of its own, so that its children can be killed with it."""

    number: int
    pid: int
    ends: float
    stdout: IO[bytes]
    stderr: IO[bytes]
    late: bool = False


def serve() -> None:
    """Take requests from standard input until it ends, and answer on standard output."""
    for module in sys.argv[1:]:
        importlib.import_module(module)
    running: list[_Script] = []
    unread, counted = b"", 0.0
    while True:
        readable, _, _ = select.select([0], [], [], POLL if running else None)
        if readable:
            block = os.read(0, 65536)
            if not block:
                break
            *lines, unread = (unread + block).split(b"\n")
            running += [_begin(json.loads(line)) for line in lines]
        for script in list(running):
            answer = _answer(script)
            if answer is not None:
                running.remove(script)
                answer["seconds"] += time.process_time() - counted
                counted = time.process_time()
                print(json.dumps(answer), flush=True)
    for script in running:
        _kill(script.pid)


def _begin(request: dict[str, Any]) -> _Script:
    import tempfile  # noqa: PLC0415 - only in the server's process

    # Closed when the script has ended.
    stdout, stderr = tempfile.TemporaryFile(), tempfile.TemporaryFile()  # noqa: SIM115
    pid = os.fork()
    if pid == 0:
        _become(Path(request["script"]), stdout.fileno(), stderr.fileno())
    ends = time.monotonic() + request["timeout"]
    return _Script(request["number"], pid, ends, stdout, stderr)


def _become(path: Path, stdout: int, stderr: int) -> None:
    """Run the script in this process, as `python -I SCRIPT` would, and end."""
    status = 1
    try:
        os.setsid()
        _die_with_the_server()
        _, most = resource.getrlimit(resource.RLIMIT_DATA)
        least = MEMORY if most == resource.RLIM_INFINITY else min(MEMORY, most)
        resource.setrlimit(resource.RLIMIT_DATA, (least, most))
        os.chdir(path.parent)
        with open(os.devnull, "rb") as nothing:  # noqa: PTH123 - a device, not a path of ours
            os.dup2(nothing.fileno(), 0)
        os.dup2(stdout, 1)
        os.dup2(stderr, 2)
        sys.argv = [path.name]
        runpy.run_path(path.name, run_name="__main__")
        status = 0
    except SystemExit as exit_:
        status = exit_.code if isinstance(exit_.code, int) else int(exit_.code is not None)
    except BaseException:  # noqa: BLE001 - whatever ends a script ends this process
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    # Not `sys.exit`: the exit handlers of the server must not run in this process.
    os._exit(status)


def _die_with_the_server() -> None:
    """End this process if the server is killed: nobody else would end a hanging script."""
    if sys.platform == "linux":
        set_death_signal = 1  # PR_SET_PDEATHSIG in linux/prctl.h
        ctypes.CDLL(None).prctl(set_death_signal, signal.SIGKILL)


def _answer(script: _Script) -> dict[str, Any] | None:
    """The answer for a script that has ended, or None. Kill it if its time is up."""
    pid, status, usage = os.wait4(script.pid, os.WNOHANG)
    if pid == 0:
        if not script.late and time.monotonic() > script.ends:
            script.late = True
            _kill(script.pid)
        return None
    _kill(script.pid)  # processes that it left behind
    return {
        "number": script.number,
        "status": None if script.late else os.waitstatus_to_exitcode(status),
        "stdout": _text(script.stdout),
        "stderr": _text(script.stderr),
        "seconds": usage.ru_utime + usage.ru_stime,
    }


def _text(file: IO[bytes]) -> str:
    with file:
        file.seek(0)
        return file.read().decode(errors="replace")


def _kill(session: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(session, signal.SIGKILL)


if __name__ == "__main__":
    serve()
