"""The scripts and the issue of a finding, for each language of programs.

`publish_finding` writes the files of one finding; a campaign makes them step by step.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from aliasproof.campaigns.failure.finding import AnyFinding
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
from aliasproof.campaigns.store.run_folder import write_finding
from aliasproof.corpus.bug_files import known_bugs
from aliasproof.targets.names import PYTHON
from aliasproof.targets.registry import is_own
from aliasproof.targets.registry import target as target_named

COMPILER_TIMEOUT = 300.0  # seconds: Inductor compiles C++


def script_of(finding: Any, *, literal: bool = False) -> str:
    """The script that shows a finding; with `literal`, no call is in ordinary syntax."""
    if finding.language == PYTHON:
        return script(finding)
    return of_target(finding, literal=literal).script


def scripts_of(finding: AnyFinding) -> list[str]:
    """All forms of the script: another version of torch may show the bug in only one of them."""
    texts = (script_of(finding, literal=literal) for literal in (False, True))
    return list(dict.fromkeys(texts))


def confirm_finding(finding: Any, run: Run, *, literal: bool = False) -> Confirmation:
    """Run the script of a finding. That of a Python program needs no control: it runs eager."""
    if finding.language == PYTHON:
        return confirm_python(finding, run)
    return confirmed(of_target(finding, literal=literal), run)


def run_compiled(finding: Any, shown: Reproduced, run: Run) -> tuple[AnyFinding, Reproduced]:
    """Run a confirmed finding under `torch.compile`, and choose the script for people.

    A bug that has an issue runs only under the backend whose layers show it: Inductor compiles C++,
    which takes seconds.
    """
    if finding.language == PYTHON:
        return finding, shown
    backends: Sequence[str] = BACKENDS
    known = known_bugs().get(finding.known or "")
    # No backend of torch has the user's code, or ours; and no backend excuses a wrong target.
    if is_own(finding.target) or not target_named(finding.target).excused:
        backends = ()
    elif known is not None and known.link:
        backends = ("inductor",) if finding.of_inductor else ("aot_eager",)
    return at_user_level(finding, shown, run, backends)


def issue_of(finding: Any, shown: Reproduced, origin: str = BY_FUZZER) -> str | None:
    """The issue for PyTorch's tracker; None for a bug of the user's own code.

    `origin` says where or by what it was found.
    """
    if finding.language == PYTHON:
        return python_issue(finding, shown.output, origin)
    return None if is_own(finding.target) else issue_text(finding, shown, origin)


def publish_finding(finding: AnyFinding, folder: Path, origin: str = BY_FUZZER) -> list[str]:
    """Run the script of a finding in fresh processes, also under `torch.compile`.

    Writes the finding with its script and its issue into a folder; there is no issue for a bug of
    the user's own code, and if the script does not show the bug. Returns notes on what the script
    showed, and on the files. Raises `OSError`.
    """
    endings: dict[str, str] = {}
    run = functools.partial(confirm, timeout=COMPILER_TIMEOUT)
    for literal in (False, True):
        text = script_of(finding, literal=literal)
        if text in endings:
            continue
        confirmation = confirm_finding(finding, run, literal=literal)
        if confirmation.shown:
            finding, shown = run_compiled(finding, Reproduced(text, confirmation.output), run)
            write_finding(folder, finding, shown.script, issue_of(finding, shown, origin))
            level = finding.user_level.items()
            notes = [f"torch.compile(backend='{name}'): {answer}" for name, answer in level]
            break
        endings[text] = confirmation.ending
    else:
        write_finding(folder, finding, [*endings][-1])
        notes = [f"the script does not show it: {next(iter(endings.values()))}"]
    files = ", ".join(sorted(it.name for it in folder.iterdir()))
    return [*notes, f"{folder} has {files}"]
