"""All faults: wrong passes on graphs, and wrong compilers of Python programs."""

from __future__ import annotations

from aliasproof.faults import (
    functionalization_faults,
    planning_faults,
    result_preserving_faults,
    rewriting_faults,
)
from aliasproof.faults.fault import Fault
from aliasproof.faults.python_faults import PYTHON_FAULTS, PythonFault
from aliasproof.ir.errors import UserError, did_you_mean

MODULES = (functionalization_faults, rewriting_faults, planning_faults, result_preserving_faults)
FAULTS: dict[str, Fault] = {fault.name: fault for module in MODULES for fault in module.FAULTS}
EVERY_FAULT: dict[str, Fault | PythonFault] = {**FAULTS, **PYTHON_FAULTS}


def fault_named(name: str) -> Fault | PythonFault:
    """The fault of that name. Its words may be separated by spaces or hyphens.

    Raises `UserError` with the nearest name if there is none.
    """
    plain = name.replace("-", " ")
    if plain in EVERY_FAULT:
        return EVERY_FAULT[plain]
    hint = did_you_mean(plain, EVERY_FAULT, otherwise="see aliasproof faults --list")
    raise UserError(f"unknown fault '{name}'{hint}")
