"""Dropping what does nothing: views that show all of their operand, clones and copies of what nobody changes.

A copy does nothing only if nobody can tell it from the original. Somebody can if

- the copy is returned: it would share memory with an input, or with another output (`return
  x.clone()`);
- the original is overwritten by the epilogue before the copy is read for the last time
  (`y = x.clone(); x.copy_(...); return y + 1`);
- the copy lies in memory otherwise than the original, and a use of it goes by that.

Dropping one copy merges two storages, so each decision is taken on the graph as the earlier ones
left it. Compare `remove_noop_ops` (`torch/_inductor/fx_passes/post_grad.py`), which asks the same
questions of fake storages.
"""

from __future__ import annotations

import torch
from torch import fx
from torch._ops import OpOverload

from reference_pass.alias_analysis import fake_mode, on_fakes, same_numbers
from reference_pass.emission import holds_a_part
from reference_pass.functionalize import has_effect
from reference_pass.liveness import Liveness, stored_over
from reference_pass.metadata import update_metadata
from reference_pass.operator_forms import (
    COPIES_STORAGE,
    SCATTERS,
    aten,
    bind,
    goes_by_place,
    starts_between,
)
from reference_pass.regions import Region, Size, equal, known, overlap


def remove_noops(graph_module: fx.GraphModule, *sample_args: object) -> fx.GraphModule:
    """Drop clones, copies, scatters and views that do nothing from a functional graph. Changes it and returns it.

    No output shares storage with an input or another output that it did not share with before, and
    no value is overwritten before its last read. Sample arguments as for `reinplace`.
    """
    update_metadata(graph_module, *sample_args)
    graph = graph_module.graph
    graph.eliminate_dead_code(has_effect)
    mode = fake_mode(graph_module, sample_args)
    with on_fakes(mode):
        liveness = Liveness(graph, mode)
        for node in list(graph.nodes):
            original = _original(node, liveness)
            if original is not None:
                liveness.replace(node, original, node.meta["val"])
    graph.eliminate_dead_code(has_effect)
    graph_module.recompile()
    return graph_module


def _original(node: fx.Node, liveness: Liveness) -> fx.Node | None:
    """The operand that a node is no different from, or None."""
    if node.op != "call_function" or not isinstance(node.target, OpOverload) or not node.users:
        return None
    value = node.meta["val"]
    original = _same_view(node, liveness) if node in liveness.views else _same_copy(node)
    if (
        original is None
        or not isinstance(value, torch.Tensor)
        or not _alike(value, original.meta["val"])
    ):
        return None
    if node in liveness.views:
        # The same memory. Only as an object is it another one, which the caller of the graph could
        # tell.
        return None if node in liveness.returned else original
    return original if _nobody_can_tell(node, original, liveness) else None


def _same_view(node: fx.Node, liveness: Liveness) -> fx.Node | None:
    operand = node.args[0]
    if not isinstance(operand, fx.Node) or not isinstance(operand.meta["val"], torch.Tensor):
        return None
    return operand if same_numbers(node.meta["val"], operand.meta["val"]) else None


def _same_copy(node: fx.Node) -> fx.Node | None:
    """The operand that a node holds the numbers of."""
    op = node.target
    assert isinstance(op, OpOverload)
    given = bind(op, node.args, node.kwargs)
    if op in (aten.clone.default, aten._to_copy.default):
        source = given["self"]
    elif op is aten.copy.default:
        source = given["src"]
    elif op in SCATTERS:
        # The base, if its own view is stored back: `slice_scatter(x, slice(x, args), args)`.
        source = (
            given["self"] if same_numbers(stored_over(node), given["src"].meta["val"]) else None
        )
    else:
        return None
    return source if isinstance(source, fx.Node) else None


def _alike(one: torch.Tensor, other: torch.Tensor) -> bool:
    return (
        one.dtype == other.dtype
        and one.device == other.device
        and (one.is_conj(), one.is_neg()) == (other.is_conj(), other.is_neg())
        and equal(tuple(one.shape), tuple(other.shape))
        and equal(one.stride(), other.stride())  # all of them: a view as another dtype goes by all
    )


def _nobody_can_tell(copy: fx.Node, original: fx.Node, liveness: Liveness) -> bool:
    """True if nobody can tell a copy from its original."""
    old, new = copy.meta["val"], original.meta["val"]
    if liveness.escapes(old):  # it keeps a storage to itself
        return False
    same_storage_size = known(old.untyped_storage().nbytes() == new.untyped_storage().nbytes())
    moves = (
        not known(old.storage_offset() == new.storage_offset())
        or not same_storage_size
        or holds_a_part(new)
    )
    if moves and _counts_from_start(
        copy, (new.storage_offset() - old.storage_offset()) * new.itemsize, liveness
    ):
        return False
    last, region = liveness.last_read(copy), Region.of(new)
    since = liveness.position[copy]
    return not any(
        since < each.at < last and overlap(each.region, region)
        for each in liveness.memory(new).writes
    )


def _counts_from_start(value: fx.Node, moved: Size, liveness: Liveness) -> bool:
    """True if a use of a value, or of a view of it, goes by where it starts in its storage, or what lies around it.

    It would be moved by some bytes.
    """
    todo = [value]
    while todo:
        each = todo.pop()
        for user in each.users:
            if (
                goes_by_place(user.target)
                or user.target in COPIES_STORAGE
                or starts_between(user, moved)
            ):
                return True
            if user in liveness.views:
                todo.append(user)
    return False
