"""How `out=` arguments are drawn: buffers of the size and dtype of the result.

Eager computes the result, so no rule about sizes and dtypes is repeated here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from aliasproof.generators.draft import Draft, Drawer
from aliasproof.generators.scene import EAGER_ERRORS, NoChoice
from aliasproof.generators.tensor_arguments import tensor_like
from aliasproof.ir.eager_call import tensors_in
from aliasproof.ir.program import Argument, Ref
from aliasproof.ir.regions import Region, overlap, overlaps_itself
from aliasproof.ir.schemas import facts, resolve


def buffer_for(op: str, name: str) -> Drawer:
    """A drawer for the `out=` argument of that name.

    It is a tensor of the scene, or a new one. Sometimes a new one has no elements, so eager resizes
    it; of other sizes, torch deprecates that.
    """
    known = facts(resolve(op))
    names = [known.op._schema.arguments[index].name for index in known.writes]

    def drawer(draft: Draft) -> Argument:
        inputs = {key: draft.value(key) for key in draft.drawn if key not in names}
        # Without `out=`, torch chooses the functional overload.
        try:
            results = known.op.overloadpacket(**inputs)
        except EAGER_ERRORS as reason:
            raise NoChoice from reason
        result = list(tensors_in(results))[names.index(name)]
        operands = list(tensors_in(list(map(draft.value, draft.drawn))))
        fits = _holds(result, operands, pointwise=known.pointwise)
        fitting = draft.scene.newest_first(fits)
        if fitting and not draft.pick.chance(15):
            return tensor_like(draft, fits)
        shape = (0,) if draft.pick.chance(20) else tuple(result.shape)
        new = draft.scene.call(
            "aten.new_empty.default", Ref(draft.self_name), shape, dtype=result.dtype
        )
        return Ref(new[0])

    return drawer


def _holds(
    result: torch.Tensor, operands: Sequence[torch.Tensor], *, pointwise: bool
) -> Callable[[torch.Tensor], bool]:
    """Whether a buffer may receive the result of a call on these operands."""
    others = [Region.of(operand) for operand in operands]

    def fits(tensor: torch.Tensor) -> bool:
        # A pointwise op casts to the dtype of the buffer, and may overwrite an operand.
        casts = pointwise and torch.can_cast(result.dtype, tensor.dtype)
        region = Region.of(tensor)
        return (
            tensor.shape == result.shape
            and (tensor.dtype == result.dtype or casts)
            and not overlaps_itself(region)
            and not any(
                overlap(region, other) and not (pointwise and region == other) for other in others
            )
        )

    return fits
