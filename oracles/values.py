"""Oracle *values*: outputs equal eager's."""

from __future__ import annotations

import cmath
from dataclasses import replace

import numpy as np
import torch

from aliasproof.eager.rounding import readable
from aliasproof.eager.trace import EXACT, Tolerance, Trace
from aliasproof.ir.regions import reach
from aliasproof.oracles.contract import Contract, Difference, Promise
from aliasproof.oracles.given_tolerance import given_limits
from aliasproof.oracles.observation import Observation
from aliasproof.oracles.oracle import OTHER_ELEMENTS, Needs, Oracle, StandaloneCheck, shows_elements
from aliasproof.oracles.verdict import HOLDS, Report, Verdict, Violation

PART = 1 << 20  # elements that are compared at once
# The difference may start at bits that vary from kernel to kernel. Later ops may have amplified it,
# so even a large difference proves nothing.
BITS_OPEN = Report(
    Verdict.UNKNOWN,
    reason=(
        "what correct kernels may do differently was read as another dtype, or magnified by huge"
        " numbers, or by an op after it"
    ),
)


def judge(contract: Contract, eager: Observation, target: Observation, trace: Trace) -> Report:
    """Compare each output bit by bit, except where correct kernels may differ."""
    differences: list[Difference] = []
    unknown = False
    if len(eager.outputs) != len(target.outputs):
        evidence: dict[str, object] = {"eager": len(eager.outputs), "target": len(target.outputs)}
        shown = Violation("values", "wrong number of outputs", "outputs", evidence)
        return contract.report([Difference(Promise.VALUES, shown)], trace)
    for index, (expected, actual) in enumerate(zip(eager.outputs, target.outputs, strict=True)):
        tolerance = (
            trace.tolerance(expected)
            if isinstance(expected, torch.Tensor)
            else trace.number_tolerance()
        )
        difference = differ(expected, actual, tolerance)
        if difference is None:
            continue
        promise = broken_promise(contract, trace, (expected, actual), Promise.VALUES)
        if promise is None:
            unknown = True
        else:
            kind = kind_of(expected, actual, tolerance, "wrong value")
            shown = Violation("values", kind, f"output {index}", difference)
            differences.append(Difference(promise, shown))
    return contract.report(differences, trace, BITS_OPEN if unknown else HOLDS)


def broken_promise(
    contract: Contract, trace: Trace, pair: tuple[object, object], otherwise: Promise
) -> Promise | None:
    """The promise that a difference between eager's value and the target's breaks.

    None if the difference proves nothing. A target that need not round between two ops may be off
    by the rounding error; values computed from that result may be off by more.
    """
    expected, actual = pair
    if trace.bits_open(expected):
        return None
    if not trace.rounds_between(expected) or contract.promises(Promise.ROUNDING, trace):
        return otherwise
    if not isinstance(expected, torch.Tensor) or not isinstance(actual, torch.Tensor):
        return None
    if not (expected.is_floating_point() and actual.is_floating_point()):
        return None
    # A wider dtype shows digits that a narrow one lost. Which narrow one it was is not recorded.
    dtype = torch.float16 if expected.dtype == torch.float16 else torch.bfloat16
    difference = differ(expected.to(dtype), actual.to(dtype), Tolerance(rounds=True))
    return Promise.ROUNDING if difference is None else None


# A kind of its own, since people may disagree on whether the sign of a zero matters.
OTHER_ZERO = "zero of the other sign"


def kind_of(expected: object, actual: object, tolerance: Tolerance, otherwise: str) -> str:
    """The kind of a difference: `OTHER_ZERO` if only signs of zeros differ."""
    lenient = replace(tolerance, zero_sign=True)
    return OTHER_ZERO if differ(expected, actual, lenient) is None else otherwise


def differ(
    expected: object, actual: object, tolerance: Tolerance = EXACT
) -> dict[str, object] | None:
    """The difference between two values, as evidence; None if they are equal.

    Tensors of different size, dtype or device are left to the metadata oracle. If one tensor has no
    memory (it is on `meta`, or its storage was freed, as FSDP does), the other must have none.
    """
    if not isinstance(expected, torch.Tensor) or not isinstance(actual, torch.Tensor):
        # The types must be equal, too: True == 1 in Python.
        same = type(expected) is type(actual) and _same_numbers(expected, actual, tolerance)
        return None if same else {"eager": repr(expected), "target": repr(actual)}
    ours = expected.shape, expected.dtype, expected.device
    if ours != (actual.shape, actual.dtype, actual.device):
        return None
    in_memory = _has_memory(expected), _has_memory(actual)
    if not all(in_memory):
        words = ["in memory" if memory else "not in memory" for memory in in_memory]
        return {"eager": words[0], "target": words[1]} if any(in_memory) else None
    # Equal bits are the common case. As numbers, 0.0 would equal -0.0, and NaN would not equal NaN.
    if torch.equal(_bits(expected), _bits(actual)):
        return None
    count, first = _wrong_elements(expected, actual, tolerance)
    if first is None:
        return None
    return {
        "first wrong index": list(first),
        "wrong elements": count,
        "elements": expected.numel(),
        "eager": str(readable(expected)[first].item()),
        "target": str(readable(actual)[first].item()),
    }


def _wrong_elements(
    expected: torch.Tensor, actual: torch.Tensor, tolerance: Tolerance
) -> tuple[int, tuple[int, ...] | None]:
    """How many elements differ, and the first index at which they do.

    Large tensors are compared in parts: masks and similar take several times their memory.
    """
    if expected.numel() > PART:
        return _wrong_in_parts(expected, actual, tolerance)
    wrong = ~equal_elements(expected, actual, tolerance)
    count = int(wrong.sum())
    if not count:
        return 0, None
    position = int(wrong.flatten().to(torch.uint8).argmax())
    return count, tuple(map(int, np.unravel_index(position, wrong.shape)))


