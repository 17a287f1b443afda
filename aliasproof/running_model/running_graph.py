"""Which graph runs, for the case that the process dies: then a process of its own reports it."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator


class Watcher:
    """A process that reads which graph runs, and reports the last one if it reads no end.

    A process that a signal kills can say nothing itself. The watcher is no child of it, so that
    `os.wait` of a script does not see it.
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
        """A context in which this runs."""
        before = self._running
        self._say(what.encode(errors="replace").replace(b"\n", b" "))
        try:
            yield
        finally:
            self._say(before)

    def end(self) -> None:
        """The script has ended, so there is nothing to report."""
        self._say(_END)
        os.close(self._writing)

    def _say(self, text: bytes) -> None:
        if os.getpid() == self._process:  # and not a worker that was forked from it
            self._running = text
            os.write(self._writing, text + b"\n")


_END = b"end"


def _report(reading: int) -> None:
    """Read to the end of the pipe, in the watcher."""
    last, rest = b"", b""
    while read := os.read(reading, 1 << 16):
        *lines, rest = (rest + read).split(b"\n")
        last = lines[-1] if lines else last
    if last != _END:
        where = f"while {last.decode()} ran" if last else "while no graph ran"
        line = f"aliasproof: NOT CHECKED to the end: the process of the script died {where}\n"
        os.write(2, line.encode())
