"""All faults."""

from __future__ import annotations

import difflib

from faults import analysis, conditions, copies, epilogue, metadata, numbers, outputs, views, writes
from faults.fault import Fault
from programs.errors import UserError

FAULTS: dict[str, Fault] = {
    each.name: each
    for module in (conditions, epilogue, views, writes, copies, analysis, outputs, numbers, metadata)
    for each in module.FAULTS
}


def fault_named(name: str) -> Fault:
    """The fault of that name, in words or with hyphens. Raises `UserError` with the nearest name if there is none."""
    plain = name.replace("-", " ")
    if plain in FAULTS:
        return FAULTS[plain]
    near = difflib.get_close_matches(plain, FAULTS, n=1)
    hint = f"did you mean '{near[0]}'?" if near else "see docs/faults.md for all of them"
    raise UserError(f"unknown fault '{name}'; {hint}")
