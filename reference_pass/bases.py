"""The choice of a base for each storage of a program.

The value of the *base* is the contents of the storage, and each other view is regenerated from it.
A storage that is never written needs no base. For the others there are two kinds (`BaseKind`). The
choice needs to know the whole program, so everything in this file is a pure function of the alias
analysis.

The first chapter takes the tensor that was made with the `Storage` as its `base`. That is wrong in
two cases, because a base must show each byte that the program sees exactly once. It may miss some:

    def program(x):                              # x = arange(4.)[2:]
        x.as_strided((4,), (1,), 0).add_(1)      # also writes the two elements before x

Or it may show some bytes twice, as an `expand` does. One write to such bytes changes several of its
elements, but a functional value has separate elements. In both cases the storage is *flattened*:
the base is the storage from its first to its last byte, as a tensor of one dimension.
"""

from __future__ import annotations

import enum
import operator
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import fx
from torch._ops import OpOverload

from aliasproof.reference_pass.alias_analysis import Analysis
from aliasproof.reference_pass.calls.nested import nodes_in, tensors_in
from aliasproof.reference_pass.calls.operator_forms import bind, writes
from aliasproof.reference_pass.calls.regions import contains, is_dense, known, overlaps_itself
from aliasproof.reference_pass.calls.storages import Geometry
from aliasproof.reference_pass.calls.view_forms import ToSteps, ViewCall, view_form
from aliasproof.reference_pass.semantics import Semantics
from aliasproof.reference_pass.views import view_steps


class BaseKind(enum.Enum):
    """The kinds of bases."""

    # The storage is never written. No view of it is regenerated: each one keeps its value.
    CONSTANT = enum.auto()
    # The input, or the tensor that was made with the storage.
    TENSOR = enum.auto()
    # All of the storage, in one dimension.
    FLATTENED = enum.auto()


# --- what the choice depends on -------------------------------------------------------------------
#
# The alias analysis knows all views of a storage. A view that is reached by view ops with inverses
# shows only bytes that the base shows, so it restricts nothing. Three kinds of storages need care:
# those with views of another kind, those that the program sees beyond the tensor that was made with
# them, and those of several outputs.


@dataclass(frozen=True, slots=True)
class StorageUses:
    """How a program uses its storages. A storage is given by its index in the analysis.

    `copies` says that the new graph uses view-copy ops instead of views.
    `only_by_as_strided` has, by storage, the views that are reachable only by `as_strided` of the
    base. `copied_whole` maps each storage that is a copy, and that is seen beyond the tensor made
    with it, to its original. `returned_twice` has the storages of several outputs.
    """

    analysis: Analysis
    copies: bool
    only_by_as_strided: Mapping[int, Sequence[Geometry]]
    copied_whole: Mapping[int, int]
    returned_twice: frozenset[int]

    def is_copied_or_copy(self, storage: int) -> bool:
        """True if a storage is a copy, or an original, in `copied_whole`."""
        return storage in self.copied_whole or storage in self.copied_whole.values()


def storage_uses(
    output: fx.Node,
    analysis: Analysis,
    copies: bool,
    table: Mapping[OpOverload, ToSteps],
    semantics: Semantics,
) -> StorageUses:
    """The uses of all storages, up to the output, given the view ops as steps (`VIEW_STEPS`)."""
    # One output that is returned several times counts as several.
    returned = Counter(
        analysis.storages.number(tensor)
        for node in nodes_in(output.args)
        for tensor in tensors_in(analysis.value(node))
    )
    return StorageUses(
        analysis,
        copies,
        _find_only_by_as_strided(analysis, copies, table),
        _find_copied_whole(analysis, semantics),
        frozenset(storage for storage, times in returned.items() if times > 1),
    )


def _find_only_by_as_strided(
    analysis: Analysis, copies: bool, table: Mapping[OpOverload, ToSteps]
) -> dict[int, list[Geometry]]:
    """The views, by storage, that are reachable only by `as_strided` of the base."""
    found: dict[int, list[Geometry]] = {}
    met: set[int] = set()  # the first tensor of a storage is not a view of another
    for node, effect in analysis.effects.items():
        for tensor in tensors_in(effect.value):
            geometry = effect.shows[id(tensor)]
            first = geometry.storage not in met
            if not first and not _has_steps(node, geometry, analysis, copies, table):
                found.setdefault(geometry.storage, []).append(geometry)
            met.add(geometry.storage)
        if effect.copied is not None:
            found.setdefault(effect.copied.storage, []).append(effect.copied)
        for geometry in effect.mutated_metadata.values():
            if view_form(node.target) not in table:
                found.setdefault(geometry.storage, []).append(geometry)
            met.add(geometry.storage)
    return found


