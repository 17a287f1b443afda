"""Oracle *metadata*: sizes, dtypes, strides and offsets equal eager's.

Outputs are compared in all four, inputs (after the run) in all except offsets.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from typing import TypeAlias

import torch

from aliasproof.eager.trace import Trace
from aliasproof.ir.regions import Region, overlap, overlaps_itself
from aliasproof.oracles.contract import Contract, Difference, Promise
from aliasproof.oracles.observation import Observation
from aliasproof.oracles.oracle import Needs, Oracle, StandaloneCheck
from aliasproof.oracles.verdict import Report, Violation

Reader: TypeAlias = tuple[Promise, str, Callable[[torch.Tensor], object]]


def judge(contract: Contract, eager: Observation, target: Observation, trace: Trace) -> Report:
    """Compare each output, then each input."""
    differences: list[Difference] = []
    given = {tensor.untyped_storage().data_ptr() for tensor in eager.before}
    for index, (expected, actual) in enumerate(zip(eager.outputs, target.outputs, strict=False)):
        # The offset of a tensor in its storage matters only if another tensor shares its bytes.
        place = f"output {index}"
        # The last reader reads the offset.
        readers = _READERS if _shares_bytes(place, eager) else _READERS[:-1]
        if isinstance(expected, torch.Tensor) and expected in trace.gradients:
            readers = _OF_GRADIENTS
        compared = list(_compare(place, expected, actual, readers, given))
        # The first broken promise is enough, since later differences often follow from it.
        broken = [pair for pair in compared if contract.limitation(pair, trace) is None]
        differences += (broken or compared)[:1]
    for index, (ours, theirs) in enumerate(zip(eager.inputs, target.inputs, strict=True)):
        differences += _compare_inputs(f"input {index}", ours, theirs)
    return contract.report(differences, trace)


def _compare(
    place: str,
    expected: object,
    actual: object,
    readers: tuple[Reader, ...],
    given: Container[int],
) -> Iterator[Difference]:
    """The differences of one output. `given` are the addresses of the storages of the inputs."""
    if not isinstance(expected, torch.Tensor) or not isinstance(actual, torch.Tensor):
        return
    for promise, name, read in readers:
        ours, theirs = read(expected), read(actual)
        if ours != theirs:
            evidence = {"eager": str(ours), "target": str(theirs)}
            if promise is Promise.STRIDE and _in_order(expected, actual):
                part = expected.untyped_storage().data_ptr() not in given and _is_part(expected)
                promise = Promise.STRIDE_OF_PART if part else Promise.STRIDE
            yield Difference(promise, Violation("metadata", f"wrong {name}", place, evidence))


def _compare_inputs(place: str, ours: torch.Tensor, theirs: torch.Tensor) -> Iterator[Difference]:
    if (ours.shape, _strides(ours)) != (theirs.shape, _strides(theirs)):
        layouts = {
            "eager": [list(ours.shape), list(ours.stride())],
            "target": [list(theirs.shape), list(theirs.stride())],
        }
        shown = Violation("metadata", "input ends with another shape", place, layouts)
        yield Difference(Promise.INPUT_METADATA, shown)
    elif ours.dtype != theirs.dtype:
        dtypes = {"eager": str(ours.dtype), "target": str(theirs.dtype)}
        shown = Violation("metadata", "input ends with another dtype", place, dtypes)
        yield Difference(Promise.INPUT_METADATA, shown)


def _strides(tensor: torch.Tensor) -> list[int] | None:
    """The strides that decide where elements are, in elements.

    None for a tensor without elements; strides of dims of size 1 are left out.
    """
    if tensor.numel() == 0:
        return None
    return [stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if size > 1]


def _is_part(tensor: torch.Tensor) -> bool:
    """Whether the tensor is a view that skips elements between its own."""
    region = Region.of(tensor)
    start, end = region.interval
    gaps = end - start > region.numel * region.itemsize
    return tensor._is_view() and gaps and not overlaps_itself(region)


def _in_order(expected: torch.Tensor, actual: torch.Tensor) -> bool:
    """Whether two tensors have equal sizes, and their dims are in the same order in memory."""
    ours, theirs = _strides(expected), _strides(actual)
    if expected.shape != actual.shape or ours is None or theirs is None:
        return False
    by_ours = [stride for _, stride in sorted(zip(ours, theirs, strict=True))]
    return by_ours == sorted(theirs)


def _shares_bytes(name: str, observation: Observation) -> bool:
    """Whether another tensor of the run covers a byte of this one."""
    regions = observation.regions()
    return name in regions and any(
        overlap(regions[name], region) for other, region in regions.items() if other != name
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

# The strides of gradients are unspecified (docs/oracles.md).
_OF_GRADIENTS = tuple(reader for reader in _READERS if reader[0] is Promise.SIZE_AND_DTYPE)

_CHECKS = {
    "wrong device": StandaloneCheck("the device of FIRST", "FIRST.device"),
    "wrong dtype": StandaloneCheck("the dtype of FIRST", "FIRST.dtype"),
    "wrong stride": StandaloneCheck(
        "the strides of FIRST (none where the size is 1)",
        "[s for n, s in zip(FIRST.shape, FIRST.stride()) if n > 1]",
    ),
    "wrong storage offset": StandaloneCheck(
        "the storage offset of FIRST", "FIRST.storage_offset()"
    ),
    "input ends with another shape": StandaloneCheck(
        "size and strides of FIRST afterwards", "[list(FIRST.shape), list(FIRST.stride())]"
    ),
    "input ends with another dtype": StandaloneCheck("the dtype of FIRST", "FIRST.dtype"),
}

ORACLE = Oracle(
    "metadata",
    "sizes, dtypes; where promised, strides and offsets",
    Needs.RESULTS,
    judge,
    StandaloneCheck("the size of FIRST", "list(FIRST.shape)", by_kind=tuple(_CHECKS.items())),
    reason=(
        "The layout of a result is visible to the caller, for example in `view`, `as_strided` and "
        "`is_contiguous`."
    ),
)
