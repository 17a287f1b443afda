"""The public names, for scripts and tests. Each is imported when it is first used.

>>> import aliasproof
>>> aliasproof.check(my_function, my_inputs, targets=["aot"]).violated
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from aliasproof.shadowing import require_own_packages

# Type checkers and editors read these imports. At run time, `__getattr__` replaces them.
if TYPE_CHECKING:
    from aliasproof.assertions import NotJudged, assert_equivalent
    from aliasproof.checking import check
    from campaigns.campaign import Campaign
    from campaigns.finding import Finding
    from campaigns.fuzz import fuzz
    from campaigns.plan import Plan
    from campaigns.run_folder import read_finding, read_findings
    from generators.features import Features
    from generators.strategies import programs, sample
    from oracles.check_result import Check
    from oracles.verdict import Report, Verdict, Violation
    from programs.errors import InternalError, Rejected, UserError
    from programs.parsing import parse_source
    from programs.printing import inputs_source, source
    from programs.program import Input, Instruction, Program, Ref, Storage
    from programs.serialization import dumps, loads
    from targets.registry import TARGETS, target
    from targets.target import Target

# Importing torch takes seconds, and `import aliasproof` should take none.
_HOMES = {
    "aliasproof.assertions": ("NotJudged", "assert_equivalent"),
    "aliasproof.checking": ("check",),
    "campaigns.campaign": ("Campaign",),
    "campaigns.finding": ("Finding",),
    "campaigns.fuzz": ("fuzz",),
    "campaigns.plan": ("Plan",),
    "campaigns.run_folder": ("read_finding", "read_findings"),
    "programs.errors": ("InternalError", "Rejected", "UserError"),
    "programs.parsing": ("parse_source",),
    "programs.printing": ("inputs_source", "source"),
    "programs.program": ("Input", "Instruction", "Program", "Ref", "Storage"),
    "programs.serialization": ("dumps", "loads"),
    "generators.features": ("Features",),
    "generators.strategies": ("programs", "sample"),
    "oracles.check_result": ("Check",),
    "oracles.verdict": ("Report", "Verdict", "Violation"),
    "targets.registry": ("TARGETS", "target"),
    "targets.target": ("Target",),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "TARGETS",
    "Campaign",
    "Check",
    "Features",
    "Finding",
    "Input",
    "Instruction",
    "InternalError",
    "NotJudged",
    "Plan",
    "Program",
    "Ref",
    "Rejected",
    "Report",
    "Storage",
    "Target",
    "UserError",
    "Verdict",
    "Violation",
    "assert_equivalent",
    "check",
    "dumps",
    "fuzz",
    "inputs_source",
    "loads",
    "parse_source",
    "programs",
    "read_finding",
    "read_findings",
    "sample",
    "source",
    "target",
]


def __getattr__(name: str) -> object:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    require_own_packages()
    value = getattr(importlib.import_module(_HOME_OF[name]), name)
    # From now on Python finds the name without calling this function.
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
