"""Oracle *bounds*: code writes only into its inputs, and into its buffers while they are live."""

from __future__ import annotations

from dataclasses import replace

from aliasproof.eager.trace import Trace
from aliasproof.ir.guarded_memory import StrayWrite
from aliasproof.oracles.contract import Contract, Difference, Promise
from aliasproof.oracles.observation import Observation
from aliasproof.oracles.oracle import Needs, Oracle, StandaloneCheck, shows_some
from aliasproof.oracles.verdict import HOLDS, Report, Violation

# For a reproducer: `aliasproof.ir.guarded_memory`, written with torch only.
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
GUARDED_INPUTS = '''

bare_inputs = inputs


def inputs():
    """The inputs, with such bytes around their storages."""
    tensors, storages = bare_inputs(), {}
    for tensor in tensors:
        storage = tensor.untyped_storage()
        if not storage.nbytes():
            continue
        if storage._cdata not in storages:
            memory = bytearray([pattern]) * (storage.nbytes() + 2048)
            inside = torch.frombuffer(memoryview(memory)[1024:-1024], dtype=torch.uint8)
            inside.copy_(torch.empty(0, dtype=torch.uint8).set_(storage))
            memories.append(torch.frombuffer(memory, dtype=torch.uint8))
            storages[storage._cdata] = inside.untyped_storage(), storage
        around, layout = storages[storage._cdata][0], (tensor.shape, tensor.stride())
        tensor.set_(around, tensor.storage_offset(), *layout)
    return tensors
'''


def judge(contract: Contract, eager: Observation, target: Observation, trace: Trace) -> Report:
    """Report each buffer whose red zone was written."""
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
    kind = f"writes {written.side}"
    if written.name.startswith("input "):
        kind = kind.replace("a buffer", "an input")
    return Violation("bounds", kind, written.name, {**by, **evidence})


_CHECK = StandaloneCheck(
    "how many bytes are written around each buffer, where some are",
    "written_around()",
    helper=GUARDED_BUFFERS + WRITTEN_AROUND,
    shows=shows_some,
)
_OF_INPUTS = replace(_CHECK, helper=_CHECK.helper + GUARDED_INPUTS)
ORACLE = Oracle(
    "bounds",
    "generated code writes nothing around its buffers and inputs",
    Needs.RESULTS,
    judge,
    replace(
        _CHECK,
        by_kind=(
            ("writes before the start of an input", _OF_INPUTS),
            ("writes behind the end of an input", _OF_INPUTS),
        ),
    ),
    reason="What is around a buffer belongs to others: a write there corrupts the heap.",
)
