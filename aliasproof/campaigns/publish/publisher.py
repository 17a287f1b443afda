"""`Publisher`: the script and the issue of a finding, for each language of programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol

from aliasproof.campaigns.publish.confirmation import (
    BACKENDS,
    Confirmation,
    Reproduced,
    Run,
    at_user_level,
    confirmed,
    of_target,
)
from aliasproof.campaigns.publish.issue_text import issue_text
from aliasproof.campaigns.publish.python_issue import confirm_python, python_issue, script
from aliasproof.campaigns.store.finding import AnyFinding, Finding, PythonFinding
from aliasproof.corpus.bug_files import known_bugs
from aliasproof.targets.names import ATEN, PYTHON
from aliasproof.targets.registry import is_own
from aliasproof.targets.registry import target as target_named


class Publisher(Protocol):
    """Shows findings by scripts for torch alone, which `Run` runs in fresh processes."""

    def script(self, finding: Any, *, literal: bool = False) -> str:
        """The script that shows a finding; `literal` writes no call as people do."""

    def confirm(self, finding: Any, run: Run, *, literal: bool = False) -> Confirmation:
        """Run the script."""

    def compiled(self, finding: Any, shown: Reproduced, run: Run) -> tuple[AnyFinding, Reproduced]:
        """Run a confirmed finding under `torch.compile`, and choose the script for people."""

    def issue(self, finding: Any, shown: Reproduced) -> str | None:
        """The issue for PyTorch's tracker; None for a bug of the user's own code."""


class _Aten:
    def script(self, finding: Finding, *, literal: bool = False) -> str:
        return of_target(finding, literal=literal).script

    def confirm(self, finding: Finding, run: Run, *, literal: bool = False) -> Confirmation:
        return confirmed(of_target(finding, literal=literal), run)

    def compiled(self, finding: Finding, shown: Reproduced, run: Run) -> tuple[Finding, Reproduced]:
        level = at_user_level(finding, shown, run, _backends(finding))
        return replace(finding, user_level=level.answers), level.reproduced

    def issue(self, finding: Finding, shown: Reproduced) -> str | None:
        return None if is_own(finding.target) else issue_text(finding, shown)


def _backends(finding: Finding) -> Sequence[str]:
    """The backends to ask: of a bug that has an issue, only the one whose layers show it.

    Inductor compiles C++, which takes seconds.
    """
    # No backend of torch has the user's code, or ours; what another one shows is no excuse.
    if is_own(finding.target) or not target_named(finding.target).excused:
        return ()
    known = known_bugs().get(finding.known or "")
    if known is None or not known.link:
        return BACKENDS
    return ("inductor",) if finding.target.startswith("inductor") else ("aot_eager",)


class _Python:
    """The script runs eager itself, beside `torch.compile`: it needs no control."""

    def script(self, finding: PythonFinding, *, literal: bool = False) -> str:
        return script(finding)

    def confirm(self, finding: PythonFinding, run: Run, *, literal: bool = False) -> Confirmation:
        return confirm_python(finding)

    def compiled(
        self, finding: PythonFinding, shown: Reproduced, run: Run
    ) -> tuple[PythonFinding, Reproduced]:
        return finding, shown

    def issue(self, finding: PythonFinding, shown: Reproduced) -> str:
        return python_issue(finding, shown.output)


_PUBLISHERS: dict[str, Publisher] = {ATEN: _Aten(), PYTHON: _Python()}


def publisher_of(finding: AnyFinding) -> Publisher:
    """What publishes findings of that language."""
    return _PUBLISHERS[finding.language]
