"""`Crew`: isolated processes that make the same first call, and then share a queue of calls.

The first call prepares what the others need, such as the import of a user's file. It is paid once
per process, so one process makes all calls as long as they are short. If a call takes longer than
the preparation took, another process prepares itself for the calls that wait. So a slow call delays
no other for long, and short ones cost no second preparation.
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import wait

from aliasproof.trials.isolation import CPU, Death, Isolated, Limits, Outcome, Returned

LEAST_PATIENCE = 1.0  # seconds that calls wait at least before another process is started
_LONGEST_WAIT = 0.05  # seconds between two looks at limits and patience


@dataclass(frozen=True, slots=True)
class RemoteCall:
    """A function, as 'module:name', and its arguments. `key` names the call among others."""

    key: Hashable
    function: str
    arguments: tuple[object, ...] = ()


@dataclass(slots=True)
class _Member:
    process: Isolated
    call: RemoteCall | None  # None while it prepares itself
    since: float = field(default_factory=time.monotonic)


@dataclass(slots=True)
class Crew:
    """Makes calls in at most `most` processes, each within its limits, started for a device."""

    preparation: RemoteCall
    limits: Limits
    most: int
    patience: float = LEAST_PATIENCE
    device: str = CPU
    _waiting: deque[RemoteCall] = field(default_factory=deque)
    _busy: list[_Member] = field(default_factory=list)
    _idle: list[Isolated] = field(default_factory=list)

    @contextlib.contextmanager
    def at_work(self) -> Iterator[None]:
        """End all processes when the context ends, however it ends."""
        try:
            yield
        finally:
            for process in [*self._idle, *(member.process for member in self._busy)]:
                process.stop()

    def prepare(self) -> Outcome:
        """Start the first process. Returns the outcome of its preparation."""
        started = time.monotonic()
        self._start()
        _, outcome = self._next_outcome()
        self.patience = max(self.patience, time.monotonic() - started)
        return outcome

    def submit(self, call: RemoteCall) -> None:
        """Add a call to the queue."""
        self._waiting.append(call)

    @property
    def pending(self) -> bool:
        """Whether there are calls without an outcome."""
        return bool(self._waiting) or any(member.call is not None for member in self._busy)

    def take(self) -> tuple[Hashable, Outcome]:
        """Wait for the next outcome of a call, and return it with the key of the call."""
        while True:
            member, outcome = self._next_outcome()
            if member.call is not None:
                return member.call.key, outcome
            # A later process whose preparation fails fails the call that waited for it.
            if not isinstance(outcome, Returned) and self._waiting:
                return self._waiting.popleft().key, outcome

    def _assign(self) -> None:
        """Give calls to idle processes. Start a process for those that wait too long."""
        while self._idle and self._waiting:
            process, call = self._idle.pop(), self._waiting.popleft()
            process.call(call.function, *call.arguments)
            self._busy.append(_Member(process, call))
        now = time.monotonic()
        impatient = all(now - member.since > self.patience for member in self._busy)
        if self._waiting and len(self._busy) < self.most and impatient:
            self._start()

    def _start(self) -> None:
        process = Isolated(self.limits, self.device)
        process.call(self.preparation.function, *self.preparation.arguments)
        self._busy.append(_Member(process, None))

    def _next_outcome(self) -> tuple[_Member, Outcome]:
        while True:
            self._assign()
            for member in self._busy:
                outcome = member.process.outcome()
                if outcome is None:
                    continue
                self._busy.remove(member)
                if not isinstance(outcome, Death):
                    self._idle.append(member.process)
                return member, outcome
            wait(
                [handle for member in self._busy for handle in member.process.waitable],
                _LONGEST_WAIT,
            )
