"""Calls of operators in uninterpreted execution: their steps, the data they read, constants."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch._ops import HigherOrderOperator, OpOverload

from aliasproof.eager.definedness import eager_steps
from aliasproof.ir.eager_call import tensors_in
from aliasproof.ir.errors import Rejected
from aliasproof.ir.schemas import facts, is_composite
from aliasproof.oracles.forms import COMMUTATIVE, SCATTERS

aten = torch.ops.aten

# These ops read only the metadata of their tensors. The values that they return are constants.
_METADATA_READ = {
    "zeros_like",
    "ones_like",
    "full_like",
    "new_zeros",
    "new_ones",
    "new_full",
    "zero",
    "zeros",
    "ones",
    "full",
    "_foreach_zero",
}
# These also read only the metadata of `self`, but the values that they return are random.
_STORES_RANDOM = {
    "uniform",
    "normal",
    "random",
    "exponential",
    "geometric",
    "cauchy",
    "log_normal",
    "rand_like",
    "randn_like",
    "randint_like",
}
_SCALES_ADDEND = {"addmm", "addmv", "addbmm", "baddbmm", "addr"}
TORCH = {"aten", "prims"}
# Arguments of torch's ops that do not change the values computed; the result shows the `dtype`.
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
    aten.resize.default: lambda tensor, *args, **kwargs: tensor.clone().resize_(*args, **kwargs),
    aten.resize_as.default: lambda tensor, *args, **kwargs: tensor.clone().resize_as_(
        *args, **kwargs
    ),
}


def steps(op: OpOverload | HigherOrderOperator) -> Callable[..., Any] | None:
    """A function that calls the ops that an op consists of; None if it consists of no others.

    Higher-order ops have one, and so do composite ops. A dispatch mode meets composite ops only in
    inference mode.

    Raises:
        Rejected: A higher-order op has no kernel in Python.

    """
    if op in _STEPS:
        return _STEPS[op]
    if isinstance(op, HigherOrderOperator):
        kernel = eager_steps(op)
        if kernel is None:
            raise Rejected(f"what {op} does cannot be followed")
        return kernel
    # An op with a kernel of its own is not decomposed in eager either.
    return op.decompose if is_composite(op) and not _has_kernel(op) else None


@functools.cache
def _has_kernel(op: OpOverload) -> bool:
    return torch._C._dispatch_has_kernel_for_dispatch_key(op.name(), "CPU")


def arguments_by_name(
    op: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> dict[str, Any]:
    """All arguments by name, defaults included."""
    arguments = op._schema.arguments
    defaults = {argument.name: argument.default_value for argument in arguments}
    # Positional arguments are in the order of the schema.
    return defaults | dict(zip(defaults, args, strict=False)) | dict(kwargs)


def is_out(op: OpOverload, index: int) -> bool:
    """Whether the argument of that index is an `out=` argument."""
    return index in facts(op).writes and bool(op._schema.arguments[index].is_out)


def item(given: dict[str, Any], index: int, count: int) -> dict[str, Any]:
    """The arguments for item `index` of a call on lists with `count` items."""
    # All lists of that length have one item per result; other arguments apply to all items.
    lists = {
        name: value
        for name, value in given.items()
        if isinstance(value, (list, tuple)) and len(value) == count
    }
    return given | {name: value[index] for name, value in lists.items()}


def takes_lists(given: dict[str, Any]) -> bool:
    """Whether an argument is a list that contains tensors."""
    return any(
        isinstance(value, (list, tuple)) and any(True for _ in tensors_in(value))
        for value in given.values()
    )


def commutes(op: OpOverload, given: dict[str, Any]) -> bool:
    """Whether the order of the operands does not matter. With a factor (`alpha`), it does."""
    named = op.namespace == "aten" and op.overloadpacket.__name__ in COMMUTATIVE
    return named and given.get("alpha", 1) == 1


def stores(op: OpOverload) -> bool:
    """Whether the op clones its base and then stores into a part of the clone."""
    return op in SCATTERS or op is aten.copy.default


@functools.cache
def torch_name(op: OpOverload) -> str:
    """The name of an op of torch without the suffix of its form; '' for other ops.

    An op of another library may have the name of an op of torch by chance.
    """
    return _base_name(op) if op.namespace in TORCH else ""


@functools.cache
def plain_name(op: OpOverload) -> str:
    """One name for an op, its in-place and `out=` forms, and its overloads."""
    return f"{op.namespace}::{_base_name(op)}"


def _base_name(op: OpOverload) -> str:
    name: str = op.overloadpacket.__name__
    return name.removesuffix("_").removesuffix("_functional")


def is_constant(op: OpOverload, given: dict[str, Any]) -> bool:
    """Whether the values that an op returns depend on no input."""
    # Two draws with equal arguments give different values.
    if facts(op).random:
        return False
    not_read = unread(op, given)
    # Tensors that are not read give only sizes and dtype, which the result shows.
    read = [value for name, value in given.items() if name not in not_read]
    return torch_name(op) in _METADATA_READ or not any(True for _ in tensors_in(read))


def matters(op: OpOverload, name: str, value: Any) -> bool:
    """Whether this argument, which is no tensor, can change the values that are computed."""
    return not isinstance(value, torch.Generator) and (
        op.namespace not in TORCH or name not in _NO_MATTER
    )


def unread(op: OpOverload, given: Mapping[str, Any]) -> set[str]:
    """The arguments whose metadata an op uses and whose contents it does not use."""
    name, names = torch_name(op), set()
    # By their documentation, `beta=0` ignores the addend, also a NaN in it.
    if given.get("beta") == 0 and name in _SCALES_ADDEND:
        names.add("self")
    if name in _STORES_RANDOM or (name == "bernoulli" and "p" in given):
        names.add("self")
    # torch overwrites `out=` arguments. An op of another library may read them.
    if op.namespace in TORCH or torch.Tag.out in op.tags:
        arguments = enumerate(op._schema.arguments)
        names.update(argument.name for index, argument in arguments if is_out(op, index))
    return names


def as_index(op: OpOverload, given: dict[str, Any]) -> tuple[OpOverload, dict[str, Any]]:
    """An `index_select` as a call of `index`; any other call unchanged.

    A compiler may decompose one to the other, and eager may call both.
    """
    if op is not aten.index_select.default:
        return op, given
    before = given["dim"] % max(given["self"].dim(), 1)
    indices = [*[None] * before, given["index"]]
    return aten.index.Tensor, {"self": given["self"], "indices": indices}
