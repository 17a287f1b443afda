"""Which arguments of an op are drawn, and by which drawer.

A line of the table in `aliasproof.generators.operators` may give a drawer for any argument.
Otherwise the name or the type in the schema decides. All drawers are found when the table is built,
so a line without one fails at import and not in the middle of a campaign.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from aliasproof.generators import index_arguments as indices
from aliasproof.generators import number_arguments as numbers
from aliasproof.generators import tensor_arguments as tensors
from aliasproof.generators.buffer_arguments import buffer_for
from aliasproof.generators.draft import Drawer
from aliasproof.ir.errors import UserError, did_you_mean
from aliasproof.ir.schemas import resolve

BY_NAME: dict[str, Drawer] = {
    "dim": numbers.dimension,
    "dim0": numbers.dimension,
    "dim1": numbers.dimension,
    "dimension": numbers.dimension,
    "dims": numbers.permutation,
    "mask": tensors.mask,
    "src": tensors.copy_source,
    "weight": numbers.number,
    "condition": tensors.mask,
    "index": indices.positions,
    "indices": indices.index_list,
}

BY_TYPE: dict[str, Drawer] = {
    "Tensor": tensors.operand,
    "number": numbers.number,
    "List[Tensor]": tensors.tensor_list,
}

# A list of tensors is first, since it gives the first tensor. A dimension is next, since indices
# depend on it. Stored values are late, since their shape depends on the indices. A buffer is last,
# since its shape depends on all operands. Arguments of equal rank keep the order of the schema.
# The names of such lists: `self` is drawn as an argument only if it is one.
FIRST_LISTS = ("self", "tensors")
_DRAWING_ORDER = {
    **dict.fromkeys(FIRST_LISTS, -1),
    "dim": 0,
    "dimension": 0,
    "src": 2,
    "source": 2,
    "values": 2,
}
_BUFFERS = 3


@dataclass(frozen=True, slots=True)
class DrawnArgument:
    """An argument of an op, and what draws it."""

    name: str
    drawer: Drawer


def drawn_arguments(op: str, drawers: Mapping[str, Drawer]) -> tuple[DrawnArgument, ...]:
    """The arguments of an op to draw, in drawing order, with `drawers` for some of them by name.

    A tensor `self` is not among them: all others depend on it, so it is drawn before. An argument
    with a default is left out unless it has an entry in `drawers`. Raises `UserError` if an
    argument has no drawer, or a drawer has no argument.
    """
    schema = resolve(op)._schema.arguments
    known = [argument.name for argument in schema]
    for name in drawers:
        if name not in known:
            raise UserError(f"{op}: takes no argument '{name}'{did_you_mean(name, known)}")
    wanted = []
    for argument in schema:
        name = argument.name
        if name == "self" and str(argument.type) == "Tensor":
            continue
        if name not in drawers and argument.has_default_value():
            continue
        if argument.is_out and name not in drawers:
            wanted.append(DrawnArgument(name, buffer_for(op, name)))
            continue
        drawer = drawers.get(name) or BY_NAME.get(name) or BY_TYPE.get(str(argument.type))
        if drawer is None:
            raise UserError(f"{op}: no drawer for '{name}' ({argument.type}); give one in the line")
        wanted.append(DrawnArgument(name, drawer))
    buffers = {argument.name for argument in schema if argument.is_out}

    def order(argument: DrawnArgument) -> int:
        return _BUFFERS if argument.name in buffers else _DRAWING_ORDER.get(argument.name, 1)

    return tuple(sorted(wanted, key=order))
