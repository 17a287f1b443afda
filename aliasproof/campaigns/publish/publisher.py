"""`Publisher`: the scripts and the issue of a finding, for each language of programs.

`published` makes the files of one finding; a campaign makes them step by step.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from aliasproof.campaigns.failure.finding import AnyFinding, Finding
from aliasproof.campaigns.publish.confirmation import (
    BACKENDS,
    Confirmation,
    Reproduced,
    Run,
    at_user_level,
    confirm,
    confirmed,
    of_target,
)
from aliasproof.campaigns.publish.issue_text import BY_FUZZER, issue_text
from aliasproof.campaigns.publish.python_issue import confirm_python, python_issue, script
from aliasproof.campaigns.publish.reproducer import renderings
from aliasproof.campaigns.store.run_folder import write_finding
from aliasproof.corpus.bug_files import known_bugs
from aliasproof.ir.program import Program
from aliasproof.ir.python_program import PythonProgram
from aliasproof.targets.names import ATEN, PYTHON
from aliasproof.targets.registry import is_own
from aliasproof.targets.registry import target as target_named

COMPILER_TIMEOUT = 300.0  # seconds: Inductor compiles C++


class Publisher(Protocol):
    """Shows findings by scripts for torch alone, which `Run` runs in fresh processes."""

    def script(self, finding: Any, *, literal: bool = False) -> str:
        """The script that shows a finding; `literal` writes no call as people do."""

    def scripts(self, finding: Any) -> Sequence[str]:
        """All its forms: another version of torch may show it by one of them alone."""

    def confirm(self, finding: Any, run: Run, *, literal: bool = False) -> Confirmation:
        """Run the script."""

    def compiled(self, finding: Any, shown: Reproduced, run: Run) -> tuple[AnyFinding, Reproduced]:
        """Run a confirmed finding under `torch.compile`, and choose the script for people."""

    def issue(self, finding: Any, shown: Reproduced, origin: str = BY_FUZZER) -> str | None:
        """The issue for PyTorch's tracker; None for a bug of the user's own code.

        `origin` says where or by what it was found.
        """


class _Aten:
    def script(self, finding: Finding[Program], *, literal: bool = False) -> str:
        return of_target(finding, literal=literal).script

    def scripts(self, finding: Finding[Program]) -> Sequence[str]:
        target = target_named(finding.target)
        return renderings(finding.program, target, finding.violation, exact=finding.exact)

    def confirm(
        self, finding: Finding[Program], run: Run, *, literal: bool = False
    ) -> Confirmation:
        return confirmed(of_target(finding, literal=literal), run)

    def compiled(
        self, finding: Finding[Program], shown: Reproduced, run: Run
    ) -> tuple[AnyFinding, Reproduced]:
        level = at_user_level(finding, shown, run, _backends(finding))
        return replace(finding, user_level=level.answers), level.reproduced

    def issue(
        self, finding: Finding[Program], shown: Reproduced, origin: str = BY_FUZZER
    ) -> str | None:
        return None if is_own(finding.target) else issue_text(finding, shown, origin)


def _backends(finding: Finding[Program]) -> Sequence[str]:
    """The backends to ask: of a bug that has an issue, only the one whose layers show it.

    Inductor compiles C++, which takes seconds.
    """
    # No backend of torch has the user's code, or ours; what another one shows is no excuse.
    if is_own(finding.target) or not target_named(finding.target).excused:
        return ()
    known = known_bugs().get(finding.known or "")
    if known is None or not known.link:
        return BACKENDS
    return ("inductor",) if finding.of_inductor else ("aot_eager",)


class _Python:
    """The script runs eager itself, beside `torch.compile`: it needs no control."""

    def script(self, finding: Finding[PythonProgram], *, literal: bool = False) -> str:
        return script(finding)

    def scripts(self, finding: Finding[PythonProgram]) -> Sequence[str]:
        return (script(finding),)

    def confirm(
        self, finding: Finding[PythonProgram], run: Run, *, literal: bool = False
    ) -> Confirmation:
        return confirm_python(finding, run)

    def compiled(
        self, finding: Finding[PythonProgram], shown: Reproduced, run: Run
    ) -> tuple[AnyFinding, Reproduced]:
        return finding, shown

    def issue(
        self, finding: Finding[PythonProgram], shown: Reproduced, origin: str = BY_FUZZER
    ) -> str:
        return python_issue(finding, shown.output, origin)


_PUBLISHERS: dict[str, Publisher] = {ATEN: _Aten(), PYTHON: _Python()}


def publisher_of(finding: AnyFinding) -> Publisher:
    """What publishes findings of that language."""
    return _PUBLISHERS[finding.language]


@dataclass(frozen=True, slots=True)
class Published:
    """A finding with its script, its issue, and notes on what the script showed.

    The issue is None for a bug of the user's own code, and if the script does not show the bug.
    """

    finding: AnyFinding
    script: str
    issue: str | None
    notes: Sequence[str]

    def write(self, folder: Path) -> Sequence[str]:
        """Write the files into a folder, and give the notes. Raises `OSError`."""
        write_finding(folder, self.finding)
        (folder / "reproducer.py").write_text(self.script, encoding="utf-8")
        if self.issue is not None:
            (folder / "issue.md").write_text(self.issue, encoding="utf-8")
        files = ", ".join(sorted(it.name for it in folder.iterdir()))
        return [*self.notes, f"{folder} has {files}"]


def published(finding: AnyFinding, run: Run | None = None, origin: str = BY_FUZZER) -> Published:
    """Run the script of a finding in fresh processes, also under `torch.compile`."""
    publisher, endings = publisher_of(finding), dict[str, str]()
    run = run or functools.partial(confirm, timeout=COMPILER_TIMEOUT)
    for literal in (False, True):
        text = publisher.script(finding, literal=literal)
        if text in endings:
            continue
        confirmation = publisher.confirm(finding, run, literal=literal)
        if confirmation.shown:
            reproduced = Reproduced(text, confirmation.output)
            finding, shown = publisher.compiled(finding, reproduced, run)
            level = finding.user_level.items()
            answers = [f"torch.compile(backend='{name}'): {answer}" for name, answer in level]
            issue = publisher.issue(finding, shown, origin)
            return Published(finding, shown.script, issue, answers)
        endings[text] = confirmation.ending
    ending = next(iter(endings.values()))
    return Published(finding, [*endings][-1], None, [f"the script does not show it: {ending}"])
