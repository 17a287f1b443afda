"""How index tensors are drawn, and the values that are stored at these indices.

Every function here takes the `Draft` of the call so far and returns one argument, or raises
`NoChoice`. The values of a scene are real, so a drawn index is in range when the instruction runs.
Few tensors happen to be valid indices, so most index tensors are computed in the scene.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

import torch

from aliasproof.generators.draft import Draft
from aliasproof.generators.number_arguments import extent
from aliasproof.generators.scene import NoChoice
from aliasproof.generators.tensor_arguments import broadcasts, separate_tensor
from aliasproof.ir.program import Argument, Ref
from aliasproof.ir.schemas import resolve
from aliasproof.ir.values import INDEX_DTYPES

MOST_INDICES = 64

# --- indices --------------------------------------------------------------------------------------


def positions(draft: Draft) -> Argument:
    """A vector of indices within the dimension drawn."""
    return Ref(_index_vector(draft, extent(draft)))


def positions_of_rows(draft: Draft) -> Argument:
    """A vector of indices within the leading dimension."""
    if draft.self.dim() == 0:
        raise NoChoice
    return Ref(_index_vector(draft, draft.self.shape[0]))


def positions_of_elements(draft: Draft) -> Argument:
    """A vector of indices into the elements of the first tensor, in row-major order."""
    return Ref(_index_vector(draft, draft.self.numel()))


def positions_like(draft: Draft) -> Argument:
    """Indices within the dimension drawn, of the first tensor's rank and no longer than it."""
    size, rank, dim = extent(draft), draft.self.dim(), draft.integer("dim")

    def fits(tensor: torch.Tensor) -> bool:
        smaller = tensor.dim() == rank and all(
            own <= most for own, most in zip(tensor.shape, draft.self.shape, strict=True)
        )
        return smaller and _indexes(tensor, size)

    fitting = draft.scene.newest_first(fits)
    if fitting and draft.pick.chance(30):
        return Ref(draft.pick.one(fitting))
    vector = _index_vector(draft, size)
    sizes = [1] * rank
    sizes[dim] = draft.scene.values[vector].numel()
    index = draft.scene.call("aten.view.default", Ref(vector), tuple(sizes))[0]
    if draft.pick.chance(50) and draft.self.numel() <= MOST_INDICES:
        wanted = list(draft.self.shape)
        wanted[dim] = sizes[dim]
        index = draft.scene.call("aten.expand.default", Ref(index), tuple(wanted))[0]
    return Ref(index)


def index_list(draft: Draft) -> Argument:
    """Index tensors for the leading dimensions of the first tensor, or only for the second one.

    A mask of the first tensor's shape is possible, too.
    """
    shape = draft.self.shape
    if not shape:
        raise NoChoice
    masks = draft.scene.newest_first(lambda t: t.dtype == torch.bool and t.shape == shape)
    if masks and draft.pick.chance(40):
        return (Ref(draft.pick.one(masks)),)
    if len(shape) > 1 and draft.pick.chance(40):
        if draft.pick.chance(50):
            return (None, Ref(_index_vector(draft, shape[1])))
        # Two vectors of equal length are positions of single elements, or of rows.
        rows = _computed_vector(draft, shape[0], most=min(shape[:2]))
        length = draft.scene.values[rows].numel()
        columns = _computed_vector(draft, shape[1], most=length, least=length)
        return (Ref(rows), Ref(columns))
    # Unlike most ops by index, these also accept int32.
    fitting = draft.scene.newest_first(lambda t: _indexes(t, shape[0], INDEX_DTYPES))
    if fitting and draft.pick.chance(40):
        return (Ref(draft.pick.one(fitting)),)
    return (Ref(_index_vector(draft, shape[0])),)


def _index_vector(draft: Draft, size: int) -> str:
    """A vector of indices below `size`: a value of the scene, computed from one, or an `arange`."""
    fitting = draft.scene.newest_first(lambda t: _indexes(t, size) and t.dim() == 1)
    if fitting and draft.pick.chance(40):
        return draft.pick.one(fitting)
    # Data-dependent indices, perhaps computed from the tensor that is written. Often some are
    # equal, which is undefined for some stores, so most indices come from `arange`.
    integers = draft.scene.newest_first(
        lambda t: t.dtype == torch.int64 and t.dim() == 1 and 0 < t.numel() <= MOST_INDICES
    )
    if size and integers and draft.pick.chance(25):
        return draft.scene.call("aten.remainder.Scalar", Ref(draft.pick.one(integers)), size)[0]
    return _computed_vector(draft, size, most=size)


