"""`Confirmations`: a reduced failure becomes a finding if its reproducer shows it."""

from __future__ import annotations

from collections import Counter, deque
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace

from campaigns.campaign import Campaign
from campaigns.failure import ReducedFailure
from campaigns.finding import Finding
from campaigns.reproducer import Confirmation, confirm, render
from campaigns.store import Store
from targets.registry import target as target_named

# Reproducers that run at the same time, each in a process of its own. Few, since the workers of the
# campaign already use all cores.
AT_ONCE = 2


@dataclass(slots=True)
class Confirmations:
    """Runs reproducers in fresh processes, and moves what they confirm to the findings.

    Reduced failures with equal signatures are one finding: the first is confirmed, the others are
    counted. Results are taken in the order of the failures, not of the processes.
    """

    campaign: Campaign
    store: Store
    executor: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(AT_ONCE))
    _counts: Counter[str] = field(default_factory=Counter)
    _pending: deque[tuple[Finding, Future[Confirmation]]] = field(default_factory=deque)

    @property
    def pending(self) -> bool:
        """Whether there are reproducers whose results were not taken."""
        return bool(self._pending)

    def add(self, reduced: ReducedFailure) -> None:
        """Count a reduced failure. The first with its signature goes to be confirmed."""
        finding = Finding.of(reduced)
        name = finding.identifier
        self._counts[name] += 1
        if self._counts[name] == 1:
            self._submit(finding, reduced)
        elif name in self.campaign.findings:  # otherwise the count is set on confirmation
            known = self.campaign.findings[name]
            self.campaign.findings[name] = replace(known, count=self._counts[name])

    def _submit(self, finding: Finding, reduced: ReducedFailure) -> None:
        # On disk before anything can fail: an interrupted campaign leaves it as unconfirmed.
        self.store.write_unconfirmed(finding)
        target = target_named(finding.target)
        script = render(finding.program, target, reduced.violation, exact=reduced.exact)
        reproducer = self.store.write_reproducer(finding, script)
        self._pending.append((finding, self.executor.submit(confirm, reproducer)))
        self.campaign.confirming = len(self._pending)

    def take_finished(self) -> None:
        """Take the results that are there: findings, and unconfirmed failures with the reason."""
        while self._pending and self._pending[0][1].done():
            finding, future = self._pending.popleft()
            self.campaign.confirming = len(self._pending)
            confirmation, name = future.result(), finding.identifier
            if confirmation.shown:
                self.store.confirm(finding)
                self.campaign.findings[name] = replace(finding, count=self._counts[name])
            else:
                self.campaign.unconfirmed[name] = (
                    f"{finding.kind}: the reproducer {confirmation.ending} without showing it"
                )

    def stop(self) -> None:
        """Start no more reproducers, and do not wait for those that run."""
        self.executor.shutdown(wait=False, cancel_futures=True)
