"""`published`: the files of one finding, made and confirmed at once."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from aliasproof.campaigns.publish.confirmation import (
    Reproduced,
    Run,
    at_user_level,
    confirm,
    confirmed,
    of_target,
)
from aliasproof.campaigns.publish.issue_text import BY_FUZZER, issue_text
from aliasproof.campaigns.publish.python_issue import confirm_python, python_issue
from aliasproof.campaigns.publish.python_issue import script as python_script
from aliasproof.campaigns.store.finding import AnyFinding, Finding, PythonFinding
from aliasproof.campaigns.store.run_folder import write_finding
from aliasproof.targets.registry import is_own

COMPILER_TIMEOUT = 300.0  # seconds: Inductor compiles C++


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
        return [
            *self.notes,
            f"{folder} has {', '.join(sorted(it.name for it in folder.iterdir()))}",
        ]


def published(finding: AnyFinding, run: Run | None = None, origin: str = BY_FUZZER) -> Published:
    """Run the script of a finding in fresh processes, also under `torch.compile`.

    `origin` says in the issue where or by what it was found.
    """
    if isinstance(finding, PythonFinding):
        shown_by, text = confirm_python(finding), python_script(finding)
        if shown_by.shown:
            return Published(finding, text, python_issue(finding, shown_by.output, origin), [])
        return Published(finding, text, None, [f"the script does not show it: {shown_by.ending}"])
    run = run or functools.partial(confirm, timeout=COMPILER_TIMEOUT)
    ending, reproducer = "", of_target(finding)
    for literal in (False, True):
        reproducer = of_target(finding, literal=literal)
        confirmation = confirmed(reproducer, run)
        if confirmation.shown:
            shown = Reproduced(reproducer.script, confirmation.output)
            return _with_compile(finding, shown, run, origin)
        ending = ending or confirmation.ending
    return Published(finding, reproducer.script, None, [f"the script does not show it: {ending}"])


def _with_compile(finding: Finding, shown: Reproduced, run: Run, origin: str) -> Published:
    if is_own(finding.target):
        return Published(finding, shown.script, None, [])
    level = at_user_level(finding, shown, run)
    finding = replace(finding, user_level=level.answers)
    answers = [f"torch.compile(backend='{name}'): {it}" for name, it in level.answers.items()]
    script = level.reproduced.script
    return Published(finding, script, issue_text(finding, level.reproduced, origin), answers)