def _wrong_in_parts(
    expected: torch.Tensor, actual: torch.Tensor, tolerance: Tolerance
) -> tuple[int, tuple[int, ...] | None]:
    dim = max(range(expected.dim()), key=lambda dim: expected.shape[dim])
    length = max(1, PART * expected.shape[dim] // expected.numel())
    parts = zip(expected.split(length, dim), actual.split(length, dim), strict=True)
    count, indices = 0, []
    for number, (ours, theirs) in enumerate(parts):
        wrong, first = _wrong_elements(ours, theirs, tolerance)
        if first is not None:
            count += wrong
            start = number * length
            indices.append((*first[:dim], first[dim] + start, *first[dim + 1 :]))
    return count, min(indices, default=None)


def _same_numbers(expected: object, actual: object, tolerance: Tolerance) -> bool:
    """Whether two Python values are equal, both NaN, or as close as the tolerance says."""
    if not isinstance(expected, (float, complex)) or not isinstance(actual, (float, complex)):
        return bool(expected == actual)
    # The text of a number shows the sign of a zero. Only NaN differs from itself.
    if repr(expected) == repr(actual) or (expected != expected and actual != actual):
        return True
    if tolerance.zero_sign and expected == actual:
        return True
    # The number comes from a tensor whose dtype is unknown here. float32 is the usual one.
    usual = torch.testing._comparison.default_tolerances(torch.float32)
    given = given_limits(usual)
    rtol, atol = given or usual
    rounds = tolerance.rounds or given is not None
    return rounds and cmath.isclose(expected, actual, rel_tol=rtol, abs_tol=atol)


def _has_memory(tensor: torch.Tensor) -> bool:
    """Whether all elements are inside the storage, and the storage is in memory."""
    if not tensor.numel() or tensor.device.type == "meta":
        return not tensor.numel()
    end = int(tensor.storage_offset()) + reach(tuple(tensor.shape), tensor.stride())
    return end * tensor.element_size() <= tensor.untyped_storage().nbytes()


# An integer dtype, by item size.
_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    """The same memory read as integers; of complex values, both parts."""
    tensor = tensor.resolve_conj().resolve_neg()
    parts = torch.view_as_real(tensor) if tensor.is_complex() else tensor
    return parts.view(_BITS[parts.itemsize])


def equal_elements(
    expected: torch.Tensor, actual: torch.Tensor, tolerance: Tolerance
) -> torch.Tensor:
    """Per element, whether both are equal as far as the tolerance says. NaN equals NaN."""
    dtypes = expected.dtype, tolerance.coarser or expected.dtype
    rtol, atol = (max(values) for values in zip(*map(_tolerances_of, dtypes), strict=True))
    limits = rtol, atol
    if (given := given_limits(limits)) is not None:
        limits, tolerance = given, replace(tolerance, rounds=True)
    expected, actual = readable(expected), readable(actual)
    if not expected.is_complex():
        return _equal_real(expected, actual, tolerance, limits)
    if tolerance.rounds:
        equal = _close(expected, actual, limits)
    else:
        # By parts: as a number, a complex value with one NaN is not equal to itself.
        one, other = (torch.view_as_real(tensor.resolve_conj()) for tensor in (expected, actual))
        equal = _equal_real(one, other, tolerance, limits).all(-1)
    if tolerance.parts:
        equal |= ~torch.isfinite(expected) & ~torch.isfinite(actual)
    return equal


def _equal_real(
    expected: torch.Tensor, actual: torch.Tensor, tolerance: Tolerance, limits: tuple[float, float]
) -> torch.Tensor:
    """Per element of real tensors, whether both are equal, also in the sign of a zero, or NaN."""
    if not expected.is_floating_point():
        return expected == actual
    if tolerance.rounds:
        return _close(expected, actual, limits)
    equal = expected == actual
    if not tolerance.zero_sign:
        equal &= expected.signbit() == actual.signbit()
    return equal | (expected.isnan() & actual.isnan())


def _tolerances_of(dtype: torch.dtype) -> tuple[float, float]:
    if dtype.is_floating_point and dtype.itemsize == 1:
        # `torch.testing` has no tolerance for float8: one unit in the last place.
        return torch.finfo(dtype).eps, torch.finfo(dtype).tiny
    rtol, atol = torch.testing._comparison.default_tolerances(dtype)
    return rtol, atol


def _close(
    expected: torch.Tensor, actual: torch.Tensor, limits: tuple[float, float]
) -> torch.Tensor:
    """Per element, whether both are close; `limits` are relative and absolute."""
    rtol, atol = limits
    return torch.isclose(actual, expected, rtol=rtol, atol=atol, equal_nan=True)


ZERO_CHECK = (
    OTHER_ZERO,
    StandaloneCheck(
        "FIRST",
        "FIRST",
        "(expected == 0) & (actual.signbit() != expected.signbit())",
        shows=shows_elements,
    ),
)

ORACLE = Oracle(
    "values",
    "outputs equal eager's",
    Needs.RESULTS,
    judge,
    StandaloneCheck(
        "FIRST",
        "FIRST",
        OTHER_ELEMENTS,
        shows=shows_elements,
        by_kind=(
            ("wrong number", StandaloneCheck("the number of outputs", "len(outputs)")),
            ZERO_CHECK,
        ),
    ),
    reason="Eager defines the result, and no documentation allows another one.",
)
