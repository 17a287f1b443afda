"""Whether a finding also shows under `torch.compile`, which is what users call.

Once per finding, after it is confirmed: Inductor compiles C++, which takes seconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from aliasproof.campaigns.publish.confirmation import (
    OTHER_EVIDENCE,
    SHOWS_EAGER,
    Confirmation,
    Run,
    confirm,
    confirmed,
)
from aliasproof.campaigns.publish.reproducer import Compiler, Reproducer
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
    finding: Finding, shown: Reproduced, run: Run = confirm, backends: Sequence[str] = BACKENDS
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
        for reproducer in of_backend(finding, backend):
            confirmation = confirmed(reproducer, run)
            answers[backend] = answer(finding.violation, confirmation)
            if confirmation.shown:
                reproduced = reproduced or Reproduced(reproducer.script, confirmation.output)
                break
    return UserLevel(answers, reproduced or with_ordinary_syntax(finding, shown, run))


def with_ordinary_syntax(finding: Finding, shown: Reproduced, run: Run = confirm) -> Reproduced:
    """The reproducer of the target as a user would write it, if it still shows the finding."""
    reproducer = of_target(finding, near=True)
    if reproducer.script == shown.script:
        return shown
    confirmation = confirmed(reproducer, run)
    return Reproduced(reproducer.script, confirmation.output) if confirmation.shown else shown


def of_target(finding: Finding, *, near: bool = False, literal: bool = False) -> Reproducer:
    """The reproducer of a finding for its target."""
    compiler = replace(Compiler.of_target(target(finding.target)), near=near)
    return Reproducer(finding.program, compiler, finding.violation, finding.exact, literal)


def of_backend(finding: Finding, backend: str) -> list[Reproducer]:
    """The reproducer as a user would write it, and the exact one if that is another."""
    compilers = (Compiler.of_backend(backend, finding.target, near=near) for near in (True, False))
    reproducers = (
        Reproducer(finding.program, compiler, finding.violation, finding.exact)
        for compiler in compilers
    )
    return list({reproducer.script: reproducer for reproducer in reproducers}.values())


def every_reproducer(finding: Finding) -> list[Reproducer]:
    """All that are tried for a finding, those that users understand best first."""
    backends = (reproducer for backend in BACKENDS for reproducer in of_backend(finding, backend))
    literal = of_target(finding, literal=True)
    return [*backends, of_target(finding, near=True), of_target(finding), literal]


def answer(violation: Violation, confirmation: Confirmation) -> str:
    """What a run of a script with `torch.compile` says about a violation."""
    if confirmation.shown:
        return SHOWS
    if confirmation.ending == "exits 0":
        return DOES_NOT_SHOW
    if confirmation.ending.startswith(SHOWS_EAGER):
        return 'shows, as it does with `backend="eager"`'
    lines = [line.strip() for line in confirmation.output.splitlines() if line.strip()]
    if confirmation.ending == OTHER_EVIDENCE:
        what = "raises another error" if violation.oracle == "errors" else "shows another result"
        start = "differs:" if any(line.startswith("differs:") for line in lines) else "actual:"
        seen = next((line for line in lines if line.startswith(start)), "")
        return f"{what}: {seen.removeprefix(start).strip()}"
    # An error where values were to be compared: Python prints it last.
    return f"the script {confirmation.ending}" + (f": {lines[-1]}" if lines else "")
