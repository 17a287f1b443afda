"""Erasing no-ops: views of their whole operand, and copies that no use can distinguish.

The first chapter keeps each copy that `require_simple_call` accepts. That is correct, but wastes
memory, because programs copy tensors that they then only read. A copy is a no-op if every use of it
could use its original. It is not a no-op if

- the copy is returned: it would share memory with an input or another output (`return x.clone()`);
- the epilogue overwrites the original before the last read of the copy
  (`y = x.clone(); x.copy_(...); return y + 1`);
- the copy has another layout than the original, and a use of it depends on that. A use that copies
  a whole storage counts, also if the copy is only the source that it stores;
- the program stores into the copy while its original is still read: one copy is made anyway, and
  this one is the cheapest (`is_worth_its_memory`).

Erasing a copy merges two storages, so each decision is made on the graph as earlier ones left it.
Compare `remove_noop_ops` (`torch/_inductor/fx_passes/post_grad.py`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import fx
from torch._ops import OpOverload

from aliasproof.reference_pass.calls.fake_tensors import fake_mode, on_fakes
from aliasproof.reference_pass.calls.graphs import erase_dead
from aliasproof.reference_pass.calls.operand_reads import stored_over
from aliasproof.reference_pass.calls.operator_forms import EPILOGUE, SCATTERS, aten, bind
from aliasproof.reference_pass.calls.regions import Region, equal, overlap
from aliasproof.reference_pass.calls.storages import encoding, same_location, same_view
from aliasproof.reference_pass.liveness import Liveness, Write
from aliasproof.reference_pass.semantics import Semantics

# --- which operand a node duplicates --------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Duplicate:
    """A node with one tensor as its `value`, and the operand that has the same elements.

    `replacement` is the value of the original, which would replace that of the node.
    """

    node: fx.Node
    value: torch.Tensor
    original: fx.Node
    replacement: torch.Tensor
    liveness: Liveness

    @property
    def is_view(self) -> bool:
        """True if the node is a view, so both are in the same memory already."""
        return self.node in self.liveness.views


# (a node, its arguments by name) -> the argument that has the same elements as the result, or None
Source: TypeAlias = Callable[[fx.Node, dict[str, Any]], Any]


def source_of_scatter(node: fx.Node, given: dict[str, Any]) -> Any:
    """The base, if its own view is stored back: `slice_scatter(x, slice(x, args), args)`."""
    return given["self"] if same_view(stored_over(node), given["src"].meta["val"]) else None


# For each op, the argument that a copy duplicates.
SOURCES: dict[OpOverload, Source] = {
    # `same_metadata` excludes a cast to another dtype.
    **dict.fromkeys((aten.clone.default, aten._to_copy.default), lambda node, given: given["self"]),
    # `copy` uses only the layout of its first operand.
    aten.copy.default: lambda node, given: given["src"],
    **dict.fromkeys(SCATTERS, source_of_scatter),
}


def _duplicate(node: fx.Node, liveness: Liveness) -> Duplicate | None:
    """The node as a duplicate of one of its operands; None if it is not one."""
    op = node.target
    # Dead code elimination erases a node without users, if the node has no effect.
    if node.op != "call_function" or not isinstance(op, OpOverload) or not node.users:
        return None
    if not isinstance(node.meta["val"], torch.Tensor):
        return None
    if node in liveness.views:
        original = _shown_again(node, liveness)
    elif op in SOURCES:
        original = SOURCES[op](node, bind(op, node.args, node.kwargs))
    else:
        return None
    if not isinstance(original, fx.Node) or not isinstance(original.meta["val"], torch.Tensor):
        return None
    return Duplicate(node, node.meta["val"], original, original.meta["val"], liveness)


RESIZES = EPILOGUE - {aten.copy_.default}


def _shown_again(view: fx.Node, liveness: Liveness) -> fx.Node | None:
    """The value that a view was made from, and shows all of, in the same order.

    If there are several, the nearest one of the same sizes: `x.unsqueeze(0).squeeze(0)` shows `x`.
    """
    shown: list[fx.Node] = []
    original, sizes = view.args[0], tuple(view.meta["val"].shape)
    while isinstance(original, fx.Node) and isinstance(original.meta["val"], torch.Tensor):
        # The noted value has the sizes before the epilogue changes them.
        if any(user.target in RESIZES and user.args[0] is original for user in original.users):
            break
        if same_view(view.meta["val"], original.meta["val"]):
            shown.append(original)
            if equal(tuple(original.meta["val"].shape), sizes):
                return original
        if original not in liveness.views:
            break
        original = original.args[0]
    return shown[0] if shown else None


# --- when a duplicate can be erased ---------------------------------------------------------------


NoOpRule: TypeAlias = Callable[[Duplicate], bool]


def same_metadata(duplicate: Duplicate) -> bool:
    """Both have the same sizes and strides, are on one device, and read bytes in the same way."""
    old, new = duplicate.value, duplicate.replacement
    # Strides must match for views as well: users may read those of dimensions of size one.
    return (
        encoding(old) == encoding(new)
        and old.device == new.device
        and equal(tuple(old.shape), tuple(new.shape))
        and equal(old.stride(), new.stride())  # all: a view as another dtype depends on all
    )


def view_is_not_returned(duplicate: Duplicate) -> bool:
    """A view is not returned: the caller could tell it from its operand as an object.

    A composite may return the view that it is given: `contiguous(alias(x))`.
    """
    returned = duplicate.liveness.returned
    return not duplicate.is_view or not any(
        node.meta["val"] is duplicate.value for node in returned
    )


def copy_is_not_returned(duplicate: Duplicate) -> bool:
    """A copy is not returned, nor a view of it: it would share memory with its original."""
    return duplicate.is_view or not duplicate.liveness.returned_in(duplicate.value)


def copy_has_the_location(duplicate: Duplicate) -> bool:
    """A copy is where its original is in its storage, since a use may depend on it.

    This is the naive answer; `eager` checks whether a use depends on it.
    """
    return duplicate.is_view or same_location(duplicate.value, duplicate.replacement)


def original_is_not_overwritten(duplicate: Duplicate) -> bool:
    """The epilogue does not overwrite the original before the last read of the copy.

    One `copy_` may do both, if it would read each element where it writes it.
    """
    if duplicate.is_view:
        return True
    # After the last read, the copy would be dead anyway.
    live, region = duplicate.liveness, Region.of(duplicate.replacement)
    made, last = live.position[duplicate.node], live.last_read(duplicate.node)
    return not any(
        made < write.at <= last
        and overlap(write.region, region)
        and not (write.at == last and _reads_where_it_writes(write, duplicate))
        for write in live.memory(duplicate.replacement).writes
    )


def _reads_where_it_writes(write: Write, duplicate: Duplicate) -> bool:
    """True for a `copy_` that reads a copy, or a view of it, and would read what it overwrites."""
    if write.by.target is not aten.copy_.default:
        return False
    source = write.by.args[1]
    assert isinstance(source, fx.Node)
    read = Region.of(source.meta["val"])
    moved = Region.of(duplicate.replacement).start - Region.of(duplicate.value).start
    return dataclasses.replace(read, start=read.start + moved).same(write.region)


def all_noop_rules(*of_location: NoOpRule) -> tuple[NoOpRule, ...]:
    """A duplicate is erased if all of these hold; those `of_location` say where a copy may be."""
    return (
        same_metadata,
        view_is_not_returned,
        copy_is_not_returned,
        *of_location,
        original_is_not_overwritten,
    )


# Not a rule, since it is about cost: the results are right with or without such a copy.


def is_worth_its_memory(duplicate: Duplicate) -> bool:
    """True for a copy that the program stores into, while its original is still needed.

    Without the copy, the first scatter would copy the original, and so would each `copy` before it:
    both copy the whole storage of their first operand. With the copy, all of them are in place.
    """
    live, node = duplicate.liveness, duplicate.node
    # A copy of a whole storage has the offset of its base, so it is among these.
    derived = (value for value in live.with_views(node, copies=True) if value is not node)
    copies_whole = live.semantics.copies_whole_storage
    if duplicate.is_view or not any(copies_whole(value.target) for value in derived):
        return False
    made, region = live.position[node], Region.of(duplicate.replacement)
    return live.caller_reads(duplicate.replacement, region, made) or any(
        True for _ in live.later_reads(duplicate.replacement, region, made)
    )


# --- the pass -------------------------------------------------------------------------------------


def erase_noops(
    graph_module: fx.GraphModule, semantics: Semantics, rules: Sequence[NoOpRule]
) -> None:
    """Erase clones, copies, scatters and views that do nothing, in a functional graph.

    Requires true metadata. No output comes to share storage with an input or another output, and no
    value is overwritten before its last read. With a rule left out, the pass makes wrong programs.
    """
    graph = graph_module.graph
    erase_dead(graph)  # a dead use must not keep a copy
    with on_fakes(fake_mode(graph_module)):
        liveness = Liveness(graph, semantics)
        for node in list(graph.nodes):
            # `replace` keeps `liveness` true, so this sees the graph as it is now.
            duplicate = _duplicate(node, liveness)
            if duplicate is None or not all(rule(duplicate) for rule in rules):
                continue
            if not is_worth_its_memory(duplicate):
                liveness.replace(node, duplicate.original, node.meta["val"])
    erase_dead(graph)  # the duplicates, which no longer have users
    graph_module.recompile()
