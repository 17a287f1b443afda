"""`fuzz`: the loop of a campaign.

Shards draw programs and run them through targets, failures are reduced, reproducers confirm them in
fresh processes, and the store records them. The parent process only schedules and writes.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from pathlib import Path

from campaigns.campaign import Campaign, Listener, suspicions_in_order
from campaigns.confirmations import Confirmations
from campaigns.plan import Plan
from campaigns.pool import start_pool
from campaigns.scheduler import POLL, Scheduler
from campaigns.statistics import Statistics
from campaigns.store import Store
from targets.user_names import grant
from trials.interrupts import Interrupts


def fuzz(plan: Plan, folder: Path, listener: Listener = lambda campaign: None) -> Campaign:
    """Run a campaign and store its findings under `folder`, which must be new or empty.

    `listener` is called several times per second. Ctrl-C ends the campaign early: failures that are
    reduced by then are still confirmed, until a second Ctrl-C. Raises `UserError` if the folder
    cannot be used.
    """
    grant(plan.targets)
    store = Store.create(folder)
    campaign = Campaign(plan, folder, {name: Statistics() for name in plan.targets})
    started = time.monotonic()  # the start of the workers counts, too
    pool = start_pool(plan.workers, store.compiled_folder(), plan.targets, plan.device)
    scheduler = Scheduler(campaign, store, pool, started)
    loop = _Loop(campaign, listener, store, scheduler, Confirmations(campaign, store))
    loop.run()
    return campaign


@dataclass(slots=True)
class _Loop:
    """First search and confirm at the same time, then confirm the rest, then write the outcome."""

    campaign: Campaign
    listener: Listener
    store: Store
    scheduler: Scheduler
    confirmations: Confirmations
    interrupts: Interrupts = field(default_factory=Interrupts)

    def run(self) -> None:
        with self.interrupts.counted():
            try:
                self._search()
            finally:  # workers must not outlive the campaign, however the search ends
                self.campaign.interrupted = self.interrupts.count > 0
                self.scheduler.stop()
            self._confirm_the_rest()
            self._write()

    def _search(self) -> None:
        while not self.interrupts.count and self.scheduler.fill():
            reduced = self.scheduler.take()
            if reduced is not None:
                self.confirmations.add(reduced)
            self.confirmations.take_finished()
            self._report()

    def _confirm_the_rest(self) -> None:
        before = self.interrupts.count  # one more Ctrl-C ends the wait
        while self.confirmations.pending and self.interrupts.count == before:
            self.confirmations.take_finished()
            self._report()
            time.sleep(POLL)
        self.campaign.interrupted = self.interrupts.count > 0
        self.confirmations.stop()

    def _write(self) -> None:
        # What the search counted until its end: final counts, the shortest suspicious programs.
        findings = self.campaign.findings
        for name, finding in findings.items():
            if finding.known is not None:  # one program was reduced, and all were counted
                findings[name] = replace(finding, count=self.campaign.known[finding.known])
            self.store.rewrite_finding(findings[name])
        for suspicion in suspicions_in_order(self.campaign):
            self.store.write_suspicion(suspicion.folder.name, suspicion.program)
        self.store.remove_leftovers()
        self._report()  # before the outcome, which records the time of the last report
        self.store.write_outcome(self.campaign.to_json())

    def _report(self) -> None:
        self.campaign.elapsed = self.scheduler.elapsed
        self.listener(self.campaign)
