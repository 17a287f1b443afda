"""Oracle *errors*: the target raises if and only if eager raises."""

from __future__ import annotations

import re

from oracles.contract import Contract, Promise
from oracles.observation import Observation
from oracles.verdict import HOLDS, Report, Violation, decided, not_applicable
from programs.trace import Trace


def judge(contract: Contract, eager: Observation, target: Observation, trace: Trace) -> Report:
    """Look at whether each of the two raised; a documented refusal of the target is not applicable."""
    if target.error is not None and eager.error is None:
        refusal = contract.refusal(target.error, trace)
        if refusal is not None:
            return not_applicable(f"refused as documented: {refusal.reason}")
        if contract.promises(Promise.NO_NEW_ERROR, trace):
            evidence = {"message": str(target.error)[:2000], "type": type(target.error).__name__}
            return decided(
                [Violation("errors", f"raises {skeleton(target.error)}", "call", evidence)]
            )
    if (
        eager.error is not None
        and target.error is None
        and contract.promises(Promise.SAME_ERROR, trace)
    ):
        evidence = {"message": str(eager.error)[:2000], "type": type(eager.error).__name__}
        return decided(
            [Violation("errors", f"does not raise {type(eager.error).__name__}", "call", evidence)]
        )
    return HOLDS


def skeleton(error: BaseException) -> str:
    """Type and first line of the message with numbers, addresses and names of values taken out."""
    lines = str(error).strip().splitlines()
    text = re.sub(r"0x[0-9a-f]+|\bv?\d+\b|\[[^\]]*\]", "#", lines[0] if lines else "")
    text = re.sub(r"-?\d+|-#", "#", text)
    text = re.sub(r"(?<!\w)\(#?(, ?#)*,?\)", "(#)", text)  # shapes of whatever rank
    return f"{type(error).__name__}: {text[:120]}".rstrip(": ")
