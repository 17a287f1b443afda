"""How each known bug shows, in a version of torch that has it: what its reproducer looks for.

`shown.json` is generated (`python tests/corpus/shown_bugs.py > shown.json`), each entry with a
reproducer that was run. So a torch in which the bug is gone can be asked for it, too.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("shown.json")


@dataclass(frozen=True, slots=True)
class ShownDifference:
    """The difference that a target shows on the program of a bug: oracle, kind and place.

    `exact` says whether outputs are compared without tolerance. With `literal`, the reproducer
    calls the ops themselves. `error` is the type of the error, if one is raised.
    """

    target: str
    oracle: str
    kind: str
    place: str
    exact: bool
    literal: bool = False
    error: str = ""


def shown_differences() -> dict[str, ShownDifference]:
    """By the identifier of the bug."""
    entries: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    return {identifier: ShownDifference(**entry) for identifier, entry in entries.items()}
