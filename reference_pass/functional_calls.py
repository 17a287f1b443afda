"""Calls in functional form.

A call that writes nothing is the same call in the new graph, on the current values of its operands.
A call that writes is the functional form of its op (`add` for `add_`), and each result is written
to the view of the tensor that the program writes:

    x.add_(y)                  new = add(x, y), which is written to the view of x

The text below is mostly about the calls for which this is not enough.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload

from aliasproof.reference_pass.alias_analysis import Effect
from aliasproof.reference_pass.calls.copied_operands import Layout
from aliasproof.reference_pass.calls.nested import nodes_in, tensors_in
from aliasproof.reference_pass.calls.operator_forms import (
    WRITTEN_IN_PLACE,
    aten,
    bind,
    facts,
    functional_call,
    is_opaque,
    on_copies,
    rounds_its_scalar,
    unbind,
)
from aliasproof.reference_pass.calls.storages import operand_storages, written_tensors
from aliasproof.reference_pass.environment import Environment
from aliasproof.reference_pass.exceptions import Refused
from aliasproof.reference_pass.functional_storage import FunctionalStorage, FunctionalView
from aliasproof.reference_pass.regions import (
    contiguous_strides,
    is_data_dependent,
    known,
    overlap,
    same_strides,
)

# --- calls that write nothing ---------------------------------------------------------------------
#
# In the new graph an operand can have other strides than in eager, or another offset, or a storage
# of another size. Most ops do not depend on that. Four kinds do:
#
# - random ops draw numbers in the order of memory, and many others round by it, so their operands
#   get eager's strides (`env.arguments`);
# - `reshape` copies or not, depending on strides. A copy in eager is a copy here (`env.apart`);
# - `as_strided_copy` reads bytes around its operand;
# - `as_strided_scatter` copies the storage of its operand, and stores to bytes around it.


def call_without_writes(env: Environment, node: fx.Node, effect: Effect) -> None:
    """A call that writes nothing: the same call on current values."""
    if env.emit.semantics.call_in_eager(env, node, effect):
        return
    op = node.target
    layouts = None
    if isinstance(op, OpOverload) and is_opaque(op):
        layouts = layouts_in_eager(env, op, bind(op, node.args, node.kwargs))
    if layouts is not None:
        assert isinstance(op, OpOverload)
        several = len(op._schema.returns) > 1
        new = env.emit.call(
            on_copies,
            op,
            *env.arguments(node.args),
            layouts=layouts,
            **env.arguments(node.kwargs),
        )
        env.define(node, effect, effect.value, new if several else _picked(env, new)[0])
        return
    args, kwargs = env.arguments(node.args, node), env.arguments(node.kwargs, node)
    new = env.noted(env.emit.call(op, *args, **kwargs))
    if isinstance(effect.value, torch.Tensor):
        new = env.apart(new, operand_storages(new))
    env.define(node, effect, effect.value, new)


# --- calls that write -----------------------------------------------------------------------------
#
# An op without a functional form is called on copies of what it writes (`on_copies`), which is a
# functional form of any op. The new contents come after the other results.


def call_with_writes(env: Environment, node: fx.Node, effect: Effect, op: OpOverload) -> None:
    """A call that writes: its functional form on current values. Its results are written."""
    written = written_tensors(node, env.shown)
    views = [env.views[id(tensor)] for tensor in written]
    on_cpu = all(tensor.device.type == "cpu" for tensor in written)
    if op is aten._foreach_copy_.default or (on_cpu and _items_overlap(env, node, op, views)):
        _call_item_by_item(env, node, op, views)
        return
    if not is_opaque(op):
        _refuse_two_writes(op, [view for view in views if not _has_lazy_bits(view)])
    results = _parts(env, _functional(env, node, op, (node.args, node.kwargs), views))
    fresh = facts(op).fresh
    returned = effect.value if len(op._schema.returns) > 1 else (effect.value,)
    for result, index in zip(results, fresh, strict=False):
        env.define(node, effect, returned[index], result)
    contents = [leaf for result in results[len(fresh) :] for leaf in _tensors(env, result)]
    writes = zip(views, contents, strict=True)
    for view, value in sorted(writes, key=lambda write: _has_lazy_bits(write[0])):
        view.storage.write(view, value)


def _has_lazy_bits(view: FunctionalView) -> bool:
    """True if eager gives the kernel a copy, since it does not take lazy bits.

    After the call, it copies these back (aten/src/ATen/native/MathBitsFallback.h).
    """
    return view.geometry is not None and (view.geometry.conj or view.geometry.neg)


def _functional(
    env: Environment,
    node: fx.Node,
    op: OpOverload,
    passed: tuple[tuple[Any, ...], dict[str, Any]],
    views: list[FunctionalView],
) -> fx.Node:
    """The call of the functional form, for a captured call. `passed` are its arguments."""
    form = env.rules.functional_form(op)
    if facts(op).random and not all(map(_is_contiguous, views)):
        # Random numbers come in the order of memory, and the functional form has another layout.
        form = None
    # An op that writes computes in the dtype of its destination (`cumsum_` of int8).
    first_written = views[0].geometry if views else None
    dtype = None if first_written is None else first_written.dtype
    if rounds_its_scalar(op, dtype):
        form = None
    old = None
    if form is not None and env.rules.overwrites(form) and facts(op).writes == facts(op).names[:1]:
        old = views[0].storage.value_before_queue(views[0])
    first = () if old is None else (old,)
    call = None if is_opaque(op) and not facts(op).random else node
    args = (*first, *env.arguments(passed[0][len(first) :], call))
    kwargs = env.arguments(passed[1], call)
    if is_opaque(op):
        layouts = layouts_in_eager(env, op, bind(op, *passed))
        given = kwargs if layouts is None else {**kwargs, "layouts": layouts}
        return env.emit.call(on_copies, op, *args, **given)
    if form is not None:
        own_args, own_kwargs = functional_call(op, form, bind(op, args, kwargs), dtype)
        new = env.emit.call(form, *own_args, **own_kwargs)
        new.meta[WRITTEN_IN_PLACE] = not facts(op).outs
        if not _rounds_elsewhere(env, node, new, views) or _read_overlaps(env, op, passed, views):
            return env.noted(new)
        env.emit.graph.erase_node(new)
    elif _read_overlaps(env, op, passed, views):
        raise Refused(
            f"{op} reads memory that it writes, in an order that its schema does not state"
        )
    return env.noted(env.emit.call(on_copies, op, *args, **kwargs))


# An `out=` can have gaps, or be transposed. Then the kernel runs other loops than for the new
# tensor of the functional form, and may round in another way.


def _rounds_elsewhere(
    env: Environment, node: fx.Node, new: fx.Node, written: list[FunctionalView]
) -> bool:
    """True if a call into an `out=` may have other bits than its functional form, `new`."""
    op = node.target
    if not isinstance(op, OpOverload) or not facts(op).outs or any(map(_has_lazy_bits, written)):
        return False
    results = tensors_in(new.meta["val"])[len(facts(op).fresh) :]
    return env.depends_on_strides(node) and not all(
        view.geometry is None
        or same_strides(view.geometry.sizes, result.stride(), view.geometry.strides)
        for view, result in zip(written, results, strict=True)
    )


def _is_contiguous(view: FunctionalView) -> bool:
    geometry = view.geometry
    if geometry is None:
        return True
    wanted = tuple(contiguous_strides(geometry.sizes))
    return same_strides(geometry.sizes, geometry.strides, wanted)


# A `_foreach_` op runs one item of its lists after the other on a CPU
# (aten/src/ATen/native/ForeachOpsKernels.cpp). If items overlap, the order shows in the results. So
# the functional form is called once per item, in that order.


def _items_overlap(
    env: Environment, node: fx.Node, op: OpOverload, written: list[FunctionalView]
) -> bool:
    """True if a `_foreach_` op writes bytes that it reads or writes for another item as well."""
    if not op.overloadpacket.__name__.startswith("_foreach_"):
        return False
    lists = [_item_views(env, value) for value in bind(op, node.args, node.kwargs).values()]
    return any(
        _may_overlap(target, operand)
        for index, target in enumerate(written)
        for views in lists
        for other, operand in enumerate(views)
        if index != other
    )


def _item_views(env: Environment, value: Any) -> list[FunctionalView]:
    """The view of each item of an argument that is a list of tensors."""
    items = value if isinstance(value, (list, tuple)) else []
    return [view for node in nodes_in(items) for view in env.views_of(node)]


def _call_item_by_item(
    env: Environment, node: fx.Node, op: OpOverload, written: list[FunctionalView]
) -> None:
    """Each item as a call on lists of one item, whose result is written before the next one.

    Eager resolves lazy bits before the call, so what has them is read before the first item. It
    refuses to write to a list in which a tensor has them.
    """
    given = bind(op, node.args, node.kwargs)
    lists = [name for name, value in given.items() if isinstance(value, (list, tuple))]
    items = dict.fromkeys(item for name in lists for item in nodes_in(given[name]))
    resolved = {
        item: env.emit.call(aten.clone.default, env.arguments(item))
        for item in items
        if any(map(_has_lazy_bits, env.views_of(item)))
    }
    for index, view in enumerate(written):
        with env.given(resolved):
            if op is aten._foreach_copy_.default:
                # The functional form copies whole storages. Of `copy` the passes know that.
                item = (given["self"][index], given["src"][index])
                new = _functional(env, node, aten.copy_.default, (item, {}), [view])
            else:
                of_one = given | {name: [given[name][index]] for name in lists}
                (new,) = _picked(env, _functional(env, node, op, unbind(op, of_one), [view]))
        view.storage.write(view, new)


# A call returns one tensor, one list of tensors, or a tuple of both. Fakes have the same form.


def _parts(env: Environment, value: fx.Node) -> list[fx.Node]:
    """The results of a call, one node each. One tensor is one result, and so is one list."""
    shown = value.meta["val"]
    return _picked(env, value) if isinstance(shown, tuple) else [value]


def _tensors(env: Environment, value: fx.Node) -> list[fx.Node]:
    """The tensors of one result, one node each."""
    shown = value.meta["val"]
    if isinstance(shown, (list, tuple)):
        return _picked(env, value)
    return [] if shown is None else [value]


def _picked(env: Environment, value: fx.Node) -> list[fx.Node]:
    count = len(value.meta["val"])
    return [env.emit.call(operator.getitem, value, index) for index in range(count)]


# --- operators of other libraries -----------------------------------------------------------------
#
# Nothing is known of such an operator but its schema. So each operand must have the layout that it
# has in eager, and operands must share memory as in eager, if one of them is written. Usually the
# values in the new graph are so. Otherwise the call gets copies with these layouts (`on_copies`).
# What is in a storage around the operands is zero then.


def layouts_in_eager(
    env: Environment, op: OpOverload, given: dict[str, Any]
) -> list[Layout] | None:
    """The layouts of the operands in eager; None if the values in the new graph have them."""
    operands = [tensor for leaf in nodes_in(given) for tensor in tensors_in(env.shown(leaf))]
    values = [value.meta["val"] for value in nodes_in(env.arguments(given))]
    views = [env.views[id(tensor)] for tensor in operands]
    layouts = []
    for view in views:
        assert view.geometry is not None
        seen = view.geometry
        nbytes = env.nbytes[seen.storage]
        layouts.append(
            (seen.storage, nbytes, seen.offset, tuple(seen.strides), seen.conj, seen.neg)
        )
    # A call that writes nothing cannot tell whether its operands share memory.
    shared = bool(facts(op).writes) and len({view.storage for view in views}) < len(views)
    alike = all(map(_has_layout, values, layouts))
    return None if alike and not shared else layouts


def _has_layout(value: torch.Tensor, layout: Layout) -> bool:
    _, nbytes, offset, strides, _, _ = layout
    pairs = [*zip(value.stride(), strides, strict=True), (value.storage_offset(), offset)]
    pairs.append((value.untyped_storage().nbytes(), nbytes))
    # A data-dependent size has another symbol here, and no graph can compute it before.
    return all(is_data_dependent(own) or known(own == wanted) for own, wanted in pairs)


# --- calls that are refused -----------------------------------------------------------------------
#
# Two kinds of calls depend on the order in which a kernel reads and writes, which is undefined, or
# unknown.


def _refuse_two_writes(op: OpOverload, views: list[FunctionalView]) -> None:
    """Raise `Refused` if a call writes the same bytes through two arguments."""
    together: dict[FunctionalStorage, list[FunctionalView]] = {}
    for view in views:
        others = together.setdefault(view.storage, [])
        for other in others:
            if not _may_overlap(view, other):
                continue
            if all(each.geometry and each.geometry.region.fixed for each in (view, other)):
                raise Refused(
                    f"{op} writes the same memory through two arguments: undefined in eager"
                )
            raise Refused(
                f"whether {op} writes the same memory through two arguments depends on symbolic"
                " sizes; trace it with fixed sizes"
            )
        others.append(view)


def _read_overlaps(
    env: Environment,
    op: OpOverload,
    passed: tuple[tuple[Any, ...], dict[str, Any]],
    written: list[FunctionalView],
) -> bool:
    """True if a call reads bytes that it writes, through another argument."""
    read = [
        view
        for name, value in bind(op, *passed).items()
        if name not in facts(op).writes
        for operand in nodes_in(value)
        for view in env.views_of(operand)
    ]
    return any(_may_overlap(view, other) for view in written for other in read)


def _may_overlap(one: FunctionalView, other: FunctionalView) -> bool:
    if one.storage is not other.storage or one.geometry is None or other.geometry is None:
        return False
    return overlap(one.geometry.region, other.geometry.region)
