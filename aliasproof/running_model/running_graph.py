"""Records which graph runs, so that a separate process can report it if this process dies."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator


class Watcher:
    """A process that reads which graph runs, and reports the last one if the end is not announced.

    A process that is killed by a signal cannot report this itself. The watcher is not its child, so
    `os.wait` of a script does not return it.
    """

    def __init__(self) -> None:
        self._running = b""
        self._process = os.getpid()
        sys.stderr.flush()
        reading, self._writing = os.pipe()
        first = os.fork()
        if first == 0:
            os.setsid()  # Ctrl-C is for the script
            if os.fork() == 0:
                os.close(self._writing)
                _report(reading)
            os._exit(0)
        os.close(reading)
        os.waitpid(first, 0)

    @contextlib.contextmanager
    def running(self, what: str) -> Iterator[None]:
        """Record that this runs, until the context ends."""
        before = self._running
        self._say(what.encode(errors="replace").replace(b"\n", b" "))
        try:
            yield
        finally:
            self._say(before)

    def end(self) -> None:
        """Announce that the script has ended, so nothing is reported."""
        self._say(_END)
        os.close(self._writing)

    def _say(self, text: bytes) -> None:
        if os.getpid() == self._process:  # not in a worker that was forked from the process
            self._running = text
            os.write(self._writing, text + b"\n")


_END = b"end"


def _report(reading: int) -> None:
    """Read to the end of the pipe, and report. Runs in the watcher."""
    last, rest = b"", b""
    while read := os.read(reading, 1 << 16):
        *lines, rest = (rest + read).split(b"\n")
        last = lines[-1] if lines else last
    if last != _END:
        where = f"while {last.decode()} ran" if last else "while no graph ran"
        line = f"aliasproof: NOT CHECKED to the end: the process of the script died {where}\n"
        os.write(2, line.encode())
