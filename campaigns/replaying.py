"""`replay`: runs reproducers under several versions of torch: of findings, or of known bugs."""

from __future__ import annotations

import functools
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from campaigns.known_reproducers import is_said_to_be_fixed, known_reproducer
from campaigns.reproducer import Confirmation, confirm
from corpus.known_bugs import KNOWN_BUGS
from corpus.shown_differences import shown_differences
from programs.errors import UserError

STILL, FIXED, CHANGED, REGRESSED = "still failing", "fixed", "changed", "regressed"
_VERSION = "import torch; print(torch.__version__)"
_REPRODUCERS = ("findings/*/reproducer.py", "*/reproducer.py", "reproducer.py")


@dataclass(frozen=True, slots=True)
class Replayable:
    """The reproducer of a bug, and whether the bug is said to be fixed in a version of torch."""

    name: str
    script: Path
    said_to_be_fixed: Callable[[str], bool]


@dataclass(frozen=True, slots=True)
class Replayed:
    """What became of a bug in a version of torch. `ending` says how its reproducer ended."""

    finding: str
    torch: str
    word: str
    ending: str


def findings_of(
    folder: Path, was_fixed: Callable[[str, str], bool] | None = None
) -> list[Replayable]:
    """The findings of a run, or those in a folder.

    `was_fixed` says whether a finding of a run was fixed before a version of torch. Raises
    `UserError` if a folder that is no run has no findings.
    """
    scripts = [script for pattern in _REPRODUCERS for script in sorted(folder.glob(pattern))]
    if not scripts and was_fixed is None:
        raise UserError(
            f"{folder} has no findings/*/reproducer.py and no */reproducer.py; name a run, a folder"
            " of findings, or nothing for the known bugs of torch"
        )
    return [_finding(script, was_fixed or _never) for script in scripts]


def _never(name: str, version: str) -> bool:
    return False


def _finding(script: Path, was_fixed: Callable[[str, str], bool]) -> Replayable:
    name = script.resolve().parent.name
    return Replayable(name, script, functools.partial(was_fixed, name))


@contextmanager
def known_bugs() -> Iterator[list[Replayable]]:
    """The known bugs of torch, whose files say in which versions they were seen."""
    shown = shown_differences()
    with tempfile.TemporaryDirectory(prefix="aliasproof-") as temporary:
        found = []
        for identifier, bug in KNOWN_BUGS.items():
            script = Path(temporary) / identifier / "reproducer.py"
            script.parent.mkdir()
            script.write_text(known_reproducer(bug, shown[identifier]), encoding="utf-8")
            fixed = functools.partial(is_said_to_be_fixed, bug)
            found.append(Replayable(identifier, script, fixed))
        yield found


def replay(bugs: Sequence[Replayable], interpreters: Sequence[Path]) -> Iterator[Replayed]:
    """Run each reproducer under each of these interpreters of Python.

    A bug that is said to be fixed and shows has regressed. Raises `UserError` if an interpreter has
    no torch.
    """
    # Not resolved: a link of a virtual environment is not its target.
    versions = {python.absolute(): _torch_of(python) for python in interpreters}
    with ThreadPoolExecutor(os.cpu_count()) as executor:
        for python, version in versions.items():
            run = functools.partial(confirm, interpreter=python)
            confirmations = executor.map(run, [bug.script for bug in bugs])
            for bug, confirmation in zip(bugs, confirmations, strict=True):
                yield Replayed(
                    bug.name, version, _word(bug, version, confirmation), confirmation.ending
                )


def _word(bug: Replayable, version: str, confirmation: Confirmation) -> str:
    if confirmation.shown:
        return REGRESSED if bug.said_to_be_fixed(version) else STILL
    return FIXED if confirmation.ending == "exits 0" else CHANGED


def _torch_of(python: Path) -> str:
    """The version of torch of an interpreter."""
    command = [str(python), "-I", "-c", _VERSION]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UserError(f"--torch {python} cannot be run: {error}") from error
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
        raise UserError(f"--torch {python}: give an interpreter of Python that has torch ({last})")
    return done.stdout.strip()
