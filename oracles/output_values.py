"""Oracle *values*: outputs equal eager's."""

from __future__ import annotations

import cmath

import torch

from oracles.contract import Contract, Difference, Promise
from oracles.observation import Observation
from oracles.oracle import Needs, Oracle
from oracles.standalone_check import StandaloneCheck
from oracles.verdict import HOLDS, Report, Verdict, Violation
from programs.narrow_dtypes import readable
from programs.trace import Trace

# The difference may come from bits that differ from kernel to kernel. They were read as a value of
# another dtype, so even a large difference proves nothing.
BITS_OPEN = Report(
    Verdict.UNKNOWN, reason="a rounding or a NaN was read as another dtype, so its last bits show"
)


def judge(contract: Contract, eager: Observation, target: Observation, trace: Trace) -> Report:
    """Compare each output; exactly, unless an op that was called may round differently."""
    differences: list[Difference] = []
    unknown = False
    if len(eager.outputs) != len(target.outputs):
        evidence: dict[str, object] = {"eager": len(eager.outputs), "target": len(target.outputs)}
        shown = Violation("values", "wrong number of outputs", "outputs", evidence)
        return contract.judged([Difference(Promise.VALUES, shown)], trace)
    for index, (expected, actual) in enumerate(zip(eager.outputs, target.outputs, strict=True)):
        # A Python number may come from any tensor, so any rounding in the run may be in it.
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
            shown = Violation("values", "wrong value", f"output {index}", difference)
            differences.append(Difference(Promise.VALUES, shown))
    return contract.judged(differences, trace, BITS_OPEN if unknown else HOLDS)


def differ(expected: object, actual: object, *, exact: bool) -> dict[str, object] | None:
    """The difference between two values, as evidence; None if they are equal.

    Tensors of different size, dtype or device are left to the metadata oracle. If one tensor has no
    memory (it is on `meta`, or its storage was freed, as FSDP does), the other must have none.
    """
    if not isinstance(expected, torch.Tensor) or not isinstance(actual, torch.Tensor):
        # The types must be equal, too: True == 1 in Python.
        same = type(expected) is type(actual) and (
            expected == actual or _close(expected, actual, exact)
        )
        return None if same else {"eager": repr(expected), "target": repr(actual)}
    ours = expected.shape, expected.dtype, expected.device
    if ours != (actual.shape, actual.dtype, actual.device):
        return None
    in_memory = _has_memory(expected), _has_memory(actual)
    if not all(in_memory):
        words = ["in memory" if memory else "not in memory" for memory in in_memory]
        return {"eager": words[0], "target": words[1]} if any(in_memory) else None
    if torch.equal(readable(expected), readable(actual)):
        return None
    # `torch.equal` counts NaN as different, and it is too strict where kernels round.
    wrong = ~equal_elements(expected, actual, exact=exact)
    if not bool(wrong.any()):
        return None
    first = tuple(int(position) for position in wrong.nonzero()[0])
    return {
        "first wrong index": list(first),
        "wrong elements": int(wrong.sum()),
        "elements": wrong.numel(),
        "eager": str(readable(expected)[first].item()),
        "target": str(readable(actual)[first].item()),
    }


def _close(expected: object, actual: object, exact: bool) -> bool:
    """Whether two Python numbers are both NaN, or close where a rounding may differ."""
    if not isinstance(expected, (float, complex)) or not isinstance(actual, (float, complex)):
        return False
    # NaN is the only number that differs from itself.
    if expected != expected and actual != actual:
        return True
    # The number came out of a tensor whose dtype is unknown here. float32 is the usual one.
    rtol, atol = torch.testing._comparison.default_tolerances(torch.float32)
    return not exact and cmath.isclose(expected, actual, rel_tol=rtol, abs_tol=atol)


def _has_memory(tensor: torch.Tensor) -> bool:
    """Whether all elements are inside the storage, and the storage is in memory."""
    if not tensor.numel() or tensor.device.type == "meta":
        return not tensor.numel()
    last = sum(
        (size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True)
    )
    end = (tensor.storage_offset() + last + 1) * tensor.element_size()
    return end <= tensor.untyped_storage().nbytes()


def equal_elements(expected: torch.Tensor, actual: torch.Tensor, *, exact: bool) -> torch.Tensor:
    """Per element, whether both are equal or both NaN.

    Two complex elements that are not finite count as equal: which part is infinite or NaN differs
    from kernel to kernel.
    """
    rtol, atol = torch.testing._comparison.default_tolerances(expected.dtype)
    expected, actual = readable(expected), readable(actual)
    if exact or not (expected.is_floating_point() or expected.is_complex()):
        equal = (expected == actual) | ((expected != expected) & (actual != actual))
    else:
        equal = torch.isclose(actual, expected, rtol=rtol, atol=atol, equal_nan=True)
    if expected.is_complex():
        equal |= ~torch.isfinite(expected) & ~torch.isfinite(actual)
    return equal


ORACLE = Oracle(
    "values",
    "outputs equal eager's",
    Needs.RESULTS,
    judge,
    StandaloneCheck(
        "the outputs",
        "outputs",
        # NaN equals NaN.
        "all(torch.allclose(*pair, TOLERANCE, equal_nan=True) for pair in zip(actual, expected))",
        by_kind=(("wrong number", StandaloneCheck("the number of outputs", "len(outputs)")),),
    ),
)
