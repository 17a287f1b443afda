"""What ExecuTorch promises, with its sources."""

from __future__ import annotations

from dataclasses import replace

from aliasproof.eager.trace import Trace
from aliasproof.oracles.contract import (
    NATIVE,
    Precondition,
    Promise,
    Refusal,
    Waiver,
    calls_a_custom_write,
)
from aliasproof.targets import export

COPIES = (
    "an output is a new tensor: 'Outputs are copied out on every call' (executorch/runtime/__init__"
    ".py)"
)
DIM_ORDERS = (
    "'Currently ExecuTorch only supports dim order representation for contiguous and channels_last'"
    " (docs/source/concepts.md)"
)
EDGE = "executorch/exir/verification/verifier.py"

# The target adds to an error of the runtime what the runtime logs.
EXECUTORCH = ("executorch", NATIVE, "aliasproof.targets.executorch")


def _always(trace: Trace) -> bool:
    """The message names what is not supported."""
    return True


REFUSALS = (
    Refusal(
        "operator outside Core ATen",
        r"is not in Core ATen opset",
        f"the edge dialect has the operators of Core ATen, as the error says ({EDGE})",
        _always,
        (),
        EXECUTORCH,
    ),
    Refusal(
        "dtypes that the edge dialect does not have",
        r"taking Tensor inputs with mismatched dtypes",
        f"the edge dialect lists the dtypes of each operator, as the error says ({EDGE})",
        _always,
        (),
        EXECUTORCH,
    ),
    Refusal(
        "operator without an out variant",
        r"Missing out variants",
        "the memory plan needs operators that write into given memory, as the error says"
        " (ToOutVarPass in executorch/exir/passes/__init__.py)",
        _always,
        (),
        EXECUTORCH,
    ),
    Refusal(
        "operator without a kernel",
        r"Missing operator",
        "the runtime has the kernels of its portable library, and a loader that names what is"
        " missing (docs/source/kernel-library-overview.md)",
        _always,
        (),
        EXECUTORCH,
    ),
    Refusal(
        "arguments that a kernel does not take",
        r"^method->execute\(\) failed with error 0x1[02]: .*"
        r"(Check failed|Unhandled dtype)",
        "'Kernels that support a subset of tensor dtypes and/or dim orders'"
        " (docs/source/concepts.md); the kernel names the check",
        _always,
        (),
        EXECUTORCH,
    ),
    Refusal(
        "custom operator without an out variant",
        r"'NoneType' object has no attribute 'kind'|Missing out variants",
        "a custom operator needs an out variant and a kernel of its own"
        " (docs/source/kernel-library-custom-aten-kernel.md)",
        calls_a_custom_write,
        (),
        EXECUTORCH,
    ),
    Refusal(
        "layout of an input",
        r"should be contiguous or channels-last|0 in strides is not supported"
        r"|Failed to map a given dim_order",
        DIM_ORDERS,
        _always,
        (),
        EXECUTORCH,
    ),
)
# What programs of these features would mostly end in.
REFUSED = frozenset(
    {"custom", "foreach", "metadata", "random"}
    | {"transposed", "gaps", "channels last", "expanded", "overlapping"}
    | {"complex64", "complex128", "float8_e4m3fn", "float8_e5m2"}
)
CONTRACT = replace(
    export.CONTRACT,
    waivers=(
        *(
            waiver
            for waiver in export.CONTRACT.waivers
            if waiver.promise not in {Promise.KEEPS_ALIASES, Promise.OFFSET}
        ),
        Waiver(Promise.KEEPS_ALIASES, COPIES),
        Waiver(Promise.IDENTITY, COPIES),
        Waiver(Promise.KEEPS_OBJECTS, COPIES),
        Waiver(Promise.OFFSET, COPIES),
        Waiver(Promise.STRIDE, DIM_ORDERS),
    ),
    preconditions=(
        *export.CONTRACT.preconditions,
        Precondition(
            "as_strided takes a dense tensor",
            "a tensor of the runtime has no storage around its data"
            " (docs/source/extension-tensor.md), and other strides than in eager",
            lambda trace: not trace.strided_layout,
        ),
    ),
    refusals=(*export.CONTRACT.refusals, *REFUSALS),
)
