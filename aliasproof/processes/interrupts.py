"""`Interrupts`: counts Ctrl-C, and is checked between two steps of a campaign."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import FrameType
from typing import TypeAlias

Handler: TypeAlias = "Callable[[int, FrameType | None], object] | signal.Handlers"


def raise_interrupt() -> None:
    """Raise `KeyboardInterrupt`."""
    raise KeyboardInterrupt


@dataclass(slots=True)
class Interrupts:
    """How often the user pressed Ctrl-C, or asked the process to end (SIGTERM).

    If `KeyboardInterrupt` were raised in the middle of a step, the step could stay half done, and a
    process that is being started could be lost. So Ctrl-C is only counted. The third one calls
    `at_third`, which must not return, in case a step hangs.
    """

    count: int = 0
    at_third: Callable[[], None] = raise_interrupt

    @contextlib.contextmanager
    def counted(self) -> Iterator[None]:
        """Count Ctrl-C instead of raising, until the context ends."""
        with signal_handler(signal.SIGINT, self._note), signal_handler(signal.SIGTERM, self._note):
            yield

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.count += 1
        if self.count > 2:
            self.at_third()


@contextlib.contextmanager
def signal_handler(number: signal.Signals, handler: Handler) -> Iterator[None]:
    """Handle a signal in this way until the context ends.

    Only the main thread may set signal handlers; in another one, nothing changes.
    """
    # A campaign may run in a thread, for example in a test or a notebook.
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(number, handler)
    try:
        yield
    finally:
        signal.signal(number, before)


@contextlib.contextmanager
def sigint_ignored_by_children() -> Iterator[None]:
    """Processes started in this context ignore Ctrl-C. This process handles it at the end."""
    # A blocked signal stays pending, whatever its handler is.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        with signal_handler(signal.SIGINT, signal.SIG_IGN):
            yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextlib.contextmanager
def sigint_deferred() -> Iterator[None]:
    """Handle Ctrl-C when the context ends."""
    pressed: list[int] = []
    with signal_handler(signal.SIGINT, lambda number, frame: pressed.append(number)):
        yield
    if pressed:
        signal.raise_signal(signal.SIGINT)
