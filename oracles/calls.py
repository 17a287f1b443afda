"""Calls of operators, as terms see them: what an op is made of, what it reads, and which arguments bear on its result."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch._higher_order_ops.cond import cond_op
from torch._ops import HigherOrderOperator, OpOverload

from oracles.forms import COMMUTATIVE, SCATTERS
from programs.definedness import tensors_in
from programs.schemas import facts, is_composite

aten = torch.ops.aten

_METADATA_READ = {
    "zeros_like", "ones_like", "full_like", "new_zeros", "new_ones", "new_full", "zero", "zeros", "ones", "full",
    "_foreach_zero",
}  # fmt: skip
# These too, but what they give is random.
_STORES_RANDOM = {
    "uniform", "normal", "random", "exponential", "geometric", "cauchy", "log_normal", "rand_like", "randn_like",
    "randint_like",
}  # fmt: skip
TORCH = {"aten", "prims"}
# To what is computed these do not matter, or (dtype) the result shows them.
_NO_MATTER = {
    "memory_format",
    "layout",
    "pin_memory",
    "device",
    "non_blocking",
    "generator",
    "dtype",
}


_STEPS: dict[Any, Callable[..., Any]] = {
    cond_op: lambda chosen, yes, no, operands: (yes if chosen else no)(
        *operands
    ),  # its kernel refuses to run in a mode
    aten.resize.default: lambda tensor, *args, **kwargs: tensor.clone().resize_(*args, **kwargs),
    aten.resize_as.default: lambda tensor, *args, **kwargs: tensor.clone().resize_as_(
        *args, **kwargs
    ),
}


def steps(op: OpOverload | HigherOrderOperator) -> Callable[..., Any] | None:
    """What calls the ops that an op is made of: of a higher-order one, and of a composite, met in inference mode alone."""
    if op in _STEPS:
        return _STEPS[op]
    if isinstance(op, HigherOrderOperator):
        kernel: Callable[..., Any] | None = op.py_kernels.get(
            torch._C.DispatchKey.CompositeExplicitAutograd
        )
        if kernel is None:
            raise NotImplementedError(f"what {op} does cannot be followed")
        return kernel
    return op.decompose if is_composite(op) and not _has_kernel(op) else None


@functools.cache
def _has_kernel(op: OpOverload) -> bool:
    return torch._C._dispatch_has_kernel_for_dispatch_key(op.name(), "CPU")


@dataclass(frozen=True, slots=True)
class BoundCall:
    """A call by name of argument, as positions and keywords."""

    op: OpOverload
    given: dict[str, Any]

    @property
    def args(self) -> list[Any]:
        return [self.given[each.name] for each in self.op._schema.arguments if not each.kwarg_only]

    @property
    def kwargs(self) -> dict[str, Any]:
        return {
            each.name: self.given[each.name]
            for each in self.op._schema.arguments
            if each.kwarg_only
        }

    def run(self) -> Any:
        return self.op(*self.args, **self.kwargs)


def bound(op: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """All arguments by name, defaults included."""
    given = {}
    for index, argument in enumerate(op._schema.arguments):
        if index < len(args):
            given[argument.name] = args[index]
        else:
            given[argument.name] = kwargs.get(argument.name, argument.default_value)
    return given


def is_out(op: OpOverload, index: int) -> bool:
    return index in facts(op).writes and bool(op._schema.arguments[index].is_out)


def item(given: dict[str, Any], index: int, count: int) -> dict[str, Any]:
    """The arguments for one item of a call on lists."""
    lists = {
        name: value
        for name, value in given.items()
        if isinstance(value, (list, tuple)) and len(value) == count
    }
    return given | {name: value[index] for name, value in lists.items()}


def takes_lists(given: dict[str, Any]) -> bool:
    """Whether there are tensors in a list."""
    return any(
        isinstance(value, (list, tuple)) and any(True for _ in tensors_in(value))
        for value in given.values()
    )


def commutes(op: OpOverload, given: dict[str, Any]) -> bool:
    return (
        op.overloadpacket.__name__ in COMMUTATIVE
        and given.get("alpha", 1) == 1
        and op.namespace == "aten"
    )


def stores(op: OpOverload) -> bool:
    return op in SCATTERS or op is aten.copy.default


@functools.cache
def is_random(op: OpOverload) -> bool:
    return torch.Tag.nondeterministic_seeded in op.tags


@functools.cache
def torch_name(op: OpOverload) -> str:
    """The name of an op of torch without marks of its form.

    Others share names with these by chance, and have none here.
    """
    return _base_name(op) if op.namespace in TORCH else ""


@functools.cache
def plain_name(op: OpOverload) -> str:
    """One name for an op, its in-place and `out=` twins, and its overloads."""
    return f"{op.namespace}::{_base_name(op)}"


def _base_name(op: OpOverload) -> str:
    name: str = op.overloadpacket.__name__
    return name.removesuffix("_").removesuffix("_functional")


def is_constant(op: OpOverload, given: dict[str, Any]) -> bool:
    """Whether the numbers that it gives come from no input."""
    if is_random(op):
        return False
    left_out = unread(op, given)
    read = [value for name, value in given.items() if name not in left_out]
    return torch_name(op) in _METADATA_READ or not any(True for _ in tensors_in(read))


def matters(op: OpOverload, name: str, value: Any) -> bool:
    """Whether a plain argument bears on what is computed."""
    return not isinstance(value, torch.Generator) and (
        op.namespace not in TORCH or name not in _NO_MATTER
    )


def unread(op: OpOverload, given: dict[str, Any]) -> set[str]:
    """The arguments of which only the metadata matters."""
    name, found = torch_name(op), set()
    if name in _STORES_RANDOM or (name == "bernoulli" and "p" in given):
        found.add("self")
    if op.namespace in TORCH or torch.Tag.out in op.tags:
        found.update(
            each.name for index, each in enumerate(op._schema.arguments) if is_out(op, index)
        )
    return found


BATCH_NORMS = {
    aten.native_batch_norm.default: (
        aten._native_batch_norm_legit_no_training.default,
        aten._native_batch_norm_legit.no_stats,
        aten._native_batch_norm_legit.default,
    ),
    aten.native_batch_norm.out: (
        aten._native_batch_norm_legit_no_training.out,
        aten._native_batch_norm_legit.no_stats_out,
        aten._native_batch_norm_legit.out,
    ),
}


def honest_batch_norm(
    op: OpOverload, args: Sequence[Any], outs: Mapping[str, Any]
) -> tuple[OpOverload, Sequence[Any], dict[str, Any]]:
    """`native_batch_norm` by its other name: its own schema does not say that it updates running statistics."""
    mean, training = args[3], args[5]
    not_training, no_statistics, legit = BATCH_NORMS[op]
    if not training:
        honest, args = not_training, [*args[:5], *args[6:]]
    elif mean is None:
        honest, args = no_statistics, [*args[:3], *args[5:]]
    else:
        honest = legit
    names = (each.name for each in honest._schema.arguments if each.kwarg_only)
    in_order = (outs[each.name] for each in op._schema.arguments if each.kwarg_only)
    return honest, args, dict(zip(names, in_order, strict=True))
