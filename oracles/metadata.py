"""Oracle *metadata*: sizes, dtypes, strides and offsets of outputs (and of inputs afterwards) are eager's."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch

from generators.definedness import Trace
from oracles.contract import Contract, Promise
from oracles.observation import Observation
from oracles.verdict import Report, Violation, decided


def judge(contract: Contract, eager: Observation, target: Observation, trace: Trace) -> Report:
    """Compare output by output, as far as promised."""
    pairs = zip(eager.outputs, target.outputs, strict=False)
    violations = [each for index, (a, b) in enumerate(pairs) for each in _compare(contract, trace, f"output {index}", a, b)]
    if contract.promises(Promise.INPUT_METADATA, trace):
        for index, (a, b) in enumerate(zip(eager.inputs, target.inputs, strict=True)):
            if (a.shape, _strides(a)) != (b.shape, _strides(b)):
                evidence = {"eager": [list(a.shape), list(a.stride())], "target": [list(b.shape), list(b.stride())]}
                violations.append(Violation("metadata", "input ends with another shape", f"input {index}", evidence))
    return decided(violations)


def _compare(contract: Contract, trace: Trace, place: str, expected: object, actual: object) -> Iterator[Violation]:
    if not isinstance(expected, torch.Tensor) or not isinstance(actual, torch.Tensor):
        return
    for promise, name, read in _READERS:
        ours, theirs = read(expected), read(actual)
        if ours != theirs and contract.promises(promise, trace):
            yield Violation("metadata", f"wrong {name}", place, {"eager": str(ours), "target": str(theirs)})
            return


def _strides(tensor: torch.Tensor) -> list[int] | None:
    """The strides that mean something: those of dimensions with more than one element, in a tensor that has elements."""
    if tensor.numel() == 0:
        return None
    return [stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if size > 1]


_READERS: tuple[tuple[Promise, str, Callable[[torch.Tensor], object]], ...] = (
    (Promise.SIZE_AND_DTYPE, "dtype", lambda tensor: tensor.dtype),
    (Promise.SIZE_AND_DTYPE, "size", lambda tensor: list(tensor.shape)),
    (Promise.STRIDE, "stride", _strides),
    (Promise.OFFSET, "storage offset", lambda tensor: tensor.storage_offset() if tensor.numel() else None),
)
