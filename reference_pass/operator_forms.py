"""Facts about operators, and the *forms* of an operator: functional, in-place, out=.

All is read off schemas (`OpOverload._schema`). A schema marks each argument that is written with
`!`:

    add_.Tensor(Tensor(a!) self, Tensor other, *, Scalar alpha=1) -> Tensor(a!)

so `self` is written and what is returned is `self`. Its functional form is the overload of `add`
that takes the same arguments, writes none of them, and returns one new tensor for each argument
that was written.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload, OpOverloadPacket
from torch.fx.node import map_aggregate

from reference_pass.regions import Size, known

aten = torch.ops.aten


@dataclass(frozen=True, slots=True)
class Facts:
    """What a schema says.

    `names` are all arguments in order; `writes` those written; `outs` those among them that are
    `out=` arguments; `fresh` are the indices of returns that are no argument handed back.
    """

    names: tuple[str, ...]
    writes: tuple[str, ...]
    outs: tuple[str, ...]
    fresh: tuple[int, ...]
    random: bool


@functools.cache
def facts(op: OpOverload) -> Facts:
    """The facts of an overload."""
    schema = op._schema
    writes = tuple(
        each.name
        for each in schema.arguments
        if each.alias_info is not None and each.alias_info.is_write
    )
    return Facts(
        names=tuple(each.name for each in schema.arguments),
        writes=writes,
        outs=tuple(each.name for each in schema.arguments if each.is_out and each.name in writes),
        fresh=tuple(
            i
            for i, each in enumerate(schema.returns)
            if each.alias_info is None or not each.alias_info.is_write
        ),
        random=torch.Tag.nondeterministic_seeded in op.tags,
    )


def writes(op: object) -> bool:
    """True if calling it writes to an argument."""
    return isinstance(op, OpOverload) and bool(facts(op).writes)


def bind(op: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The arguments given, by name."""
    return dict(zip(facts(op).names, args, strict=False)) | kwargs


