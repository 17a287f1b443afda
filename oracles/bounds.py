"""Oracle *bounds*: generated code writes only into its buffers, while they are alive."""

from __future__ import annotations

from aliasproof.eager.trace import Trace
from aliasproof.ir.guarded_memory import StrayWrite
from aliasproof.oracles.contract import Contract, Difference, Promise
from aliasproof.oracles.observation import Observation
from aliasproof.oracles.oracle import Needs, Oracle, StandaloneCheck, shows_some
from aliasproof.oracles.verdict import HOLDS, Report, Violation

# For a script: what `aliasproof.ir.guarded_memory` does, for torch alone.
GUARDED_BUFFERS = '''
memories, pattern = [], 255


def guarded(size, stride, dtype):
    """A buffer of generated code, between 1024 bytes on each side that nobody may write."""
    last = sum((length - 1) * step for length, step in zip(size, stride))
    nbytes = (last + 1) * dtype.itemsize if all(size) else 0
    memories.append(torch.full((nbytes + 2048,), pattern, dtype=torch.uint8))
    return memories[-1][1024 : 1024 + nbytes].view(dtype).as_strided(size, stride)


torch._C._dynamo.guards._empty_strided_cpu = guarded
'''
WRITTEN_AROUND = '''

def written_around():
    """How many bytes are written around each buffer, where some are."""
    zones = [zone for memory in memories for zone in (memory[:1024], memory[-1024:])]
    return [int((zone != pattern).sum()) for zone in zones if (zone != pattern).any()]
'''


def judge(contract: Contract, eager: Observation, target: Observation, trace: Trace) -> Report:
    """Report each buffer with bytes around it that were written."""
    if target.memory is None:
        return HOLDS
    differences = [
        Difference(Promise.BOUNDS, _violation(written))
        for written in dict.fromkeys(target.memory.stray)
    ]
    return contract.report(differences, trace)


def _violation(written: StrayWrite) -> Violation:
    evidence = {
        "layout": written.layout,
        "bytes": written.nbytes,
        "distance": written.distance,
        "picture": written.picture,
    }
    by = {"written by": written.writer} if written.writer else {}
    return Violation("bounds", f"writes {written.side}", written.name, {**by, **evidence})


ORACLE = Oracle(
    "bounds",
    "generated code writes nothing around its buffers",
    Needs.RESULTS,
    judge,
    StandaloneCheck(
        "how many bytes are written around each buffer, where some are",
        "written_around()",
        helper=GUARDED_BUFFERS + WRITTEN_AROUND,
        shows=shows_some,
    ),
    reason="What is around a buffer belongs to others: a write there corrupts the heap.",
)
