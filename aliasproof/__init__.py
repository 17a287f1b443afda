"""The public names, for scripts and tests. Each is imported when it is first used.

>>> import aliasproof
>>> aliasproof.check(my_function, my_inputs, targets=["aot"]).violated
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

# Type checkers and editors read these imports. At run time, `__getattr__` replaces them.
if TYPE_CHECKING:
    from aliasproof.campaigns.failure.finding import Finding
    from aliasproof.campaigns.run.campaign import Campaign
    from aliasproof.campaigns.run.fuzz import fuzz
    from aliasproof.campaigns.store.plan import Plan
    from aliasproof.campaigns.store.run_folder import read_finding, read_findings
    from aliasproof.checks.assertions import NotJudged, assert_equivalent
    from aliasproof.checks.check import check
    from aliasproof.generators.features import Features
    from aliasproof.generators.strategies import sample
    from aliasproof.ir.errors import InternalError, Rejected, UserError
    from aliasproof.ir.parsing import parse_source
    from aliasproof.ir.printing import inputs_source, source
    from aliasproof.ir.program import Input, Instruction, Program, Ref, Storage
    from aliasproof.ir.serialization import dumps, loads
    from aliasproof.oracles.check_result import Check
    from aliasproof.oracles.verdict import Report, Verdict, Violation
    from aliasproof.running_model.checking_backend import checking_compiled
    from aliasproof.targets.registry import TARGETS, target
    from aliasproof.targets.target import Target

# Importing torch takes seconds, and `import aliasproof` should take none.
_HOMES = {
    "aliasproof.checks.assertions": ("NotJudged", "assert_equivalent"),
    "aliasproof.checks.check": ("check",),
    "aliasproof.campaigns.run.campaign": ("Campaign",),
    "aliasproof.campaigns.failure.finding": ("Finding",),
    "aliasproof.campaigns.run.fuzz": ("fuzz",),
    "aliasproof.campaigns.store.plan": ("Plan",),
    "aliasproof.campaigns.store.run_folder": ("read_finding", "read_findings"),
    "aliasproof.ir.errors": ("InternalError", "Rejected", "UserError"),
    "aliasproof.ir.parsing": ("parse_source",),
    "aliasproof.ir.printing": ("inputs_source", "source"),
    "aliasproof.ir.program": ("Input", "Instruction", "Program", "Ref", "Storage"),
    "aliasproof.ir.serialization": ("dumps", "loads"),
    "aliasproof.generators.features": ("Features",),
    "aliasproof.generators.strategies": ("sample",),
    "aliasproof.oracles.check_result": ("Check",),
    "aliasproof.oracles.verdict": ("Report", "Verdict", "Violation"),
    "aliasproof.running_model.checking_backend": ("checking_compiled",),
    "aliasproof.targets.registry": ("TARGETS", "target"),
    "aliasproof.targets.target": ("Target",),
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
    "checking_compiled",
    "dumps",
    "fuzz",
    "inputs_source",
    "loads",
    "parse_source",
    "read_finding",
    "read_findings",
    "sample",
    "source",
    "target",
]


def __getattr__(name: str) -> object:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOME_OF[name]), name)
    # From now on Python finds the name without calling this function.
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
