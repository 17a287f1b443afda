"""The time limit of a program in a worker process: the process dies of SIGALRM at its end.

A handler in Python could not end a loop in C++, so there is none. The parent sees which signal
ended the worker, and calls it a hang. The timer of the kernel does not follow a clock that jumps.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator

HANGS = signal.SIGALRM  # the signal that ends a worker whose program takes too long

_seconds = 0.0  # no limit, as in any process that is not a worker


def set_limit(seconds: float) -> None:
    """Set the limit of this process for one program."""
    global _seconds  # noqa: PLW0603 - it is of the process, like the timer
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
    """A program begins, or something that may take `times` as long. What ran before has ended."""
    signal.setitimer(signal.ITIMER_REAL, times * _seconds)


def end() -> None:
    """Nothing runs."""
    signal.setitimer(signal.ITIMER_REAL, 0)
