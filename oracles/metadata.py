"""Oracle *metadata*: sizes, dtypes, strides and offsets of outputs are eager's; of inputs afterwards, all but offsets."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

import torch

from oracles.contract import Contract, Promise
from oracles.observation import Observation
from oracles.verdict import Report, Violation, decided
from programs.regions import overlap
from programs.trace import Trace

Reader: TypeAlias = tuple[Promise, str, Callable[[torch.Tensor], object]]


def judge(contract: Contract, eager: Observation, target: Observation, trace: Trace) -> Report:
    """Compare output by output, as far as promised."""
    violations = []
    for index, (a, b) in enumerate(zip(eager.outputs, target.outputs, strict=False)):
        readers = _READERS if _is_seen_by_others(f"output {index}", eager) else _READERS[:-1]
        violations += list(_compare(contract, trace, f"output {index}", a, b, readers))
    if contract.promises(Promise.INPUT_METADATA, trace):
        for index, (a, b) in enumerate(zip(eager.inputs, target.inputs, strict=True)):
            if (a.shape, _strides(a)) != (b.shape, _strides(b)):
                evidence = {
                    "eager": [list(a.shape), list(a.stride())],
                    "target": [list(b.shape), list(b.stride())],
                }
                violations.append(
                    Violation(
                        "metadata", "input ends with another shape", f"input {index}", evidence
                    )
                )
            elif a.dtype != b.dtype:
                dtypes = {"eager": str(a.dtype), "target": str(b.dtype)}
                violations.append(
                    Violation("metadata", "input ends with another dtype", f"input {index}", dtypes)
                )
    return decided(violations)


def _compare(
    contract: Contract,
    trace: Trace,
    place: str,
    expected: object,
    actual: object,
    readers: tuple[Reader, ...],
) -> Iterator[Violation]:
    if not isinstance(expected, torch.Tensor) or not isinstance(actual, torch.Tensor):
        return
    for promise, name, read in readers:
        ours, theirs = read(expected), read(actual)
        if ours != theirs and contract.promises(promise, trace):
            yield Violation(
                "metadata", f"wrong {name}", place, {"eager": str(ours), "target": str(theirs)}
            )
            return


def _strides(tensor: torch.Tensor) -> list[int] | None:
    """The strides that mean something: those of dimensions with more than one element, in a tensor that has elements."""
    if tensor.numel() == 0:
        return None
    return [stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if size > 1]


def _is_seen_by_others(name: str, observation: Observation) -> bool:
    """True if another tensor shows a byte of this one: only then does it matter where in its storage it starts."""
    regions = observation.regions()
    return name in regions and any(
        overlap(regions[name], each) for other, each in regions.items() if other != name
    )


_READERS: tuple[Reader, ...] = (
    (Promise.SIZE_AND_DTYPE, "device", lambda tensor: tensor.device),
    (Promise.SIZE_AND_DTYPE, "dtype", lambda tensor: tensor.dtype),
    (Promise.SIZE_AND_DTYPE, "size", lambda tensor: list(tensor.shape)),
    (Promise.STRIDE, "stride", _strides),
    (
        Promise.OFFSET,
        "storage offset",
        lambda tensor: tensor.storage_offset() if tensor.numel() else None,
    ),
)
