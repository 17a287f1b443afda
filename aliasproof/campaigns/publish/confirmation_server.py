"""`ConfirmationServer`: runs scripts in fresh processes that have imported only torch.

This file is also the server's program. `python -I confirmation_server.py` imports torch and nothing
of this project, and forks a process for each script. A fork takes milliseconds, an import of torch
more than a second. For each script, the parent sends a connection to the server. The answer is JSON
and ends it; if the server or the process that answers is killed, the connection ends without one.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import json
import os
import resource
import runpy
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import IO, NamedTuple, NoReturn

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
PATIENCE = 0.5  # seconds in which a server that was killed has ended
TRIES = 3  # of a script that is killed while it runs, or whose server is killed
TIMEOUT = 120.0  # seconds. A script runs one small program, so one that takes longer hangs.
MEMORY = 8 * 2**30  # bytes that a script may allocate (on Linux), for the same reason


class Ran(NamedTuple):
    """How a script ended. `status` is None if it ran into the time limit, negative for a signal.

    `seconds` is processor time: of the script, of the processes that it waited for, and of the
    server since its last script.
    """

    status: int | None
    stdout: str
    stderr: str
    seconds: float


STOPPED = Ran(None, "", "the server of confirmations ended", 0.0)


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
    _requests: socket.socket | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _stopped: bool = False

    def run(self, script: Path, timeout: float = TIMEOUT) -> Ran:
        """Run a script, with its folder as the working folder. `timeout` is in seconds.

        If the script or the server is killed from outside, which says nothing about the script, it
        runs again.
        """
        last = None
        for _ in range(TRIES):
            ran = self._run(script, timeout)
            if ran is not None and ran.status not in (-signal.SIGKILL, -signal.SIGTERM):
                return ran
            last = ran or last
        if self._stopped or last is not None:
            return last or STOPPED
        raise RuntimeError(f"{TRIES} servers of confirmations ended at {script}")

    def _run(self, script: Path, timeout: float) -> Ran | None:
        """Run a script once; None if it was not answered, since the server was killed."""
        ours, theirs = socket.socketpair()
        with ours:
            request = {"script": str(script.resolve()), "timeout": timeout}
            ours.sendall(json.dumps(request).encode())
            with self._lock, theirs:
                if self._stopped:
                    return STOPPED
                process, requests = self._started()
                with contextlib.suppress(OSError):  # it was killed just now
                    socket.send_fds(requests, [b"."], [theirs.fileno()])
            with contextlib.suppress(OSError), ours.makefile() as answer:
                if text := answer.read():
                    ran = Ran(**json.loads(text))
                    with self._lock:
                        self.seconds += ran.seconds
                    return ran
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(PATIENCE)
        return None

    def stop(self) -> None:
        """End the server and all running scripts for good."""
        with self._lock:
            self._stopped = True
            if self._process is not None and self._process.poll() is None:
                # The processes that answer are in its group. On Linux, its end tells them, too.
                with contextlib.suppress(ProcessLookupError):  # it was killed just now
                    os.killpg(self._process.pid, signal.SIGTERM)
                self._process.kill()
                self._process.wait()
            if self._requests is not None:
                self._requests.close()

    def _started(self) -> tuple[subprocess.Popen[bytes], socket.socket]:
        """The server, and where it takes connections. One that was killed is replaced."""
        if self._process is None or self._requests is None or self._process.poll() is not None:
            if self._requests is not None:
                self._requests.close()
            self._requests, theirs = socket.socketpair()
            with theirs:
                # -I ignores PYTHONPATH, the working folder and the user's packages.
                self._process = subprocess.Popen(
                    [sys.executable, "-I", __file__, *self.modules],
                    env=os.environ | ENVIRONMENT,
                    stdin=theirs.fileno(),
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    # A session of its own: Ctrl-C ends the search, not the confirmations.
                    start_new_session=True,
                )
            os.setpriority(os.PRIO_PROCESS, self._process.pid, self.niceness)
        return self._process, self._requests


# --- the server -----------------------------------------------------------------------------------


def serve() -> None:
    """Take a connection for each script from standard input, until that ends."""
    for module in sys.argv[1:]:
        importlib.import_module(module)
    requests, counted = socket.socket(fileno=0), 0.0
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # no process that answers is waited for
    while True:
        received, descriptors, _, _ = socket.recv_fds(requests, 1, 1)
        if not received:
            break
        now = time.process_time()
        if os.fork() == 0:
            _answer(socket.socket(fileno=descriptors[0]), now - counted)
        os.close(descriptors[0])
        counted = now
    os.killpg(0, signal.SIGTERM)


def _answer(connection: socket.socket, seconds: float) -> NoReturn:
    """Run the script that is asked for, send how it ended, and end this process.

    The processor time of the script is added to `seconds`.
    """
    import tempfile  # noqa: PLC0415 - only in processes of the server

    _end_with_parent(signal.SIGTERM)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    request, late = json.loads(connection.recv(1 << 16)), False
    with tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
        if (pid := os.fork()) == 0:
            connection.close()
            _become(Path(request["script"]), stdout.fileno(), stderr.fileno())

        def end(number: int, frame: FrameType | None) -> None:
            nonlocal late
            late = True
            _kill(pid)
            if number == signal.SIGTERM:
                os._exit(1)

        for number in (signal.SIGTERM, signal.SIGALRM):
            signal.signal(number, end)
        signal.setitimer(signal.ITIMER_REAL, request["timeout"])
        _, status, usage = os.wait4(pid, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        _kill(pid)  # processes that it left behind
        answer = {
            "status": None if late else os.waitstatus_to_exitcode(status),
            "stdout": _text(stdout),
            "stderr": _text(stderr),
            "seconds": seconds + usage.ru_utime + usage.ru_stime,
        }
    connection.sendall(json.dumps(answer).encode())
    os._exit(0)


def _become(path: Path, stdout: int, stderr: int) -> NoReturn:
    """Run the script in this process, as `python -I SCRIPT` would, and end."""
    status = 1
    try:
        os.setsid()
        _end_with_parent(signal.SIGKILL)
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


def _end_with_parent(number: int) -> None:
    """Get this signal when the parent is killed: nobody else would end a hanging script."""
    if sys.platform == "linux":
        set_death_signal = 1  # PR_SET_PDEATHSIG in linux/prctl.h
        ctypes.CDLL(None).prctl(set_death_signal, number)


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode(errors="replace")


def _kill(session: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(session, signal.SIGKILL)


if __name__ == "__main__":
    serve()
