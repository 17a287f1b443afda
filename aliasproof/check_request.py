"""What the process that prints a check and the one that runs it send to each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from aliasproof.oracles.check_result import EagerResult


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
    """The eager run without its tensors, with notes on the function, and the oracles by name.

    `targets` names the targets, each with the target that it builds on.
    """

    eager: EagerResult
    notes: tuple[str, ...]
    targets: Mapping[str, str | None]
    oracles: tuple[str, ...]
