"""Custom operators (`ir.custom_operators`), often with arguments that alias each other.

A compiler that functionalizes such a call copies arguments, and must restore their aliases.
"""

from __future__ import annotations

from aliasproof.generators import number_arguments as numbers
from aliasproof.generators import tensor_arguments as tensors
from aliasproof.generators.arguments import drawn_arguments
from aliasproof.generators.draft import Draft, Drawer
from aliasproof.generators.operator import Operator, any_dtype, group
from aliasproof.generators.scene import NoChoice
from aliasproof.ir.custom_operators import NAMESPACE
from aliasproof.ir.program import Argument, Ref
from aliasproof.ir.regions import Region, overlaps_itself

# --- drawers --------------------------------------------------------------------------------------


def written_tensor(draft: Draft) -> Argument:
    """The first tensor, or a slice of it that overlaps or touches another slice."""
    tensor = draft.self
    if overlaps_itself(Region.of(tensor)):
        raise NoChoice  # no operator may write this tensor
    if tensor.dim() and tensor.shape[0] >= 2 and draft.pick.chance(50):
        size, name = tensor.shape[0], draft.self_name
        start = draft.pick.one((1, size - size // 2))
        draft.scene.call("aten.slice.Tensor", Ref(name), 0, start, size)
        low = draft.scene.call("aten.slice.Tensor", Ref(name), 0, 0, size - start)
        draft.drawn["self"] = Ref(low[0])
    return tensors.itself(draft)


def beside(draft: Draft) -> Argument:
    """A tensor of the first one's dtype and shape, mostly one that aliases it."""
    own, dtype, shape = draft.self_name, draft.self.dtype, draft.self.shape
    fitting = draft.scene.newest_first(lambda t: t.dtype == dtype and t.shape == shape)
    aliases = {*draft.scene.aliases(own)}
    if draft.pick.chance(60):
        # The same tensor twice is the fallback, and one of many choices.
        fitting = [name for name in fitting if name in aliases] or [own]
    return Ref(draft.pick.one(fitting))


def beside_or_none(draft: Draft) -> Argument:
    """An operand as `beside` draws it, or None."""
    return None if draft.pick.chance(25) else beside(draft)


def tensors_beside(draft: Draft) -> Argument:
    """Two to four tensors of one dtype and shape; some share memory, some are repeated."""
    draft.drawn["self"] = Ref(draft.pick.one(draft.scene.newest_first()))
    chosen = [written_tensor(draft), *(beside(draft) for _ in range(draft.pick.integer(1, 3)))]
    return tuple(chosen)


# --- the table ------------------------------------------------------------------------------------


def _line(name: str, **drawers: Drawer) -> Operator:
    full = f"{NAMESPACE}.{name}.default"
    return Operator(full, any_dtype, drawn_arguments(full, drawers))


CUSTOM = group(
    "custom",
    _line("add_both", x=written_tensor, y=beside),
    _line("add_twice", x=written_tensor, y=tensors.operand),
    _line("double", x=written_tensor),
    _line("add_into", x=tensors.itself, total=beside_or_none),
    _line("running_sum", tensors=tensors_beside),
    _line("add_if", x=written_tensor, y=beside, flag=numbers.true_in(70)),
    _line("store_sum", x=written_tensor, y=beside, z=beside),
    _line("add_", x=written_tensor, y=tensors.operand),
    _line("add_out", x=tensors.itself, y=beside, out=beside),
    _line("add_composite", x=written_tensor, y=beside),
    _line("plus", x=tensors.itself, y=tensors.partner),
    _line("strides", x=tensors.itself),
    _line("location", x=tensors.itself),
)
