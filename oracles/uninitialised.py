"""Oracle *uninitialised*: no result of generated code depends on memory that nothing wrote.

The code runs twice, with two poison patterns in fresh buffers and around them. Programs that are
undefined in eager were rejected before, so if a result changes, the target loads fresh memory.
"""

from __future__ import annotations

from aliasproof.eager.trace import Trace
from aliasproof.oracles.bounds import GUARDED_BUFFERS
from aliasproof.oracles.contract import Contract, Difference, Promise
from aliasproof.oracles.observation import Observation
from aliasproof.oracles.oracle import Needs, Oracle, StandaloneCheck, shows_change
from aliasproof.oracles.verdict import HOLDS, Report, Violation

KIND = "depends on memory that nothing wrote"


def judge(contract: Contract, eager: Observation, target: Observation, trace: Trace) -> Report:
    """Report each result whose values depend on the pattern in fresh memory."""
    if target.memory is None:
        return HOLDS
    differences = []
    for found in target.memory.dependent:
        evidence = {
            "first wrong index": found.index,
            "wrong elements": found.count,
            "with one pattern": str(found.values[0]),
            "with another": str(found.values[1]),
        }
        if found.picture:
            evidence["picture"] = found.picture
        shown = Violation("uninitialised", KIND, found.place, evidence)
        differences.append(Difference(Promise.INITIALISED, shown))
    return contract.report(differences, trace)


DEPENDS = '''

def depends(function, result):
    """Whether a result is another one where fresh memory has another pattern."""
    global pattern
    seen = []
    for pattern in 255, 123:
        args = inputs()
        outputs = function(*args)
        outputs = outputs if isinstance(outputs, (list, tuple)) else [outputs]
        seen.append(torch.as_tensor(result(args, outputs)).to(torch.complex128))
    return not torch.allclose(*seen, equal_nan=True)
'''

ORACLE = Oracle(
    "uninitialised",
    "no result depends on memory that nothing wrote",
    Needs.RESULTS,
    judge,
    StandaloneCheck(
        "whether FIRST depends on what fresh memory contains",
        "depends(function, lambda args, outputs: FIRST)",
        helper=GUARDED_BUFFERS + DEPENDS,
        shows=shows_change(expected=False, actual=True),
    ),
    reason="What memory contains before it is written is left there by others, and by chance.",
)