def _computed_vector(draft: Draft, size: int, *, most: int, least: int = 1) -> str:
    """Distinct indices below `size`, ascending or descending, perhaps with a step."""
    length = draft.pick.integer(least, min(most, MOST_INDICES))
    if not least <= length <= size:
        raise NoChoice
    step = draft.pick.one([step for step in (1, 2) if (length - 1) * step < size])
    last = (length - 1) * step
    first = draft.pick.integer(0, min(size - 1 - last, 3))
    start, end = first, first + last + 1
    if draft.pick.chance(40):
        start, end, step = first + last, first - 1, -step
    return draft.scene.call("aten.arange.start_step", start, end, step)[0]


def _indexes(
    tensor: torch.Tensor, size: int, dtypes: Collection[torch.dtype] = (torch.int64,)
) -> bool:
    """True if the tensor contains indices into a dimension of that size, and not too many."""
    if tensor.dtype not in dtypes or not 0 < tensor.numel() <= MOST_INDICES:
        return False
    return int(tensor.min()) >= 0 and int(tensor.max()) < size


# --- what is stored at them -----------------------------------------------------------------------


def values_to_put(draft: Draft) -> Argument:
    """A tensor that broadcasts to the elements that the drawn indices select."""
    # How many elements a mask selects depends on its data, so run the selection.
    try:
        chosen = resolve("aten.index.Tensor")(draft.self, draft.value("indices"))
    except (RuntimeError, IndexError) as reason:
        raise NoChoice from reason
    return _changed_selection(
        draft, "aten.index.Tensor", "indices", accepts=lambda t: broadcasts(t.shape, chosen.shape)
    )


def rows_to_store(draft: Draft) -> Argument:
    """A tensor like the first one, but as long as the index in the dimension drawn."""
    shape = list(draft.self.shape)
    shape[draft.integer("dim")] = draft.tensor("index").numel()
    select = "aten.index_select.default"
    return _changed_selection(
        draft, select, "dim", "index", accepts=lambda t: list(t.shape) == shape
    )


def at_least_index(draft: Draft) -> Argument:
    """A tensor of the first one's dtype with at least the index's size in every dimension."""
    shape = draft.tensor("index").shape

    def fits(tensor: torch.Tensor) -> bool:
        return tensor.dim() == len(shape) and all(map(int.__ge__, tensor.shape, shape))

    return _changed_selection(draft, "aten.gather.default", "dim", "index", accepts=fits)


def as_many_as_index(draft: Draft) -> Argument:
    """A tensor of the first one's dtype with as many elements as the index."""
    count = draft.tensor("index").numel()
    return _changed_selection(
        draft, "aten.take.default", "index", accepts=lambda t: t.numel() == count
    )


def as_many_as_mask(draft: Draft) -> Argument:
    """A tensor of the first one's dtype with an element for each one that the mask selects."""
    count = int(draft.tensor("mask").expand(draft.self.shape).sum())
    return separate_tensor(draft, lambda t: t.numel() >= count, draft.self.shape)


def _changed_selection(
    draft: Draft, read: str, *arguments: str, accepts: Callable[[torch.Tensor], bool]
) -> Argument:
    """A tensor of the scene that fits, or the elements at the indices, changed."""
    dtype = draft.self.dtype
    fitting = draft.scene.newest_first(
        lambda t: t.dtype == dtype and accepts(t) and not draft.overlaps_self(t)
    )
    if fitting and not draft.pick.chance(30):
        return Ref(draft.pick.one(fitting))
    drawn = [draft.drawn[name] for name in arguments]
    taken = draft.scene.call(read, Ref(draft.self_name), *drawn)[0]
    change = "aten.logical_not.default" if dtype == torch.bool else "aten.neg.default"
    return Ref(draft.scene.call(change, Ref(taken))[0])
