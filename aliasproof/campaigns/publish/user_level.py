"""Whether a finding also shows under `torch.compile`, which is what users call.

Once per finding, after it is confirmed: Inductor compiles C++, which takes seconds.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from aliasproof.campaigns.publish.reproducer import Compiler, Confirmation, confirm, script_for
from aliasproof.campaigns.store.finding import Finding
from aliasproof.oracles.verdict import Violation
from aliasproof.targets import inductor
from aliasproof.targets.registry import target

BACKENDS = ("aot_eager", "inductor")
SHOWS, DOES_NOT_SHOW = "shows", "does not show"
NOT_RUN = "not run, since the bug is known"


@dataclass(frozen=True, slots=True)
class Reproduced:
    """A script that showed a finding, and what it printed."""

    script: str
    output: str


@dataclass(frozen=True, slots=True)
class UserLevel:
    """What `torch.compile` does with the program of a finding.

    `answers` has for each backend "shows", "does not show", or what happened instead. A known bug
    that has an issue is not run under each.
    `reproduced` is the script to show to people: by `torch.compile` if the finding shows there.
    """

    answers: Mapping[str, str]
    reproduced: Reproduced


def at_user_level(
    finding: Finding,
    shown: Reproduced,
    run: Callable[[Path], Confirmation] = confirm,
    backends: Sequence[str] = BACKENDS,
) -> UserLevel:
    """Run the finding under these backends, each time in a fresh process.

    `shown` is the reproducer that confirmed it. If no backend shows the finding, the reproducer is
    tried again in ordinary syntax. There is no answer for a finding without `backends`.
    """
    answers = dict.fromkeys(BACKENDS if backends else (), NOT_RUN)
    reproduced: Reproduced | None = None
    for backend in backends:
        reason = inductor.unavailable() if backend == "inductor" else None
        if reason is not None:
            answers[backend] = f"not run, since it {reason}"
            continue
        for script in _scripts(finding, backend):
            confirmation = _run_script(script, run)
            answers[backend] = answer(finding.violation, confirmation)
            if answers[backend] == SHOWS:
                reproduced = reproduced or Reproduced(script, confirmation.output)
                break
    return UserLevel(answers, reproduced or with_ordinary_syntax(finding, shown, run))


def with_ordinary_syntax(
    finding: Finding, shown: Reproduced, run: Callable[[Path], Confirmation] = confirm
) -> Reproduced:
    """The reproducer of the target as a user would write it, if it still shows the finding."""
    compiler = replace(Compiler.of_target(target(finding.target)), near=True)
    script = script_for(finding.program, compiler, finding.violation, exact=finding.exact)
    if script == shown.script:
        return shown
    confirmation = _run_script(script, run)
    return Reproduced(script, confirmation.output) if confirmation.shown else shown


def _run_script(script: str, run: Callable[[Path], Confirmation]) -> Confirmation:
    with tempfile.TemporaryDirectory(prefix="aliasproof-") as folder:
        path = Path(folder) / "reproducer.py"
        path.write_text(script, encoding="utf-8")
        return run(path)


def _scripts(finding: Finding, backend: str) -> list[str]:
    """The script as a user would write it, and the exact one if that is another."""
    scripts = [
        script_for(
            finding.program,
            Compiler.of_backend(backend, finding.target, near=near),
            finding.violation,
            exact=finding.exact,
        )
        for near in (True, False)
    ]
    return list(dict.fromkeys(scripts))


def answer(violation: Violation, confirmation: Confirmation) -> str:
    """What a run of a script with `torch.compile` says about a violation."""
    if confirmation.shown and _same_error(violation, confirmation.output):
        return SHOWS
    if confirmation.ending == "exits 0":
        return DOES_NOT_SHOW
    lines = [line.strip() for line in confirmation.output.splitlines() if line.strip()]
    if confirmation.shown:
        raised = next((line for line in lines if line.startswith("actual:")), "")
        return f"raises another error: {raised.removeprefix('actual:').strip()}"
    # An error where values were to be compared: Python prints it last.
    return f"the script {confirmation.ending}" + (f": {lines[-1]}" if lines else "")


def _same_error(violation: Violation, output: str) -> bool:
    """Whether the output has the error of the violation; true if the violation is none."""
    if violation.oracle != "errors" or not violation.kind.startswith("raises"):
        return True
    lines = str(violation.evidence.get("message", "")).strip().splitlines()
    # Dynamo wraps errors, and names the backend in a line of its own. Numbers and names of nodes
    # differ, so only words are compared.
    lines = [line for line in lines if not line.startswith("backend=")]
    return _words(lines[0] if lines else "") in _words(output)


def _words(text: str) -> str:
    return " ".join(re.findall(r"[A-Za-z]{3,}", text))
