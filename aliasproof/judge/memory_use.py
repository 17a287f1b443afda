"""`memory_use`: what more runs show about what generated code does to its memory.

The first run is guarded and poisoned, which costs little. A run with another pattern tells which
results depend on it, and one that looks after each line tells which kernel writes around a buffer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch

from aliasproof.ir.guarded_memory import (
    NAN_BYTES,
    NUMBER_BYTES,
    Dependent,
    GuardedMemory,
    MemoryUse,
    first_dependent,
)
from aliasproof.oracles.observation import Observation


def memory_use(
    first: Observation, run_again: Callable[[GuardedMemory], Observation]
) -> MemoryUse | None:
    """What the target did to its memory in a run that was guarded, and in equal runs."""
    if first.memory is None or first.error is not None:
        return first.memory
    stray = first.memory.stray
    if stray:
        named = GuardedMemory(naming=True)
        run_again(named)
        stray = tuple(named.stray) or stray
    dependent = {found.place: found for found in _dependent(first, run_again, NUMBER_BYTES)}
    if dependent:
        # What is another one in each run depends on something else.
        for found in _dependent(first, run_again, NAN_BYTES):
            dependent.pop(found.place, None)
    return MemoryUse(stray, tuple(dependent.values()))


def _dependent(
    first: Observation, run_again: Callable[[GuardedMemory], Observation], pattern: int
) -> Iterator[Dependent]:
    other = run_again(GuardedMemory(pattern))
    if other.error is not None:
        yield Dependent("call", [], 0, ("returns", f"raises {type(other.error).__name__}"))
        return
    if len(first.outputs) != len(other.outputs):
        yield Dependent("outputs", [], 0, (len(first.outputs), len(other.outputs)))
        return
    theirs = other.tensors()
    with torch.no_grad():
        for place, tensor in first.tensors().items():
            if place in theirs and (found := first_dependent(place, tensor, theirs[place])):
                yield found
    for index, (one, two) in enumerate(zip(first.outputs, other.outputs, strict=True)):
        if not (isinstance(one, (int, float)) and isinstance(two, (int, float))):
            continue
        if one != two and not (math.isnan(one) and math.isnan(two)):
            yield Dependent(f"output {index}", [], 1, (one, two))
