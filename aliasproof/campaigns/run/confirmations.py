"""`Confirmations`: a reduced failure becomes a finding if its reproducer shows it."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from aliasproof.campaigns.failure.finding import AnyFinding
from aliasproof.campaigns.publish.confirmation import Confirmation, Reproduced
from aliasproof.campaigns.publish.confirmation_server import (
    COMPILERS,
    TIMEOUT,
    ConfirmationServer,
)
from aliasproof.campaigns.publish.publisher import (
    confirm_finding,
    issue_of,
    run_compiled,
    script_of,
)
from aliasproof.campaigns.run.campaign import Campaign
from aliasproof.campaigns.run.languages import is_waited_for
from aliasproof.campaigns.run.scheduler import FoundFailure
from aliasproof.campaigns.store.run_folder import RunFolder
from aliasproof.campaigns.store.run_lock import FINDINGS, SUSPICIONS, UNCONFIRMED
from aliasproof.campaigns.store.store import Store

# Reproducers that run at the same time, each in its own process. Few, since the workers of the
# campaign already use all cores.
AT_ONCE = 2
LATER = 10  # the niceness of work that may wait for the search


class _Task(NamedTuple):
    """What runs for a finding, and the method that takes the result."""

    finding: AnyFinding
    future: Future[Any]
    take: Callable[[AnyFinding, Any], None]


@dataclass(slots=True)
class Confirmations:
    """Runs reproducers in fresh processes, and moves what they confirm to the findings.

    Each new finding is then run under `torch.compile`, once, in the background: its issue says
    whether it shows there. Reduced failures with equal signatures are one finding: the first that a
    shard asked for is confirmed, even if it arrives later; the others are counted. Results that the
    store has are not computed again. `before` are the seconds of processor time that confirming and
    compiling took before the campaign was resumed.
    """

    campaign: Campaign
    store: Store
    folder: RunFolder
    before: tuple[float, float] = (0.0, 0.0)
    executor: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(AT_ONCE))
    server: ConfirmationServer = field(default_factory=ConfirmationServer)
    _counts: Counter[str] = field(default_factory=Counter)
    _numbers: dict[str, int] = field(default_factory=dict)  # of the failure that is the evidence
    # By identifier, what runs for a finding now.
    _tasks: dict[str, _Task] = field(default_factory=dict)
    # One at a time: it takes longer than a reproducer, and the search continues meanwhile.
    _background: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1))
    _compilers: ConfirmationServer = field(
        default_factory=lambda: ConfirmationServer(COMPILERS, LATER)
    )

    @property
    def pending(self) -> bool:
        """Whether there are reproducers whose results were not taken yet."""
        return bool(self._tasks)

    @property
    def is_due(self) -> bool:
        """Whether a first finding of a bucket is under way."""
        shown = {finding.bucket for finding in self.campaign.findings.values()}
        pending = (task.finding for task in self._tasks.values() if is_waited_for(task.finding))
        return any(finding.bucket not in shown for finding in pending)

    def add(self, reduced: FoundFailure) -> None:
        """Count a reduced failure. The first with its signature is submitted for confirmation."""
        finding, name = reduced.finding, reduced.finding.identifier
        self._counts[name] += 1
        self.store.keep_occurrence(name, reduced.failure.task, reduced.failure.number)
        if reduced.number < self._numbers.get(name, reduced.number + 1):
            self._numbers[name] = reduced.number
            self._withdraw(finding)
            if not finding.latent:
                self._submit(finding)
            else:  # no script that needs only torch can show it
                self.store.keep_finding(finding, "", "latent")
                self.folder.write(SUSPICIONS, finding)
                self.campaign.latent[name] = finding
        for findings in (self.campaign.findings, self.campaign.latent):
            if name in findings:  # otherwise the count is set on confirmation
                findings[name] = replace(findings[name], count=self._counts[name])

    def _withdraw(self, finding: AnyFinding) -> None:
        """Remove the evidence for this signature if it is from another failure."""
        name, kept = finding.identifier, self.store.finding(finding.identifier)
        if kept is None or kept.finding.same_evidence(finding):
            return
        self._tasks.pop(name, None)
        self.campaign.findings.pop(name, None)
        self.campaign.unconfirmed.pop(name, None)
        self.folder.remove_finding(name)
        self.store.remove_finding(name)

    def _write_script(self, finding: AnyFinding) -> str:
        """The script of a finding: the literal one if aliasproof fails to write the other."""
        try:
            return script_of(finding)
        except Exception as error:  # noqa: BLE001 - a campaign must not end with it
            text = f"script of {finding.identifier}: {type(error).__name__}: {error}"
            self.campaign.mistakes.append(text)
            return script_of(finding, literal=True)

    def _submit(self, finding: AnyFinding) -> None:
        script = self._write_script(finding)
        state = "new" if "not reduced" in finding.evidence else "reduced"
        self.store.keep_finding(finding, script, state)
        kept = self.store.finding(finding.identifier)
        assert kept is not None
        # While its reproducer runs, the finding is unconfirmed: an interrupt leaves it so.
        if kept.confirmation is None:
            # A store may be from someone else: only run its script if it equals one generated here.
            literal = kept.script == (exact := script_of(finding, literal=True))
            self.folder.write(UNCONFIRMED, kept.finding, exact if literal else script)
            future = self.executor.submit(self.confirm, kept.finding, literal)
        else:
            future = Future()
            shown = self.store.checked(functools.partial(Confirmation, **kept.confirmation))
            future.set_result(shown)
        self._tasks[finding.identifier] = _Task(kept.finding, future, self._take_confirmation)

    def _submit_literal(self, finding: AnyFinding) -> bool:
        """Try the literal script of a finding, unless that is the one that ran."""
        name, kept = finding.identifier, self.store.finding(finding.identifier)
        assert kept is not None
        script = script_of(finding, literal=True)
        if kept.confirmation is not None or kept.script == script:
            return False
        self.store.keep_script(name, script)
        self.folder.write(UNCONFIRMED, finding, script)
        future = self.executor.submit(self.confirm, finding, literal=True)
        self._tasks[name] = _Task(finding, future, self._take_confirmation)
        return True

    def confirm(self, finding: AnyFinding, literal: bool = False) -> Confirmation:
        """Run the script of a finding in fresh processes that have imported only torch."""
        run = functools.partial(_run, self.server)
        return confirm_finding(finding, run, literal=literal)

    def take_finished(self) -> None:
        """Take the finished results: findings, and unconfirmed failures with the reason."""
        confirming, compiling = self.before
        self.campaign.spent.confirming = confirming + self.server.seconds
        self.campaign.spent.compiling = compiling + self._compilers.seconds
        for name, task in [*self._tasks.items()]:
            if task.future.done():
                del self._tasks[name]
                task.take(task.finding, task.future.result())
        self.campaign.confirming = len(self._tasks)

    def _take_confirmation(self, finding: AnyFinding, confirmation: Confirmation) -> None:
        """Keep what a reproducer showed, and write the folder for that state."""
        if not confirmation.shown and self._submit_literal(finding):
            return
        name, kept = finding.identifier, self.store.finding(finding.identifier)
        assert kept is not None
        if kept.confirmation is None:
            shown = "known" if finding.known else "reproduced"
            state = shown if confirmation.shown else "flaky"
            self.store.keep_confirmation(name, state, asdict(confirmation))
        kind = FINDINGS if confirmation.shown else UNCONFIRMED
        self.folder.write(kind, finding, kept.script, kept.issue)
        self.campaign.add_confirmed(replace(finding, count=self._counts[name]), confirmation)
        if confirmation.shown:
            self._run_compiled(finding, confirmation)

    def _run_compiled(self, finding: AnyFinding, confirmation: Confirmation) -> None:
        """Run a confirmed finding under `torch.compile`."""
        kept = self.store.finding(finding.identifier)
        assert kept is not None
        if kept.torch_compile is not None:
            return
        shown = Reproduced(kept.script, confirmation.output)
        if finding.known:  # no further evidence is needed, and Inductor takes seconds
            self._keep_compiled(finding, shown)
            return
        # Until the answers are there, the issue is only about the target.
        self.folder.write(FINDINGS, finding, kept.script, issue_of(finding, shown))
        run = functools.partial(_run, self._compilers)
        future = self._background.submit(run_compiled, finding, shown, run)
        self._tasks[finding.identifier] = _Task(finding, future, self._take_compiled)

    def _take_compiled(self, finding: AnyFinding, result: tuple[AnyFinding, Reproduced]) -> None:
        """Take the answers: a script with `torch.compile` replaces the target's recipe."""
        (answered, shown), name = result, finding.identifier
        answered = replace(answered, count=self.campaign.findings[name].count)
        self.campaign.findings[name] = answered
        self._keep_compiled(answered, shown)

    def _keep_compiled(self, answered: AnyFinding, shown: Reproduced) -> None:
        issue = issue_of(answered, shown)
        self.store.keep_torch_compile(answered, dict(answered.user_level), shown.script, issue)
        self.folder.write(FINDINGS, answered, shown.script, issue)

    def stop(self) -> None:
        """Start no more reproducers, and do not wait for running ones."""
        for executor in (self.executor, self._background):
            executor.shutdown(wait=False, cancel_futures=True)
        for server in (self.server, self._compilers):
            server.stop()


def _run(server: ConfirmationServer, script: Path) -> Confirmation:
    ran = server.run(script)
    return Confirmation.of(ran.status, ran.stdout, ran.stderr, TIMEOUT)