def unbind(op: OpOverload, given: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Positional and keyword arguments for a call; one that is not given and stands before one that is, by default."""
    positional = [each for each in op._schema.arguments if not each.kwarg_only]
    while positional and positional[-1].name not in given:
        positional.pop()
    args = tuple(given.get(each.name, each.default_value) for each in positional)
    return args, {
        each.name: given[each.name]
        for each in op._schema.arguments
        if each.kwarg_only and each.name in given
    }


def leaves_in(argument: Any) -> list[Any]:
    """What stands in an argument, at any nesting, with repetition."""
    found: list[Any] = []
    map_aggregate(argument, found.append)
    return found


def nodes_in(argument: Any) -> list[fx.Node]:
    """All nodes in an argument, at any nesting, with repetition."""
    return [leaf for leaf in leaves_in(argument) if isinstance(leaf, fx.Node)]


def tensors_in(value: object) -> Iterator[torch.Tensor]:
    """All tensors in a value, at any nesting of lists, tuples and dicts."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from tensors_in(each)
    elif isinstance(value, dict):
        for each in value.values():
            yield from tensors_in(each)


def on_values(argument: Any, value: Callable[[fx.Node], Any]) -> Any:
    """An argument with the value of each node in its place."""
    return map_aggregate(argument, lambda leaf: value(leaf) if isinstance(leaf, fx.Node) else leaf)


# What may stand in an epilogue: contents of inputs, and where a program changes the metadata of an
# input, that.
EPILOGUE = {aten.copy_.default, aten.set_.source_Tensor, aten.resize_.default}


# --- forms ----------------------------------------------------------------------------------------


@functools.cache
def functional_form(op: OpOverload) -> OpOverload | None:
    """The overload that computes what a mutating one writes, None if there is none.

    It returns the fresh returns of `op`, then the new contents of each written argument. Only
    `aten` is trusted to name its operators so.
    """
    known = facts(op)
    if op.namespace != "aten" or not known.writes:
        return None
    wanted = _signature(op, leave_out=known.outs)
    for candidate in _overloads(*_functional_names(op)):
        if any(each.alias_info is not None for each in candidate._schema.arguments):
            continue
        returns = candidate._schema.returns
        if any(each.alias_info is not None for each in returns) or len(returns) != len(
            known.fresh
        ) + len(known.writes):
            continue
        if _signature(candidate) == wanted:
            return candidate
    return None


def functional_call(
    op: OpOverload, form: OpOverload, given: dict[str, Any], dtype: torch.dtype | None = None
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a mutating call for its functional form, whose arguments may have other names.

    `dtype` is that of the destination: the call computes in it if it takes a dtype and got none.
    """
    names = [each for each in facts(op).names if each not in facts(op).outs]
    defaults = {
        each.name: each.default_value for each in op._schema.arguments if each.has_default_value()
    }
    required = [
        each.name for each in form._schema.arguments if not each.has_default_value()
    ]  # also where op has a default
    pairs = list(zip(names, facts(form).names, strict=True))
    given = {
        new: given.get(old, defaults.get(old))
        for old, new in pairs
        if old in given or new in required
    }
    if dtype is not None and "dtype" in facts(form).names and given.get("dtype") is None:
        given["dtype"] = dtype
    return unbind(form, given)


@functools.cache
def in_place_form(op: OpOverload) -> OpOverload | None:
    """The overload of which `op` is the functional form and that writes to its operands; None if there is none."""
    return next((each for each in _mutating_forms(op) if not facts(each).outs), None)


@functools.cache
def out_form(op: OpOverload) -> OpOverload | None:
    """The `out=` overload of which `op` is the functional form; None if there is none."""
    return next(
        (
            each
            for each in _mutating_forms(op)
            if len(facts(each).outs) == len(facts(each).writes) == 1
        ),
        None,
    )


@functools.cache
def view_form(op: OpOverload) -> OpOverload | None:
    """The view op of an op that changes the metadata of its argument in place: `t` of `t_`; None if there is none."""
    name = op.overloadpacket.__name__
    if op.namespace != "aten" or not name.endswith("_"):
        return None
    for candidate in _overloads(name[:-1]):
        info = candidate._schema.arguments[0].alias_info if candidate._schema.arguments else None
        if info is not None and not info.is_write and _signature(candidate) == _signature(op):
            return candidate
    return None


@functools.cache
def copy_form(op: OpOverload) -> OpOverload | None:
    """The functional form of a view op: `select_copy` of `select`; None if there is none."""
    wanted = _signature(op)
    return next(
        (
            each
            for each in _overloads(op.overloadpacket.__name__ + "_copy")
            if _signature(each) == wanted
        ),
        None,
    )


@functools.cache
def copied_view(op: OpOverload) -> OpOverload | None:
    """The view op of which an op is the functional form: `select` of `select_copy`; None if there is none."""
    name = op.overloadpacket.__name__
    if op.namespace != "aten" or not name.endswith("_copy"):
        return None
    return next(
        (each for each in _overloads(name.removesuffix("_copy")) if copy_form(each) is op), None
    )


def is_commutative(op: OpOverload, given: dict[str, Any]) -> bool:
    """True if `self` and `other` may be exchanged in this call without changing a bit of the result.

    They are of one dtype: kernels round a scalar of a wider one if it comes first, and not if it
    comes second.
    """
    if op not in _COMMUTATIVE or given.get("alpha", 1) != 1:
        return False
    one, other = (
        each.meta["val"] if isinstance(each, fx.Node) else None
        for each in (given["self"], given["other"])
    )
    return (
        isinstance(one, torch.Tensor)
        and isinstance(other, torch.Tensor)
        and one.dtype == other.dtype
    )


_COMMUTATIVE = {
    aten.add.Tensor,
    aten.mul.Tensor,
    aten.logical_and.default,
    aten.logical_or.default,
    aten.logical_xor.default,
    aten.bitwise_and.Tensor,
    aten.bitwise_or.Tensor,
    aten.bitwise_xor.Tensor,
}


def is_pointwise(op: OpOverload) -> bool:
    """True if element i of the result depends on elements i of the operands alone, so one may be overwritten."""
    return torch.Tag.pointwise in op.tags


def _functional_names(op: OpOverload) -> list[str]:
    name = op.overloadpacket.__name__
    return [name.rstrip("_"), name, name + "_functional", name.rstrip("_") + "_functional"]


def _mutating_forms(op: OpOverload) -> Iterator[OpOverload]:
    if op.namespace != "aten":
        return
    name = op.overloadpacket.__name__.removesuffix("_functional")
    for candidate in _overloads(name + "_", name):
        if functional_form(candidate) is op:
            yield candidate


def _overloads(*names: str) -> Iterator[OpOverload]:
    for name in dict.fromkeys(names):
        packet = getattr(aten, name, None)
        if isinstance(packet, OpOverloadPacket):
            for overload in packet.overloads():
                yield getattr(packet, overload)


def _signature(op: OpOverload, leave_out: tuple[str, ...] = ()) -> list[str]:
    return [str(each.type) for each in op._schema.arguments if each.name not in leave_out]


# --- what is read ---------------------------------------------------------------------------------


@functools.cache
def unread(op: OpOverload) -> tuple[str, ...]:
    """The arguments of which an op looks at the metadata alone: what they hold does not matter."""
    name = op.overloadpacket.__name__
    if name.endswith("_like") or name.startswith(("new_", "sym_")):
        return facts(op).names[:1]
    if op in (aten.view_as.default, aten.expand_as.default, aten.reshape_as.default):
        return facts(op).names[1:]
    return ("self",) if op is aten.copy_.default else ()


def overwrites(op: OpOverload) -> bool:
    """True if an op stores over its first operand whatever that holds, once it is in place: `fill`, `copy`."""
    return op in _OVERWRITES


_OVERWRITES = {
    aten.fill.Scalar, aten.fill.Tensor, aten.zero.default, aten.copy.default, aten.uniform.default,
    aten.normal_functional.default, aten.exponential.default, aten.random.default, aten.random.to,
    getattr(aten.random, "from"), aten.cauchy.default, aten.log_normal.default, aten.geometric.default,
}  # fmt: skip

# The view that a scatter stores through: of its first operand, it reads all but what that view
# shows.
SCATTERS = {
    aten.slice_scatter.default: aten.slice.Tensor,
    aten.select_scatter.default: aten.select.int,
    aten.diagonal_scatter.default: aten.diagonal.default,
    aten.as_strided_scatter.default: aten.as_strided.default,
}


def stores_through(scatter: fx.Node) -> tuple[OpOverload, tuple[Any, ...]]:
    """The view op that a scatter stores through, and its arguments, of which the first is the base."""
    assert isinstance(scatter.target, OpOverload)
    given = bind(scatter.target, scatter.args, scatter.kwargs)
    del given["src"]  # the other arguments have the names that they have in the view op
    view = SCATTERS[scatter.target]
    return view, unbind(view, given)[0]


# These copy all of the storage of their first operand, not only what it shows: their result starts
# where the operand does, `as_strided` of it shows what lay around the operand, and a storage that
# holds no whole number of elements is refused.
COPIES_STORAGE = {aten.copy.default, *SCATTERS}


def goes_by_place(op: object) -> bool:
    """True if what an op shows or stores goes by where its operand starts in its storage."""
    return getattr(op, "overloadpacket", None) in (
        aten.as_strided,
        aten.as_strided_copy,
        aten.as_strided_scatter,
    )


def starts_between(user: fx.Node, moved: Size) -> bool:
    """True if a view of larger elements than its operand's would not start at a whole one, were it moved by some bytes."""
    larger = user.target in (aten.view.dtype, aten.view_as_complex.default)
    return larger and not known(moved % user.meta["val"].itemsize == 0)


# --- mutating operators without a functional form -------------------------------------------------


def on_copies(op: OpOverload, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
    """Call a mutating operator on copies of what it writes: the functional form of any operator, also of a custom one.

    Returns its fresh returns, then the new contents of each written argument.

    The copies have the strides of the originals: random fills and other opaque kernels may go by
    them.
    """
    known = facts(op)
    given = bind(op, args, kwargs)
    for name in known.writes:
        value = given.get(name)
        given[name] = (
            [_same_layout(each) for each in value]
            if isinstance(value, (list, tuple))
            else _same_layout(value)
        )
    args, kwargs = unbind(op, given)
    returned = op(*args, **kwargs)
    returns = (
        returned
        if isinstance(returned, (list, tuple)) and len(op._schema.returns) > 1
        else (returned,)
    )
    return (*(returns[i] for i in known.fresh), *(given[name] for name in known.writes))


def _same_layout(tensor: Any) -> Any:
    if not isinstance(tensor, torch.Tensor):
        return tensor
    copy = torch.empty_strided(
        tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device
    )
    span = 1 + sum(
        (size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True)
    )
    if tensor.numel():
        copy.as_strided((span,), (1,)).copy_(tensor.as_strided((span,), (1,)))
    return copy
