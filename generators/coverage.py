"""Which overloads of ATen are drawn: each one that returns a view or writes an argument.

Each overload has one status, with a detail: its group, the op that stands for it, or a reason.
Reasons come from rules where these can be computed, else from tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum

import torch
from torch._ops import OpOverload

from aliasproof.generators.ops import OPERATORS
from aliasproof.ir.errors import UserError
from aliasproof.ir.schemas import Facts, Kind, facts, resolve


class OpStatus(Enum):
    """The status of an overload in programs."""

    DRAWN = "drawn"
    REACHABLE = "reachable"  # another op that is drawn computes the same
    NOT_APPLICABLE = "not applicable"
    UNDRAWN = "undrawn"  # it could be drawn and is not


@dataclass(frozen=True, slots=True)
class CoveredOp:
    """An overload, and its status.

    `detail` is the group of a drawn op, the op through which an overload is reached, or a reason.
    """

    op: OpOverload
    facts: Facts
    status: OpStatus
    detail: str


def coverage() -> list[CoveredOp]:
    """Each ATen overload that returns a view or writes an argument, by kind and name."""
    groups = {operator.name: operator.group for operator in OPERATORS}
    ops = [_coverage_of(op, groups) for op in _overloads()]
    return sorted(ops, key=lambda covered: (list(Kind).index(covered.facts.kind), str(covered.op)))


def _overloads() -> Iterator[OpOverload]:
    for name in torch._C._dispatch_get_all_op_names():
        namespace, _, plain = name.partition("::")
        if namespace != "aten":
            continue
        try:
            op = resolve(f"aten.{plain}" if "." in plain else f"aten.{plain}.default")
        except UserError:  # programs may not use it, since it touches files
            continue
        if facts(op).kind is not Kind.FUNCTIONAL:
            yield op


def _coverage_of(op: OpOverload, groups: dict[str, str]) -> CoveredOp:
    known = facts(op)
    if str(op) in groups:
        return CoveredOp(op, known, OpStatus.DRAWN, groups[str(op)])
    reason = why_not_applicable(op)
    if reason is not None:
        return CoveredOp(op, known, OpStatus.NOT_APPLICABLE, reason)
    other = _reached_through(op, groups)
    if other is not None:
        return CoveredOp(op, known, OpStatus.REACHABLE, other)
    return CoveredOp(op, known, OpStatus.UNDRAWN, "")


def why_not_applicable(op: OpOverload) -> str | None:
    """Why programs on strided CPU tensors cannot call an op, or None."""
    reasons = (rule(op) for rule in _NOT_APPLICABLE)
    return next((reason for reason in reasons if reason is not None), None)


def _reached_through(op: OpOverload, groups: dict[str, str]) -> str | None:
    """The drawn functional, in-place or `out=` form that computes the same as an `out=` form."""
    if facts(op).kind not in (Kind.OUT, Kind.MUTATING):
        return None
    name = op.overloadpacket.__name__
    packets = (getattr(torch.ops.aten, spelling, None) for spelling in (name, f"{name}_"))
    forms = (
        f"{packet}.{overload}" for packet in packets if packet for overload in packet.overloads()
    )
    return next((form for form in forms if form in groups), None)


# --- what cannot be drawn -------------------------------------------------------------------------
# Each rule gives the reason why programs on strided CPU tensors cannot call an op, or None.

_STRIDED_CPU = (
    "CPU",
    "CompositeExplicitAutograd",
    "CompositeExplicitAutogradNonFunctional",
    "CompositeImplicitAutograd",
)
_OTHERS = (
    *("SparseCPU", "SparseCsrCPU", "MkldnnCPU", "QuantizedCPU", "NestedTensorCPU"),
    *("CUDA", "SparseCUDA", "SparseCsrCUDA", "QuantizedCUDA", "NestedTensorCUDA"),
)


def _has_kernel(op: OpOverload, key: str) -> bool:
    return torch._C._dispatch_has_kernel_for_dispatch_key(op.name(), key)


def _no_kernel(op: OpOverload) -> str | None:
    if any(_has_kernel(op, key) for key in _STRIDED_CPU):
        return None
    others = [key for key in _OTHERS if _has_kernel(op, key)]
    return f"no kernel for strided CPU tensors, only for {', '.join(others) or 'other devices'}"


def _argument_of_no_program(op: OpOverload) -> str | None:
    for argument in op._schema.arguments:
        for wanted in ("Storage", "Stream", "Dimname"):
            if wanted in str(argument.type) and not argument.has_default_value():
                return f"programs have no {wanted}, which '{argument.name}' is"
    return None


def _why_generated(op: OpOverload) -> str | None:
    """The reason for `out=` forms that torch generated."""
    if facts(op).kind in (Kind.OUT, Kind.MUTATING) and torch.Tag.generated in op.tags:
        return "generated: calls the functional form, then copies"
    return None


def _by_table(op: OpOverload) -> str | None:
    # A name without an overload stands for all its overloads.
    known = {op.overloadpacket.__name__, str(op).removeprefix("aten.")}
    for reason, names in _REASONS.items():
        if known.intersection(names.split()):
            return reason
    return None


_REASONS = {
    "autograd's own": ("requires_grad_ retain_grad set_data _fw_primal _make_dual _unpack_dual"),
    "autocast's own": "_autocast_to_full_precision _autocast_to_reduced_precision",
    "of sparse tensors": (
        "ccol_indices col_indices crow_indices row_indices indices values coalesce"
    ),
    "makes a nested tensor": "_nested_view_from_buffer",
    "pins memory for an accelerator": "pin_memory",
    "no fake kernel: FakeTensor raises on each call, and so does each compiler": (
        "slice_inverse _foreach_addcmul_.Tensor _foreach_addcdiv_.Tensor"
    ),
    "only for constants of a trace, which compilers may copy": "lift_fresh",
    "torch.fx cannot print it: its overload is a Python keyword": "random_.from",
    "its sizes are tensor data that it reads where no dispatch mode sees it": (
        "tensor_split.tensor_indices_or_sections"
    ),
    "a test of torch's own dispatcher": "_test_autograd_multiple_dispatch_view",
    "the private state of torch.quasirandom.SobolEngine": (
        "_sobol_engine_ff_ _sobol_engine_initialize_state_ _sobol_engine_scramble_"
    ),
    "a kernel that checks nothing, of cummax and cummin: it aborts on an empty tensor": (
        "_cummax_helper _cummin_helper"
    ),
    "needs packed weights of FBGEMM": (
        "fbgemm_linear_fp16_weight fbgemm_linear_fp16_weight_fp32_activation"
    ),
    "observes activations for quantization": (
        "_fused_moving_avg_obs_fq_helper fused_moving_avg_obs_fake_quant"
    ),
}

_NOT_APPLICABLE: tuple[Callable[[OpOverload], str | None], ...] = (
    _no_kernel,
    _argument_of_no_program,
    _by_table,
    _why_generated,
)
