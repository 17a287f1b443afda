"""`Pool`: isolated processes that make the same first call, and then share a queue of calls.

The first call prepares what the others need, such as the import of a user's file. Each process pays
for it, so one process makes all calls as long as they are short. If a call takes longer than the
pool's patience, another process prepares itself for the waiting calls. So a slow call does not
delay others for long, and short calls need no second preparation.
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from multiprocessing import connection

from aliasproof.processes.isolation import CPU, Isolated, Limits
from aliasproof.processes.outcome import Death, Outcome, Returned

LEAST_PATIENCE = 1.0  # minimal seconds that calls wait before another process is started
_LONGEST_WAIT = 0.05  # seconds between two checks of limits and patience


@dataclass(frozen=True, slots=True)
class RemoteCall:
    """A function, as 'module:name', and its arguments. `key` identifies the call."""

    key: Hashable
    function: str
    arguments: tuple[object, ...] = ()


@dataclass(slots=True)
class _Member:
    """A process and its current call (None while it prepares); and how many calls it has made."""

    process: Isolated
    call: RemoteCall | None = None
    since: float = field(default_factory=time.monotonic)
    calls: int = 0


@dataclass(slots=True)
class Pool:
    """Makes calls in at most `most` processes, each within its limits, started for a device.

    If calls have waited `patience` seconds for running ones, another process is started. A process
    is replaced after `renewal` calls; 0 for never.
    """

    preparation: RemoteCall
    limits: Limits
    most: int
    patience: float = LEAST_PATIENCE
    device: str = CPU
    renewal: int = 0
    _waiting: deque[RemoteCall] = field(default_factory=deque)
    _busy: list[_Member] = field(default_factory=list)
    _idle: list[_Member] = field(default_factory=list)

    @contextlib.contextmanager
    def at_work(self) -> Iterator[None]:
        """End all processes when the context ends, however it ends."""
        try:
            yield
        finally:
            self.stop()

    def stop(self) -> None:
        """Kill all processes."""
        for member in [*self._idle, *self._busy]:
            member.process.stop()
        self._idle.clear()
        self._busy.clear()

    def prepare(self) -> Outcome:
        """Start the first process. Returns the outcome of its preparation."""
        started = time.monotonic()
        self._start()
        while (ended := self._next_outcome()) is None:
            self.wait()
        self.patience = max(self.patience, time.monotonic() - started)
        return ended[1]

    def submit(self, call: RemoteCall) -> None:
        """Add a call to the queue, and begin it if a process is idle."""
        self._waiting.append(call)
        self._assign()

    @property
    def pending(self) -> int:
        """How many calls have no outcome yet."""
        return len(self._waiting) + sum(member.call is not None for member in self._busy)

    def take(self) -> tuple[Hashable, Outcome]:
        """Wait for the next outcome of a call, and return it with the call's key."""
        while True:
            for key, outcome in self.outcomes():
                return key, outcome
            self.wait()

    def call(self, function: str, *arguments: object) -> Outcome:
        """Make a call while no other is pending, and wait for its outcome."""
        self.submit(RemoteCall("", function, arguments))
        return self.take()[1]

    def outcomes(self) -> Iterator[tuple[Hashable, Outcome]]:
        """The outcomes that are ready, each with the key of its call."""
        while (ended := self._next_outcome()) is not None:
            call, outcome = ended
            if call is not None:
                yield call.key, outcome
            # If the preparation of a further process fails, so does the call that waited for it.
            elif not isinstance(outcome, Returned) and self._waiting:
                yield self._waiting.popleft().key, outcome

    def wait(self, seconds: float = _LONGEST_WAIT) -> None:
        """Wait until an outcome may be ready, at most `seconds`."""
        handles = [handle for member in self._busy for handle in member.process.waitable]
        connection.wait(handles, seconds)

    def _assign(self) -> None:
        """Give calls to idle processes. Start another process if calls wait too long."""
        while self._idle and self._waiting:
            member, call = self._idle.pop(), self._waiting.popleft()
            member.process.call(call.function, *call.arguments)
            member.call, member.since = call, time.monotonic()
            member.calls += 1
            self._busy.append(member)
        now = time.monotonic()
        impatient = all(now - member.since > self.patience for member in self._busy)
        if self._waiting and len(self._busy) < self.most and impatient:
            self._start()

    def _start(self) -> None:
        process = Isolated(self.limits, self.device)
        process.call(self.preparation.function, *self.preparation.arguments)
        self._busy.append(_Member(process))

    def _next_outcome(self) -> tuple[RemoteCall | None, Outcome] | None:
        """A call and its outcome, with None for a preparation; None if there is no outcome yet."""
        self._assign()
        for member in self._busy:
            outcome = member.process.outcome()
            if outcome is None:
                continue
            self._busy.remove(member)
            if not isinstance(outcome, Death):
                if self.renewal and member.calls >= self.renewal:
                    member.process.stop()
                else:
                    self._idle.append(member)
            return member.call, outcome
        return None
