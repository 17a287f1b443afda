"""`ClusterNode`: the workers of one node of a Ray cluster, in the same pool as on one machine."""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from aliasproof.campaigns.run.executor import Result, Work
from aliasproof.campaigns.run.local_workers import LocalWorkers
from aliasproof.campaigns.store.plan import Plan
from aliasproof.campaigns.store.run_folder import RunFolder

POLL = 0.02  # seconds between two looks at the pool
# Seconds that an exchange waits for results. As long, a new task waits; workers have one in store.
WAIT = 0.25


class Exchanged(NamedTuple):
    """The results of tasks that are done, by number, and what happened to the workers."""

    results: list[tuple[int, Result]]
    notes: list[str]


class ClusterNode:
    """An actor. It writes to a temporary folder of its node; the driver alone writes the store.

    Its methods run in the main thread of its process, one at a time.
    """

    def __init__(self, plan: Plan) -> None:
        # Workers are forked, and would import the main module first: that of Ray takes a second.
        vars(sys.modules["__main__"]).pop("__file__", None)
        self._notes: list[str] = []
        self._folder = Path(tempfile.mkdtemp(prefix="aliasproof-"))
        self._workers = LocalWorkers.of(plan, RunFolder(self._folder), self._notes.append)

    def exchange(self, tasks: Sequence[tuple[int, Work]]) -> Exchanged:
        """Start tasks. Returns the results that are there, or that come within a moment."""
        for number, work in tasks:
            self._workers.start(number, work)
        end = time.monotonic() + WAIT
        while not (results := [*self._workers.finished()]) and time.monotonic() < end:
            self._workers.wait(POLL)
        notes = [*self._notes]
        self._notes.clear()
        return Exchanged(results, notes)

    def stop(self) -> None:
        """End the workers, and remove what they wrote."""
        self._workers.stop()
        shutil.rmtree(self._folder, ignore_errors=True)
