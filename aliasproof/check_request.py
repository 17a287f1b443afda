"""What the process that prints a check and the one that runs it send to each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from aliasproof.reports.shown_runs import ShownEager


@dataclass(frozen=True, slots=True)
class CheckRequest:
    """What to check: a file, the names of function and inputs in it, and the targets.

    Without targets, the default ones are meant. The inputs are moved to `device`; without one, they
    stay where they are.
    """

    path: Path
    names: tuple[str, str] = ("program", "inputs")
    targets: tuple[str, ...] = ()
    missed: bool = False
    device: str | None = None


@dataclass(frozen=True, slots=True)
class Begun:
    """The eager run, and the targets by name, each with the target that it builds on."""

    eager: ShownEager
    targets: Mapping[str, str | None]
