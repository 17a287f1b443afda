"""`Confirmations`: a reduced failure becomes a finding if its reproducer shows it."""

from __future__ import annotations

import functools
from collections import Counter, deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

from campaigns.campaign import Campaign
from campaigns.confirmation_server import COMPILERS, TIMEOUT, ConfirmationServer
from campaigns.failure import ReducedFailure
from campaigns.finding import Finding
from campaigns.issue_text import issue_text
from campaigns.reproducer import Confirmation, render
from campaigns.store import Store
from campaigns.user_level import BACKENDS, Reproduced, UserLevel, at_user_level
from corpus.known_bugs import KNOWN_BUGS
from targets.registry import is_own
from targets.registry import target as target_named

# Reproducers that run at the same time, each in a process of its own. Few, since the workers of the
# campaign already use all cores.
AT_ONCE = 2


@dataclass(slots=True)
class Confirmations:
    """Runs reproducers in fresh processes, and moves what they confirm to the findings.

    Each finding is then run under `torch.compile`, once, in the background: its issue says whether
    it shows there. Reduced failures with equal signatures are one finding: the first is confirmed,
    the others are counted. Results are taken in the order of the failures, not of the processes.
    """

    campaign: Campaign
    store: Store
    executor: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(AT_ONCE))
    server: ConfirmationServer = field(default_factory=ConfirmationServer)
    _counts: Counter[str] = field(default_factory=Counter)
    _pending: deque[tuple[Finding, Future[Confirmation]]] = field(default_factory=deque)
    # One at a time: it takes longer than a reproducer, and the search goes on meanwhile.
    _background: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1))
    _compilers: ConfirmationServer = field(default_factory=lambda: ConfirmationServer(COMPILERS))
    _compiled: deque[tuple[Finding, Future[UserLevel]]] = field(default_factory=deque)

    @property
    def pending(self) -> bool:
        """Whether there are reproducers whose results were not taken."""
        return bool(self._pending or self._compiled)

    def add(self, reduced: ReducedFailure) -> None:
        """Count a reduced failure. The first with its signature goes to be confirmed."""
        finding = Finding.of(reduced)
        name = finding.identifier
        self._counts[name] += 1
        if finding.latent:  # no script that needs torch alone can show it
            self.store.write_latent(finding)
            self.campaign.latent[name] = replace(finding, count=self._counts[name])
        elif self._counts[name] == 1:
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
        self._pending.append((finding, self.executor.submit(self.confirm, reproducer)))

    def confirm(self, script: Path) -> Confirmation:
        """Run a reproducer in a fresh process that has torch alone."""
        return _run(self.server, script)

    def take_finished(self) -> None:
        """Take the results that are there: findings, and unconfirmed failures with the reason."""
        self.campaign.spent.confirming = self.server.seconds
        self.campaign.spent.compiling = self._compilers.seconds
        while self._pending and self._pending[0][1].done():
            finding, future = self._pending.popleft()
            confirmation, name = future.result(), finding.identifier
            if confirmation.shown:
                self.store.confirm(finding)
                self.campaign.findings[name] = replace(finding, count=self._counts[name])
                self._run_compiled(finding, confirmation)
            else:
                self.campaign.unconfirmed[name] = (
                    f"{finding.kind}: the reproducer {confirmation.ending} without showing it"
                )
        self._take_compiled()
        self.campaign.confirming = len(self._pending) + len(self._compiled)

    def _run_compiled(self, finding: Finding, confirmation: Confirmation) -> None:
        """Run a confirmed finding under `torch.compile`."""
        folder = self.store.finding_folder(finding.identifier)
        script = (folder / "reproducer.py").read_text(encoding="utf-8")
        shown = Reproduced(script, confirmation.output)
        # Until the answer is there, the issue is about the target alone.
        self.store.write_issue(finding, _issue(finding, shown), script)
        run = functools.partial(_run, self._compilers)
        task = self._background.submit(at_user_level, finding, shown, run, _backends(finding))
        self._compiled.append((finding, task))

    def _take_compiled(self) -> None:
        """Take the answers that are there: what users call replaces the recipe of the target."""
        while self._compiled and self._compiled[0][1].done():
            finding, task = self._compiled.popleft()
            level, name = task.result(), finding.identifier
            found = replace(self.campaign.findings[name], user_level=level.answers)
            self.campaign.findings[name] = found
            issue = _issue(found, level.reproduced)
            self.store.rewrite_finding(found)
            self.store.write_issue(found, issue, level.reproduced.script)

    def stop(self) -> None:
        """Start no more reproducers, and do not wait for those that run."""
        for executor in (self.executor, self._background):
            executor.shutdown(wait=False, cancel_futures=True)
        for server in (self.server, self._compilers):
            server.stop()


def _issue(finding: Finding, shown: Reproduced) -> str | None:
    """The issue for PyTorch's tracker; None for a bug of the user's own code."""
    return None if is_own(finding.target) else issue_text(finding, shown)


def _backends(finding: Finding) -> Sequence[str]:
    """The backends to ask: of a bug that has an issue, only the one whose layers show it.

    Inductor compiles C++, which takes seconds.
    """
    if is_own(finding.target):  # no backend of torch has the user's code
        return ()
    known = KNOWN_BUGS.get(finding.known or "")
    if known is None or not known.link:
        return BACKENDS
    return ("inductor",) if finding.target.startswith("inductor") else ("aot_eager",)


def _run(server: ConfirmationServer, script: Path) -> Confirmation:
    ran = server.run(script)
    return Confirmation.of(ran.status, ran.stdout, ran.stderr, TIMEOUT)
