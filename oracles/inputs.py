"""Oracle *inputs*: inputs end as in eager, with the bytes of their storages outside the views."""

from __future__ import annotations

from dataclasses import replace

import torch

from aliasproof.eager.rounding import is_inexact
from aliasproof.eager.trace import Trace
from aliasproof.ir.regions import Region
from aliasproof.ir.values import bytes_of
from aliasproof.oracles.contract import Contract, Difference, Promise
from aliasproof.oracles.observation import Observation
from aliasproof.oracles.oracle import OTHER_ELEMENTS, Needs, Oracle, StandaloneCheck, shows_elements
from aliasproof.oracles.values import (
    BITS_OPEN,
    ZERO_CHECK,
    broken_promise,
    differ,
    equal_elements,
    kind_of,
)
from aliasproof.oracles.verdict import HOLDS, Report, Violation

# If a run changes the layout of an input, this says which of its two views is wrong.
AS_PASSED = "the tensor as it was passed"


def judge(contract: Contract, eager: Observation, target: Observation, trace: Trace) -> Report:
    """Compare each input's values, then the bytes of its storage that no input covers."""
    differences: list[Difference] = []
    unknown = False
    # A run may resize an input or give it another storage (`set_`). So two views of the input are
    # compared: the one that was passed, and the one that the run left.
    pairs = zip(
        zip(eager.before, target.before, strict=True),
        zip(eager.inputs, target.inputs, strict=True),
        strict=True,
    )
    for index, (as_passed, as_left) in enumerate(pairs):
        # The first difference is enough: the other view often shows the same one.
        for pair in (as_passed, as_left):
            tolerance = trace.tolerance(pair[0])
            difference = differ(*pair, tolerance)
            if difference is not None:
                break
        else:
            continue
        promise = broken_promise(contract, trace, pair, Promise.INPUTS)
        if promise is None or trace.bits_open(as_passed[0]) or trace.bits_open(as_left[0]):
            unknown = True
        else:
            kind = kind_of(*pair, tolerance, "input ends wrong")
            moved = list(map(Region.of, as_passed)) != list(map(Region.of, as_left))
            if pair is as_passed and moved:
                difference["seen through"] = AS_PASSED
            shown = Violation("inputs", kind, f"input {index}", difference)
            differences.append(Difference(promise, shown))
    # A wrong input makes its storage wrong, too: one difference is reported once.
    if not differences:
        violations, open_around = _around(contract, eager, target, trace)
        unknown = unknown or open_around
        differences = [Difference(Promise.INPUTS, violation) for violation in violations]
    return contract.report(differences, trace, BITS_OPEN if unknown else HOLDS)


def _around(
    contract: Contract, eager: Observation, target: Observation, trace: Trace
) -> tuple[list[Violation], bool]:
    """Differences in bytes of the inputs' storages that no input covers.

    The second result says whether some differences prove nothing (see `BITS_OPEN`).
    """
    violations: list[Violation] = []
    unknown = False
    # Inputs may share a storage, which is compared once.
    seen: set[int] = set()
    for index, (one, other) in enumerate(zip(eager.before, target.before, strict=True)):
        storage = one.untyped_storage()
        if storage._cdata in seen:
            continue
        seen.add(storage._cdata)
        ours, theirs = bytes_of(storage), bytes_of(other.untyped_storage())
        place = f"storage of input {index}"
        if ours.shape != theirs.shape:
            sizes = {"eager": f"{ours.numel()} bytes", "target": f"{theirs.numel()} bytes"}
            violations.append(Violation("inputs", "storage has another size", place, sizes))
            continue
        if torch.equal(ours, theirs):
            continue
        views = [view for view in eager.before if view.untyped_storage()._cdata == storage._cdata]
        wrong = (ours != theirs) & _uncovered_bytes(storage, views)
        # With views of several dtypes, the dtype of these bytes is unknown: they must be equal.
        if len({view.dtype for view in views}) == 1 and is_inexact(one):
            # The storage may end with a part of an element.
            whole = ours.numel() - ours.numel() % one.itemsize
            expected, actual = (it[:whole].view(one.dtype) for it in (ours, theirs))
            equal = equal_elements(expected, actual, trace.tolerance(one))
            wrong[:whole] &= ~equal.repeat_interleave(one.itemsize)
        if not bool(wrong.any()):
            continue
        rounds = contract.promises(Promise.ROUNDING, trace)
        if trace.bits_open(one) or (trace.rounds_between(one) and not rounds):
            unknown = True
            continue
        first = int(wrong.view(torch.uint8).argmax())
        evidence = {"first wrong byte": first, "wrong bytes": int(wrong.sum())}
        violations.append(Violation("inputs", "bytes outside the inputs change", place, evidence))
    return violations, unknown


def _uncovered_bytes(storage: torch.UntypedStorage, views: list[torch.Tensor]) -> torch.Tensor:
    """Per byte of the storage, whether no view covers it."""
    uncovered = torch.ones(storage.nbytes(), dtype=torch.bool, device=storage.device)
    for view in views:
        itemsize = view.element_size()
        strides = [*(stride * itemsize for stride in view.stride()), 1]
        offset = int(view.storage_offset()) * itemsize
        _, end = Region.of(view).interval
        # A run may shrink the storage, so that a view reaches beyond its end.
        beyond = max(0, end - storage.data_ptr() - storage.nbytes())
        whole = torch.cat((uncovered, uncovered.new_empty(beyond))) if beyond else uncovered
        whole.as_strided([*view.shape, itemsize], strides, offset).fill_(False)
        uncovered = whole[: storage.nbytes()]
    return uncovered


def _shows_bytes(violation: Violation, output: str) -> bool:
    byte, count = (violation.evidence.get(key) for key in ("first wrong byte", "wrong bytes"))
    elements = {"first wrong index": [byte], "wrong elements": count}
    return shows_elements(replace(violation, evidence=elements), output)


ORACLE = Oracle(
    "inputs",
    "inputs end as in eager, with the bytes around them",
    Needs.RESULTS,
    judge,
    StandaloneCheck(
        "FIRST afterwards",
        "FIRST",
        wrong=OTHER_ELEMENTS,
        shows=shows_elements,
        by_kind=(
            ZERO_CHECK,
            (
                "bytes outside the inputs change",
                StandaloneCheck(
                    "the bytes of the storage of FIRST afterwards",
                    "torch.tensor(FIRST.untyped_storage().tolist())",
                    wrong=OTHER_ELEMENTS,
                    shows=_shows_bytes,
                ),
            ),
            (
                "storage has another size",
                StandaloneCheck(
                    "the size of the storage of FIRST afterwards",
                    'f"{FIRST.untyped_storage().nbytes()} bytes"',
                ),
            ),
        ),
    ),
    reason=(
        "A write in place belongs to the result: the caller sees it in its own tensors, and "
        "nothing else of them may change."
    ),
)
