"""Oracle *values*: outputs equal eager's."""

from __future__ import annotations

import cmath

import torch

from oracles.contract import Contract, Promise
from oracles.observation import Observation
from oracles.verdict import Report, Verdict, Violation, decided, not_applicable
from programs.trace import Trace

# What differs may be a bit that differs by kernel, read as a number of another dtype.
BITS_OPEN = Report(
    Verdict.UNKNOWN, reason="a rounding or a NaN was read as another dtype, so its last bits show"
)


def judge(contract: Contract, eager: Observation, target: Observation, trace: Trace) -> Report:
    """Compare output by output; exactly, unless the ops called leave a rounding open."""
    if not contract.promises(Promise.VALUES, trace):
        return not_applicable("not promised")
    violations: list[Violation] = []
    unknown = False
    if len(eager.outputs) != len(target.outputs):
        evidence: dict[str, object] = {"eager": len(eager.outputs), "target": len(target.outputs)}
        return decided([Violation("values", "wrong number of outputs", "outputs", evidence)])
    for index, (expected, actual) in enumerate(zip(eager.outputs, target.outputs, strict=True)):
        exact = (
            trace.exact(expected)
            if isinstance(expected, torch.Tensor)
            else trace.rounding.first is None
        )
        difference = differ(expected, actual, exact=exact)
        if difference is None:
            continue
        if trace.bits_open(expected):
            unknown = True
        else:
            violations.append(Violation("values", "wrong value", f"output {index}", difference))
    return BITS_OPEN if unknown and not violations else decided(violations)


def differ(expected: object, actual: object, *, exact: bool) -> dict[str, object] | None:
    """What is different, as evidence; None if nothing is.

    Tensors of other size, dtype or device are left to the metadata oracle. If one has no memory (it
    is on `meta`, or its storage was given back, as FSDP does), the other must have none.
    """
    if not isinstance(expected, torch.Tensor) or not isinstance(actual, torch.Tensor):
        same = type(expected) is type(actual) and (
            expected == actual or _close(expected, actual, exact)
        )
        return None if same else {"eager": repr(expected), "target": repr(actual)}
    if (expected.shape, expected.dtype, expected.device) != (
        actual.shape,
        actual.dtype,
        actual.device,
    ):
        return None
    there = _has_memory(expected), _has_memory(actual)
    if not all(there):
        words = ["in memory" if each else "not in memory" for each in there]
        return {"eager": words[0], "target": words[1]} if any(there) else None
    if expected.dtype != torch.complex32 and torch.equal(
        expected, actual
    ):  # which has no kernel for complex32
        return None
    wrong = ~equal_elements(expected, actual, exact=exact)
    if not bool(wrong.any()):
        return None
    first = tuple(int(each) for each in wrong.nonzero()[0])
    return {
        "first wrong index": list(first),
        "wrong elements": int(wrong.sum()),
        "elements": wrong.numel(),
        "eager": str(expected[first].item()),
        "target": str(actual[first].item()),
    }


def _close(expected: object, actual: object, exact: bool) -> bool:
    """True of numbers that are both NaN, or (they came out of tensors) close where a rounding is open."""
    if not isinstance(expected, (float, complex)) or not isinstance(actual, (float, complex)):
        return False
    if expected != expected and actual != actual:
        return True
    rtol, atol = torch.testing._comparison.default_tolerances(torch.float32)
    return not exact and cmath.isclose(expected, actual, rel_tol=rtol, abs_tol=atol)


def _has_memory(tensor: torch.Tensor) -> bool:
    """True if its elements lie in its storage, and that in memory."""
    if not tensor.numel() or tensor.device.type == "meta":
        return not tensor.numel()
    last = sum(
        (size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True)
    )
    return (
        tensor.storage_offset() + last + 1
    ) * tensor.element_size() <= tensor.untyped_storage().nbytes()


def equal_elements(expected: torch.Tensor, actual: torch.Tensor, *, exact: bool) -> torch.Tensor:
    """Element by element: equal, or both NaN; for complex numbers, both not finite (which part is, differs by kernel)."""
    if exact or not (expected.is_floating_point() or expected.is_complex()):
        equal = (expected == actual) | ((expected != expected) & (actual != actual))
    else:
        rtol, atol = torch.testing._comparison.default_tolerances(expected.dtype)
        equal = torch.isclose(actual, expected, rtol=rtol, atol=atol, equal_nan=True)
    if expected.is_complex():
        equal |= ~torch.isfinite(expected) & ~torch.isfinite(actual)
    return equal
