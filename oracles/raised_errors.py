"""Oracle *errors*: the target raises if and only if eager raises."""

from __future__ import annotations

import re

from oracles.contract import Contract, Promise
from oracles.observation import Observation
from oracles.oracle import Needs, Oracle
from oracles.standalone_check import StandaloneCheck
from oracles.verdict import HOLDS, Report, Violation, decided, not_applicable
from programs.trace import Trace

_MOST_CHARACTERS = 2000  # of a message, in the evidence: some of torch's hold a whole graph


def judge(contract: Contract, eager: Observation, target: Observation, trace: Trace) -> Report:
    """Compare whether eager and target raised; a documented refusal is not applicable."""
    # Both may raise: which error comes first may differ, and users see one either way.
    if target.error is not None and eager.error is None:
        refusal = contract.refusal(target.error, trace)
        if refusal is not None:
            return not_applicable(f"refused as documented: {refusal.reason}")
        if contract.promises(Promise.NO_NEW_ERROR, trace):
            return _violated(f"raises {skeleton(target.error)}", target.error)
    if (
        eager.error is not None
        and target.error is None
        and contract.promises(Promise.SAME_ERROR, trace)
    ):
        return _violated(f"does not raise {type(eager.error).__name__}", eager.error)
    return HOLDS


def _violated(kind: str, error: Exception) -> Report:
    evidence = {"message": str(error)[:_MOST_CHARACTERS], "type": type(error).__name__}
    return decided([Violation("errors", kind, "call", evidence)])


def skeleton(error: BaseException) -> str:
    """The type and the first line of the message, without numbers, addresses and value names.

    So the same error in two programs has the same skeleton.
    """
    # Later lines often hold a graph or a stack, which differ from program to program.
    lines = str(error).strip().splitlines()
    text = re.sub(r"0x[0-9a-f]+|\bv?\d+\b|\[[^\]]*\]", "#", lines[0] if lines else "")
    text = re.sub(r"-?\d+|-#", "#", text)
    text = re.sub(r"(?<!\w)\(#?(, ?#)*,?\)", "(#)", text)  # shapes of any rank
    return f"{type(error).__name__}: {text[:120]}".rstrip(": ")


ORACLE = Oracle(
    "errors",
    "raises if and only if eager raises",
    Needs.RESULTS,
    judge,
    # The reproducer of an error has a part of its own: it compares whether eager and target raise.
    StandaloneCheck("nothing", "None"),
)
