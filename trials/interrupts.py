"""`Interrupts`: Ctrl-C is counted, and looked at between two steps of a campaign."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import FrameType
from typing import TypeAlias

Handler: TypeAlias = "Callable[[int, FrameType | None], object] | signal.Handlers"


@dataclass(slots=True)
class Interrupts:
    """How often the user pressed Ctrl-C.

    Raised in the middle of a step, a `KeyboardInterrupt` could leave a lock of the process pool
    taken, and the campaign would never end. So it is only counted. The third one is raised, in case
    a step hangs.
    """

    count: int = 0

    @contextlib.contextmanager
    def counted(self) -> Iterator[None]:
        """Count instead of raising, until the context ends."""
        with sigint_handler(self._note):
            yield

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.count += 1
        if self.count > 2:
            raise KeyboardInterrupt


@contextlib.contextmanager
def sigint_handler(handler: Handler) -> Iterator[None]:
    """Handle Ctrl-C in this way until the context ends.

    Only the main thread may set signal handlers; in another one, nothing changes.
    """
    # A caller may run a campaign in a thread, as a test or a notebook does.
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
