"""Oracle *inputs*: inputs end as in eager, on the whole storage, the bytes outside the views included."""

from __future__ import annotations

import torch

from oracles.contract import Contract, Promise
from oracles.observation import Observation
from oracles.output_values import BITS_OPEN, differ, equal_elements
from oracles.verdict import Report, Violation, decided, not_applicable
from programs.regions import Region
from programs.storage_bytes import bytes_of
from programs.trace import Trace


def judge(contract: Contract, eager: Observation, target: Observation, trace: Trace) -> Report:
    """Compare each input's numbers, then the bytes of its storage that no input shows."""
    if not contract.promises(Promise.INPUTS, trace):
        return not_applicable("not promised")
    violations: list[Violation] = []
    unknown = False
    pairs = zip(
        zip(eager.before, target.before, strict=True),
        zip(eager.inputs, target.inputs, strict=True),
        strict=True,
    )
    for index, (as_passed, as_left) in enumerate(pairs):
        found = (differ(*each, exact=trace.exact(each[0])) for each in (as_passed, as_left))
        difference = next((each for each in found if each is not None), None)
        if difference is None:
            continue
        if trace.bits_open(as_passed[0]) or trace.bits_open(as_left[0]):
            unknown = True
        else:
            violations.append(Violation("inputs", "input ends wrong", f"input {index}", difference))
    if not violations:
        violations, open_around = _around(eager, target, trace)
        unknown = unknown or open_around
    return BITS_OPEN if unknown and not violations else decided(violations)


def _around(eager: Observation, target: Observation, trace: Trace) -> tuple[list[Violation], bool]:
    """Differences in the bytes of the inputs' storages that no input covers, and whether some say nothing for sure."""
    violations: list[Violation] = []
    unknown = False
    seen: set[int] = set()
    for index, (one, other) in enumerate(zip(eager.before, target.before, strict=True)):
        storage = one.untyped_storage()
        if storage._cdata in seen:
            continue
        seen.add(storage._cdata)
        ours, theirs = bytes_of(storage), bytes_of(other.untyped_storage())
        place = f"storage of input {index}"
        if ours.shape != theirs.shape:
            evidence: dict[str, object] = {
                "eager": f"{ours.numel()} bytes",
                "target": f"{theirs.numel()} bytes",
            }
            violations.append(Violation("inputs", "storage has another size", place, evidence))
            continue
        if torch.equal(ours, theirs):
            continue
        uncovered = torch.ones_like(ours, dtype=torch.bool)
        views = [each for each in eager.before if each.untyped_storage()._cdata == storage._cdata]
        for region in map(Region.of, views):
            addresses = torch.from_numpy(region.addresses() - storage.data_ptr())
            uncovered[addresses[addresses < ours.numel()]] = False
        wrong = (ours != theirs) & uncovered
        if len({each.dtype for each in views}) == 1:
            wrong &= ~_equal_numbers(ours, theirs, one.dtype, exact=trace.exact(one))
        if not bool(wrong.any()):
            continue
        if trace.bits_open(one):
            unknown = True
            continue
        evidence = {"first wrong byte": int(wrong.nonzero()[0]), "wrong bytes": int(wrong.sum())}
        violations.append(Violation("inputs", "bytes outside the inputs change", place, evidence))
    return violations, unknown


def _equal_numbers(
    ours: torch.Tensor, theirs: torch.Tensor, dtype: torch.dtype, *, exact: bool
) -> torch.Tensor:
    """Byte by byte: true of those of equal numbers, as inputs compare them (zeros of either sign, NaN of any bits)."""
    equal = ours == theirs
    if dtype.is_floating_point or dtype.is_complex:
        whole = ours.numel() - ours.numel() % dtype.itemsize
        elements = equal_elements(ours[:whole].view(dtype), theirs[:whole].view(dtype), exact=exact)
        equal[:whole] |= elements.repeat_interleave(dtype.itemsize)
    return equal
