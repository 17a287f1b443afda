"""`replay`: runs reproducers of findings or of known bugs under several versions of torch.

The scripts are generated from the programs: the reproducer in a folder is never run.
"""

from __future__ import annotations

import functools
import os
import re
import subprocess
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from aliasproof.campaigns.publish.confirmation import confirm, run_text
from aliasproof.campaigns.publish.publisher import scripts_of
from aliasproof.campaigns.publish.reproducer import render
from aliasproof.campaigns.store.run_folder import read_finding
from aliasproof.corpus.bug_files import known_bugs
from aliasproof.corpus.known_bug import KnownBug, ShownDifference
from aliasproof.ir.errors import UserError
from aliasproof.oracles.verdict import Violation
from aliasproof.targets.registry import is_importable
from aliasproof.targets.registry import target as target_named


def known_reproducer(bug: KnownBug, shown: ShownDifference) -> str:
    """A script that needs only torch, and exits 1 while the bug exists."""
    evidence = {"type": shown.error} if shown.error else {}
    violation = Violation(shown.oracle, shown.kind, shown.place, evidence)
    target = target_named(shown.target)
    return render(bug.program, target, violation, exact=shown.exact, literal=shown.literal)


def is_said_to_be_fixed(bug: KnownBug, version: str) -> bool:
    """Whether the bug was fixed in this version of torch, according to the bug's file.

    It was, if some examined version does not have the bug, is later than all versions that have it,
    and is not later than this one. Development versions count as the release.
    """
    examined = {number_of(release) for other in known_bugs().values() for release in other.versions}
    last = max(map(number_of, bug.versions))
    later = [number for number in examined if number > last]
    return bool(later) and number_of(version) >= min(later)


def number_of(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])


STILL, FIXED, CHANGED, REGRESSED = "still failing", "fixed", "changed", "regressed"
NOT_RUN = "not run"
_VERSION = "import torch; print(torch.__version__)"
_FINDINGS = ("findings/*/finding.json", "*/finding.json", "finding.json")


@dataclass(frozen=True, slots=True)
class Replayable:
    """The reproducers of a bug, and whether the bug is said to be fixed in a version of torch.

    The bug shows if one of the scripts shows it. Without scripts, `reason` says why there are none.
    """

    name: str
    scripts: Sequence[str]
    said_to_be_fixed: Callable[[str], bool]
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Replayed:
    """Whether a bug shows in a version of torch. `ending` says how its reproducer ended."""

    finding: str
    torch: str
    word: str
    ending: str


def findings_of(
    folder: Path, was_fixed: Callable[[str, str], bool] | None = None
) -> list[Replayable]:
    """The findings of a run, or those in a folder.

    `was_fixed` says whether a finding of a run was fixed before a version of torch. Raises
    `UserError` if a folder that is no run has no findings, or one of them cannot be read.
    """
    files = [file for pattern in _FINDINGS for file in sorted(folder.glob(pattern))]
    if not files and was_fixed is None:
        raise UserError(
            f"{folder} has no findings/*/finding.json and no */finding.json; name a run, a folder"
            " of findings, or nothing for the known bugs of torch"
        )
    return [_finding(file.parent, was_fixed or (lambda name, version: False)) for file in files]


def _finding(folder: Path, was_fixed: Callable[[str, str], bool]) -> Replayable:
    name = folder.resolve().name
    fixed = functools.partial(was_fixed, name)
    stored = read_finding(folder)
    if not is_importable(stored.target):
        reason = f"a file names its code; give --target {stored.target}"
        return Replayable(name, (), fixed, reason)
    return Replayable(name, scripts_of(stored), fixed)


def replayable_known_bugs() -> list[Replayable]:
    """The known bugs of torch, whose files say in which versions they were seen.

    Without bugs of other compilers, which have versions of their own, and without bugs that show
    only with a vector width that this processor lacks: they would count as fixed.
    """
    return [
        Replayable(
            identifier,
            [known_reproducer(bug, bug.shown)],
            functools.partial(is_said_to_be_fixed, bug),
        )
        for identifier, bug in known_bugs().items()
        if bug.shown is not None and bug.shows_here
    ]


def replay(bugs: Sequence[Replayable], interpreters: Sequence[Path]) -> Iterator[Replayed]:
    """Run each reproducer under each of these interpreters of Python.

    A bug that was fixed but shows has regressed. Raises `UserError` if an interpreter has no torch.
    """
    # Not resolved: the link of a virtual environment is another interpreter than its target.
    versions = {python.absolute(): _torch_of(python) for python in interpreters}
    with ThreadPoolExecutor(os.cpu_count()) as executor:
        for python, version in versions.items():
            run = functools.partial(_replay, python=python, version=version)
            yield from executor.map(run, bugs)


def replay_scripts(texts: Sequence[str], interpreters: Sequence[Path]) -> list[Replayed]:
    """What scripts of one bug show under each interpreter, oldest torch first."""
    bug = Replayable("program", texts, lambda version: False)
    return sorted(replay([bug], interpreters), key=lambda replayed: number_of(replayed.torch))


def _replay(bug: Replayable, python: Path, version: str) -> Replayed:
    endings = []
    for script in bug.scripts:
        confirmation = run_text(script, functools.partial(confirm, interpreter=python))
        if confirmation.shown:
            word = REGRESSED if bug.said_to_be_fixed(version) else STILL
            return Replayed(bug.name, version, word, confirmation.ending)
        endings.append(confirmation.ending)
    if not endings:
        return Replayed(bug.name, version, NOT_RUN, bug.reason)
    other = [ending for ending in endings if ending != "exits 0"]
    return Replayed(bug.name, version, CHANGED if other else FIXED, (other or endings)[0])


def _torch_of(python: Path) -> str:
    command = [str(python), "-I", "-c", _VERSION]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UserError(f"--torch {python} cannot be run: {error}") from error
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
        raise UserError(f"--torch {python}: give an interpreter of Python that has torch ({last})")
    return done.stdout.strip()
