"""What to reduce, and how: the options of a command, which it sends to worker processes."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from aliasproof.checks.isolated_check import MEMORY_SHARE
from aliasproof.ir.errors import UserError
from aliasproof.oracles.given_tolerance import NONE_GIVEN, GivenTolerance
from aliasproof.processes.isolation import Limits, memory_available
from aliasproof.user_code.given_path import DEFAULT_NAMES, FileNames

if TYPE_CHECKING:  # it imports torch, and this module must not
    from aliasproof.ir.program import Program


# Names, since the functions run in another process.
SESSION = "aliasproof.minimization.minimize_session"


@dataclass(frozen=True, slots=True)
class MinimizeRequest:
    """What to reduce: a file, the names of its function and inputs, and the difference to keep.

    `target` shows the difference, and `oracle` reports it; the oracle may report one that is
    documented or that only graphs show. Without an oracle, the main violation is kept. Without a
    target, a script of the user decides. `granted` are the targets that the command line names:
    these may be the user's code, while the target of a stored finding may not. The program is moved
    to `device`, if one is given, and values are compared within `tolerance`.
    """

    path: Path
    names: FileNames = DEFAULT_NAMES
    target: str | None = None
    oracle: str | None = None
    device: str | None = None
    granted: tuple[str, ...] = ()
    tolerance: GivenTolerance = NONE_GIVEN


@dataclass(frozen=True, slots=True)
class Subject:
    """The program to reduce, and notes on how it was lifted.

    `user_code` is true if the program calls operators that the user's file defines.
    """

    program: Program
    notes: tuple[str, ...] = ()
    user_code: bool = False


@dataclass(frozen=True, slots=True)
class MinimizeOptions:
    """How to reduce: the script that decides instead of a target, and the files of the result."""

    interesting: Path | None = None
    output: Path | None = None
    workers: int | None = None
    limit: float = 60.0
    as_json: bool = False
    finding: Path | None = None
    resume: Path | None = None
    repeat: int = 1

    @property
    def count(self) -> int:
        return self.workers or len(os.sched_getaffinity(0))

    @property
    def limits(self) -> Limits:
        """The limits of one process."""
        return Limits(self.limit, int(MEMORY_SHARE * memory_available() / self.count))

    def validate(self, request: MinimizeRequest) -> None:
        """Raises `UserError` for options that do not fit together."""
        self.require_judge(request)
        if self.interesting is not None and self.finding is not None:
            raise UserError("--finding belongs to --target; a script does not say what is wrong")
        if self.finding is not None and self.finding.exists():
            raise UserError(f"--finding {self.finding}: it exists; name a new folder")
        if self.interesting is not None and request.oracle is not None:
            raise UserError("--oracle belongs to --target; with --interesting, the script decides")
        if self.interesting is not None and not os.access(self.interesting, os.X_OK):
            raise UserError(f"{self.interesting} is not an executable file; try chmod +x")
        if self.output is not None and self.output.suffix not in (".py", ".json"):
            raise UserError(f"--output {self.output}: give a name that ends in .py or .json")

    def require_judge(self, request: MinimizeRequest) -> None:
        """Raises `UserError` if both a target and a script are given."""
        if self.interesting is not None and request.target is not None:
            raise UserError("give either --target or --interesting: one of them says what to keep")