def _has_steps(
    node: fx.Node,
    geometry: Geometry,
    analysis: Analysis,
    copies: bool,
    table: Mapping[OpOverload, ToSteps],
) -> bool:
    """True if a result of this geometry needs no `as_strided`.

    It is an input, an argument that was written, or reached by view ops that have inverses.
    """
    op, storage = node.target, geometry.storage
    if node.op != "call_function" or op is operator.getitem or writes(op):
        return True
    if storage in analysis.written or copies:
        operands = [
            seen
            for operand in node.all_input_nodes
            for seen in analysis.effects[operand].shows.values()
        ]
        # One write to such an operand changes several elements; in a functional value, only one.
        if any(seen.storage == storage and overlaps_itself(seen.region) for seen in operands):
            return False
    given = bind(op, node.args, node.kwargs) if isinstance(op, OpOverload) else {}
    # The index of the result does not matter here: the other results have steps, too.
    call = ViewCall(op, given, geometry.sizes, (), conj=False)
    return view_steps(call, table) is not None


# The original of such a copy may be a copy itself. Then its own original is needed, too, so the
# loop goes from the last copy to the first.


def _find_copied_whole(analysis: Analysis, semantics: Semantics) -> dict[int, int]:
    """The original of each storage that is a copy, and is seen beyond the tensor made with it."""
    copied: dict[int, tuple[int, Geometry]] = {}
    now: dict[int, int] = {}  # the storages of tensors at a call; a later `set_` changes them
    for node, effect in analysis.effects.items():
        if semantics.copies_whole_storage(node.target):
            (operand,) = tensors_in(analysis.value(node.all_input_nodes[0]))
            geometry = effect.shows[id(effect.value)]
            copied[geometry.storage] = now[id(operand)], geometry
        shown = effect.shows | effect.mutated_metadata
        now |= {key: geometry.storage for key, geometry in shown.items()}
    whole: dict[int, int] = {}
    for copy, (original, geometry) in reversed(copied.items()):
        more = any(not contains(geometry.region, seen.region) for seen in analysis.seen[copy])
        if more or copy in whole.values():
            whole[copy] = original
    return whole


# --- the two questions ----------------------------------------------------------------------------


def is_constant(uses: StorageUses, storage: int) -> bool:
    """True if a storage is never written, so that no view of it is ever regenerated."""
    if uses.is_copied_or_copy(storage) or storage in uses.analysis.written:
        return False
    # A view copy has a storage of its own, and `as_strided` of it does not reach the other views.
    return not (uses.copies and storage in uses.only_by_as_strided)


def is_base(uses: StorageUses, geometry: Geometry) -> bool:
    """True if this view of a storage shows every byte that the program sees, each byte once.

    Views that are made by steps from it show no other bytes, so only the others are checked.
    """
    storage, analysis = geometry.storage, uses.analysis
    others = uses.only_by_as_strided.get(storage, ())
    if uses.is_copied_or_copy(storage) or storage in analysis.resized:
        return False
    # The value of a base is what memory contains, so it has no lazy bits.
    if geometry.conj or geometry.neg or overlaps_itself(geometry.region):
        return False
    # `as_strided` counts elements of one dtype, from the start of the storage.
    if others and not (is_dense(geometry.region) and known(geometry.offset == 0)):
        return False
    if any(other.dtype != geometry.dtype for other in others):
        return False
    # A copy of bools may normalise their bytes to 0 or 1, and another dtype would see that.
    dtypes = {seen.dtype for seen in analysis.seen[storage]}
    if torch.bool in dtypes and len(dtypes) > 1:
        return False
    return all(contains(geometry.region, other.region) for other in others)


# --- the choice -----------------------------------------------------------------------------------

IsBase: TypeAlias = Callable[[StorageUses, Geometry], bool]

# Inputs can share a storage, and each of them is a candidate. If they all show the same elements in
# the same way, the one with the fewest lazy bits is the base.


def base_of_inputs(
    uses: StorageUses, geometries: Sequence[Geometry], decides: IsBase = is_base
) -> tuple[BaseKind, int]:
    """The base of a storage of inputs, and the index of the input that it is made from."""
    indices = range(len(geometries))
    plainest = min(indices, key=lambda i: geometries[i].conj + geometries[i].neg)
    if is_constant(uses, geometries[plainest].storage):
        return BaseKind.CONSTANT, plainest
    plain = geometries[plainest].plain
    alike = all(plain.same(other.plain) for other in geometries)
    if alike and decides(uses, plain):
        return BaseKind.TENSOR, plainest

    def cost(index: int) -> tuple[int, bool, int]:
        seen = geometries[index]
        return seen.dtype.itemsize, seen.dtype == torch.bool, seen.conj + seen.neg

    # A storage of large elements is a whole number of small ones.
    return BaseKind.FLATTENED, min(indices, key=cost)


# A tensor that the program makes can have another offset in the new graph than in eager. Only
# `as_strided` and outputs that share the storage show the difference.


def base_of_result(
    uses: StorageUses, geometry: Geometry, decides: IsBase = is_base, *, keeps_offset: bool
) -> BaseKind:
    """The base of a storage that the program makes, given the tensor that it is made with.

    `keeps_offset` says that this tensor has the same offset in the new graph as in eager.
    """
    storage = geometry.storage
    returned_twice = storage in uses.returned_twice
    if not keeps_offset and (storage in uses.only_by_as_strided or returned_twice):
        return BaseKind.FLATTENED
    if is_constant(uses, storage):
        return BaseKind.CONSTANT
    if decides(uses, geometry) and (not returned_twice or known(geometry.offset == 0)):
        return BaseKind.TENSOR
    return BaseKind.FLATTENED
