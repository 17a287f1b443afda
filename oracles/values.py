"""Oracle *values*: outputs equal eager's."""

from __future__ import annotations

import torch

from generators.trace import Trace
from oracles.contract import Contract, Promise
from oracles.observation import Observation
from oracles.verdict import Report, Verdict, Violation, decided, not_applicable

# What differs may be a bit that differs by kernel, read as a number of another dtype.
BITS_OPEN = Report(Verdict.UNKNOWN, reason="a rounding or a NaN was read as another dtype, so its last bits show")


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
        difference = differ(expected, actual, exact=trace.exact(expected))
        if difference is None:
            continue
        if trace.bits_open(expected):
            unknown = True
        else:
            violations.append(Violation("values", "wrong value", f"output {index}", difference))
    return BITS_OPEN if unknown and not violations else decided(violations)


def differ(expected: object, actual: object, *, exact: bool) -> dict[str, object] | None:
    """What is different, as evidence; None if nothing is.

    Tensors of other size, dtype or device are left to the metadata oracle.
    """
    if not isinstance(expected, torch.Tensor) or not isinstance(actual, torch.Tensor):
        numbers = isinstance(expected, (float, complex)) and isinstance(actual, (float, complex))
        both_nan = numbers and expected != expected and actual != actual
        if type(expected) is type(actual) and (both_nan or expected == actual):
            return None
        return {"eager": repr(expected), "target": repr(actual)}
    if (expected.shape, expected.dtype, expected.device) != (actual.shape, actual.dtype, actual.device):
        return None
    if torch.equal(expected, actual):
        return None
    wrong = ~_equal_elements(expected, actual, exact)
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


def _equal_elements(expected: torch.Tensor, actual: torch.Tensor, exact: bool) -> torch.Tensor:
    """Element by element: equal, or both NaN; for complex numbers, both not finite (which part is, differs by kernel)."""
    if exact or not (expected.is_floating_point() or expected.is_complex()):
        equal = (expected == actual) | ((expected != expected) & (actual != actual))
    else:
        rtol, atol = torch.testing._comparison.default_tolerances(expected.dtype)
        equal = torch.isclose(actual, expected, rtol=rtol, atol=atol, equal_nan=True)
    if expected.is_complex():
        equal |= ~torch.isfinite(expected) & ~torch.isfinite(actual)
    return equal
