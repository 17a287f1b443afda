"""`fuzz`: the loop of a campaign, of programs of ATen calls or of Python programs.

Shards draw programs and run them through targets, failures are reduced, reproducers confirm them in
fresh processes, and the store keeps each result at once. The parent process only schedules and
writes. So whatever ends it, it continues where it stopped (docs/campaigns.md).
"""

from __future__ import annotations

import resource
import time
from dataclasses import dataclass, field, replace
from pathlib import Path

from aliasproof.campaigns.run.campaign import Campaign, Listener, suspicions_in_order
from aliasproof.campaigns.run.confirmations import Confirmations
from aliasproof.campaigns.run.executor import LocalWorkers, MakeExecutor, memory_of_workers
from aliasproof.campaigns.run.scheduler import ENOUGH, POLL, Scheduler
from aliasproof.campaigns.run.shard import Statistics
from aliasproof.campaigns.run.tasks import Tasks
from aliasproof.campaigns.store.plan import Plan
from aliasproof.campaigns.store.run_folder import RunFolder, opened_run, write_finding
from aliasproof.campaigns.store.run_lock import FINDINGS
from aliasproof.campaigns.store.store import Store
from aliasproof.ir.devices import CPU
from aliasproof.processes.interrupts import Interrupts
from aliasproof.targets.names import ATEN
from aliasproof.targets.user_names import grant

# Seconds that work under way may take after the time is up, unless it is due. What is unfinished
# then waits in the store until the campaign is resumed.
GRACE = 1.0
WRITTEN_EVERY = 10.0  # seconds between two writes of `run.json`


def fuzz(
    plan: Plan,
    folder: Path,
    listener: Listener = lambda campaign: None,
    interrupts: Interrupts | None = None,
    started: float | None = None,
    make_executor: MakeExecutor = LocalWorkers.of,
) -> Campaign:
    """Run a campaign and store its findings under `folder`, or resume the one in that folder.

    `listener` is called several times per second. The time of the plan counts from `started`, in
    seconds of the monotonic clock; by default, from this call. Ctrl-C ends the campaign early:
    failures that are already reduced are still confirmed, until a second Ctrl-C. `make_executor`
    makes what runs the tasks. Raises `UserError` if the folder cannot be used, if another campaign
    uses it, or if the disk is full.
    """
    interrupts = interrupts or Interrupts()
    # The start of the workers counts as well.
    started = time.monotonic() if started is None else started
    with interrupts.counted():
        grant(plan.targets)
        with opened_run(plan, folder) as (files, store, notes):
            campaign = Campaign(plan, files.folder, {name: Statistics() for name in plan.targets})
            campaign.notes += notes

            def note(text: str) -> None:  # reports what happens to the workers
                store.events.note(text)
                campaign.notes.append(text)

            executor = make_executor(plan, files, note)
            elapsed, spent = store.elapsed()
            # An isolated reduction uses forks, in which CUDA does not work.
            tasks = Tasks(store, files, executor, isolating=plan.device == CPU)
            scheduler = Scheduler(campaign, tasks, started, elapsed)
            seconds = (spent.get("confirming", 0.0), spent.get("compiling", 0.0))
            confirmations = Confirmations(campaign, store, files, seconds)
            _Loop(campaign, listener, store, files, scheduler, confirmations, interrupts).run()
            return campaign


@dataclass(slots=True)
class _Loop:
    """First search and confirm at the same time, then confirm the rest, then write the outcome."""

    campaign: Campaign
    listener: Listener
    store: Store
    files: RunFolder
    scheduler: Scheduler
    confirmations: Confirmations
    interrupts: Interrupts
    _written: float = field(default_factory=time.monotonic)

    def run(self) -> None:
        try:
            try:
                self._search()
            finally:  # workers must not outlive the campaign, however the search ends
                self.campaign.interrupted = self.interrupts.count > 0
                self.scheduler.tasks.executor.stop()
            before = self.interrupts.count  # one more Ctrl-C ends the wait
            while self.confirmations.pending and self.interrupts.count == before:
                if self._late():
                    break
                self.confirmations.take_finished()
                self._report()
                time.sleep(POLL)
        finally:
            self.confirmations.stop()
        self.campaign.interrupted = self.interrupts.count > 0
        self._write()

    def _search(self) -> None:
        self._report()
        while not self.interrupts.count and self.scheduler.fill():
            # Finished work is taken even when the time is up, also when a finished run is resumed.
            if self._late() and not self.scheduler.can_take:
                break
            reduced = self.scheduler.take()
            if reduced is not None:
                self.confirmations.add(reduced)
            self.confirmations.take_finished()
            self.scheduler.others_wait = self.confirmations.pending
            self._report()

    def _late(self) -> bool:
        """Whether unfinished work must wait until the campaign is resumed."""
        seconds, finish = self.campaign.plan.seconds, self.campaign.plan.finish
        if seconds is None or finish:
            return False
        due = self.scheduler.is_due or self.confirmations.is_due
        more = ENOUGH if due else GRACE
        return self.scheduler.elapsed > max(seconds, self.scheduler.before) + more

    def _write(self) -> None:
        # Only known at the end of the search: final counts, and the shortest suspicious programs.
        findings = self.campaign.findings
        for name, finding in findings.items():
            # Only one program of a known bug was reduced, but all failures count.
            if finding.language == ATEN and finding.known:
                findings[name] = replace(finding, count=self.campaign.known[finding.known])
            # While a campaign runs, the count on disk is 1, to save a write per violation.
            write_finding(self.files.path(FINDINGS, name), findings[name])
        self.files.write_suspicions(suspicions_in_order(self.campaign), self.store.identifiers())
        self.files.remove_leftovers()
        self._report()  # before the outcome, which records the time of the last report
        self._write_outcome(at_end=True)
        self.store.events.note("ended", interrupted=self.campaign.interrupted)

    def _report(self) -> None:
        self.campaign.elapsed = self.scheduler.elapsed
        self.listener(self.campaign)
        if time.monotonic() - self._written > WRITTEN_EVERY:
            self._write_outcome()

    def _write_outcome(self, *, at_end: bool = False) -> None:
        self._written = time.monotonic()
        campaign, total = self.campaign, self.campaign.total
        spent = {"confirming": campaign.spent.confirming, "compiling": campaign.spent.compiling}
        counts = (total.programs, total.violating, len(campaign.findings))
        kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        self.store.note_progress(campaign.elapsed, spent, counts, kib, memory_of_workers())
        # Until the end, `run.json` says that the run was interrupted.
        self.files.write_outcome(campaign.to_json() | ({} if at_end else {"interrupted": True}))
