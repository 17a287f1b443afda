"""Programs that a target got wrong in earlier campaigns, as they were reduced there.

They were collected before signatures told causes, so each of the known bugs is there in several
forms. They say what a change of the signatures is worth.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

from aliasproof.ir.program import Program
from aliasproof.ir.serialization import from_json

_FILE = Path(__file__).with_name("failing.json")


class FailingProgram(NamedTuple):
    """A program, and the target that it ran through."""

    target: str
    program: Program


def failing_programs() -> list[FailingProgram]:
    """All of them, in a fixed order."""
    entries = json.loads(_FILE.read_text(encoding="utf-8"))
    return [FailingProgram(entry["target"], from_json(entry["program"])) for entry in entries]
