"""`replay`: runs the reproducers of a run's findings under other versions of torch."""

from __future__ import annotations

import functools
import os
import subprocess
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from campaigns.reproducer import Confirmation, confirm
from programs.errors import UserError

STILL, FIXED, CHANGED, REGRESSED = "still failing", "fixed", "changed", "regressed"
_VERSION = "import torch; print(torch.__version__)"


@dataclass(frozen=True, slots=True)
class Replayed:
    """What became of a finding in a version of torch. `ending` says how its reproducer ended."""

    finding: str
    torch: str
    word: str
    ending: str


def replay(
    run: Path, interpreters: Sequence[Path], was_fixed: Callable[[str, str], bool]
) -> Iterator[Replayed]:
    """Run each reproducer under each of these interpreters of Python.

    `was_fixed` says whether a finding was fixed before a version of torch: if it shows again, it
    has regressed. Raises `UserError` if an interpreter has no torch, or if the run has no findings.
    """
    scripts = sorted(run.glob("findings/*/reproducer.py"))
    if not scripts:
        raise UserError(f"{run} has no findings/*/reproducer.py; name the folder of a run")
    # Not resolved: a link of a virtual environment is not its target.
    versions = {python.absolute(): _torch_of(python) for python in interpreters}
    with ThreadPoolExecutor(os.cpu_count()) as executor:
        for python, version in versions.items():
            ran = executor.map(functools.partial(confirm, interpreter=python), scripts)
            for script, confirmation in zip(scripts, ran, strict=True):
                name = script.parent.name
                word = _word(confirmation, was_fixed=was_fixed(name, version))
                yield Replayed(name, version, word, confirmation.ending)


def _word(confirmation: Confirmation, *, was_fixed: bool) -> str:
    if confirmation.shown:
        return REGRESSED if was_fixed else STILL
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
