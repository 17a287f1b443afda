"""What the process that prints a reduction and those that try candidates send to each other."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from aliasproof.oracles.given_tolerance import NONE_GIVEN, GivenTolerance

if TYPE_CHECKING:  # it imports torch, and this module must not
    from aliasproof.ir.program import Program


@dataclass(frozen=True, slots=True)
class MinimizeRequest:
    """What to reduce: a file, the names of function and inputs in it, and what must stay.

    That is a difference that `target` shows. `oracle` names the oracle that reports it, also one
    that is documented or that only graphs show; without it, the main violation is meant. Without a
    target, a script of the user decides. `granted` are the targets that the command line names:
    these may be code of the user, and the target of a stored finding may not. The program is moved
    to `device`, if one is given, and values are compared within `tolerance`.
    """

    path: Path
    names: tuple[str, str] = ("program", "inputs")
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
