"""`as_strided_copy` and `as_strided_scatter`: they see bytes of a storage around their operand."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import fx

from aliasproof.reference_pass.alias_analysis import Effect
from aliasproof.reference_pass.bases import BaseKind
from aliasproof.reference_pass.calls.nested import on_values
from aliasproof.reference_pass.calls.operand_reads import depends_on_location
from aliasproof.reference_pass.calls.operator_forms import SCATTERS, aten, bind
from aliasproof.reference_pass.calls.regions import Region, Size, contains, known, same_strides
from aliasproof.reference_pass.calls.storages import Geometry, storage_of, value_of
from aliasproof.reference_pass.calls.view_forms import copy_form
from aliasproof.reference_pass.environment import Environment
from aliasproof.reference_pass.flattening import view_of_geometry
from aliasproof.reference_pass.semantics import Values


def copied_around(node: fx.Node, values: Values) -> torch.Tensor | None:
    """The view that `as_strided_copy` copies, on the storage of its operand; None for other ops."""
    if node.target is not aten.as_strided_copy.default:
        return None
    given = on_values(bind(node.target, node.args, node.kwargs), values)
    # Eager first resolves a lazy conjugate or negative bit into a new tensor, so the copied bytes
    # are not in the operand's storage.
    if given["self"].is_conj() or given["self"].is_neg():
        return None
    shown: torch.Tensor = aten.as_strided.default(*given.values())
    return shown


def call_with_strides(env: Environment, node: fx.Node, effect: Effect) -> bool:
    """Emit the call of a node that sees bytes around its operand; False for any other node."""
    if effect.copied is not None:
        # The analysis has described the view that it copies: `as_strided` of its operand. So the
        # new call is the copying form of the last step to that view, and contiguous.
        storage, emit = env.storages[effect.copied.storage], env.emit
        operand = env.operand_in(node, storage) or storage.base
        view = view_of_geometry(storage, effect.copied, operand)
        if view.step is None or view.parent is None:
            layout = {"memory_format": torch.contiguous_format}
            new = emit.call(aten.clone.default, storage.read(view), **layout)
        else:
            op, arguments = view.step
            new = emit.call(copy_form(op), storage.read(view.parent), *arguments)
        env.define(node, effect, effect.value, new)
    elif node.target is aten.as_strided_scatter.default:
        scatter_by_geometry(env, node, effect)
    else:
        return False
    return True


# `as_strided_scatter` is emitted unchanged if its operand has the layout and the storage of eager,
# or those of the copy that eager makes of it. (Lazy bits are resolved into a new tensor, and
# repeated elements are copied one by one; else it is a copy of the whole storage.) Otherwise the
# graph makes a storage like that of the copy, stores the operand at its offset, then the source at
# the bytes that the call names. The result is a view of that storage.


def scatter_by_geometry(env: Environment, node: fx.Node, effect: Effect) -> None:
    """Emit the call of `as_strided_scatter` of a node, on current values."""
    scatter, emit = aten.as_strided_scatter.default, env.emit
    captured = bind(scatter, node.args, node.kwargs)
    given, seen = env.arguments(captured), on_values(captured, env.analysis.value)
    (operand,) = env.views_of(node.args[0])
    copy = effect.shows[id(effect.value)]
    # Where the source is stored, as a view of the result.
    offset = seen.get("storage_offset")
    stored = replace(
        copy,
        sizes=tuple(seen["size"]),
        strides=tuple(seen["stride"]),
        offset=copy.offset if offset is None else offset,
        detached=False,
    )
    nbytes = env.analysis.nbytes[copy.storage]
    target = (given["size"], given["stride"], stored.offset)
    if _has_geometry(
        given["self"], operand.shows, env.nbytes[operand.shows.storage]
    ) or _has_geometry(given["self"], copy, nbytes):
        new = emit.call(scatter, given["self"], given["src"], *target)
    else:  # into a storage of zeros, as large as that of eager's copy
        own = (list(copy.sizes), list(copy.strides), copy.offset)
        count = nbytes // given["self"].meta["val"].element_size()
        storage = emit.call(aten.new_zeros.default, given["self"], [count])
        storage = emit.call(scatter, storage, given["self"], *own)
        storage = emit.call(scatter, storage, given["src"], *target)
        new = emit.view(aten.as_strided.default, storage, *own)
    env.define(node, effect, effect.value, new)
    (view,) = env.views_of(node)
    if view.storage.kind is BaseKind.FLATTENED:
        # The program sees bytes around the result, and the source can be stored there.
        target_view = view_of_geometry(view.storage, stored, view.storage.base)
        view.storage.write(target_view, given["src"])


def _has_geometry(value: fx.Node, geometry: Geometry, nbytes: Size) -> bool:
    """True if a value has this layout, these lazy bits, and a storage of `nbytes` bytes."""
    here = value.meta["val"]
    return (
        (here.is_conj(), here.is_neg()) == (geometry.conj, geometry.neg)
        and same_strides(geometry.sizes, geometry.strides, here.stride())
        and known(geometry.offset == here.storage_offset())
        and known(here.untyped_storage().nbytes() == nbytes)
    )


# --- whole storages -------------------------------------------------------------------------------
#
# Some functional ops copy the whole storage of an operand, and not only the bytes that the operand
# shows. An `as_strided` of the result can then show bytes around the operand:
#
#     copy = slice_scatter(x, y, ...)         around = copy.as_strided(...)


# These copy the whole storage of their first operand, not only the bytes that the operand covers.
# Then the result has the operand's offset, and `as_strided` of the result shows bytes from around
# the operand. They raise if the storage ends with a part of an element.
COPIES_STORAGE = {aten.copy.default, *SCATTERS}


def copies_whole_storage(op: object) -> bool:
    """True for a `copy`, or a scatter (`COPIES_STORAGE`)."""
    return op in COPIES_STORAGE


def reads_whole(graph: fx.Graph) -> set[fx.Node]:
    """The nodes that read more of a storage than their first operand shows.

    `as_strided_copy` does. So does a copy or a scatter, if a later `as_strided` of it shows bytes
    of its new storage beyond its result.
    """
    copies: dict[int, fx.Node] = {}
    seen: dict[int, list[torch.Tensor]] = {}
    whole: set[fx.Node] = set()
    for node in graph.nodes:
        # Its result is on a storage of its own, at the offset of its operand.
        if copies_whole_storage(node.target):
            copies[storage_of(node.meta["val"])] = node
        elif depends_on_location(node.target) and node.target not in SCATTERS:
            args, kwargs = on_values((node.args, node.kwargs), value_of)
            shown = aten.as_strided.default(*args, **kwargs)
            seen.setdefault(storage_of(shown), []).append(shown)
            whole.add(node)
    # Last copy first: bytes that are seen in a copy of a copy were in the original.
    copied: set[int] = set()
    for storage, node in reversed(copies.items()):
        region = Region.of(node.meta["val"])
        if storage in copied or any(
            not contains(region, Region.of(shown)) for shown in seen.get(storage, ())
        ):
            whole.add(node)
            copied.add(storage_of(node.all_input_nodes[0].meta["val"]))
    return whole
