"""The plain arguments of a call that a pattern leaves open: sizes, dimensions, numbers, dtypes.

The schema says what an argument is, and the operands drawn before what is likely to fit. Eager says
whether it fits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch

from aliasproof.generators.scene import Pick
from aliasproof.ir.program import Argument

DTYPES = (torch.float32, torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64)
NUMBERS = (1, 2, 0.5, 0, -1)
REDUCTIONS = ("sum", "amax", "none")


def literal(pick: Pick, parameter: torch.Argument, operands: Sequence[torch.Tensor]) -> Argument:
    """A value for a parameter that takes no tensor."""
    kind = str(parameter.real_type)
    if kind.startswith("Optional["):
        if pick.chance(50):
            return None
        kind = kind.removeprefix("Optional[").removesuffix("]")
    drawer = _BY_KIND.get(kind)
    if drawer is None:  # a device, a layout, a generator
        return None
    return drawer(pick, parameter.name, operands)


def _integer(pick: Pick, name: str, operands: Sequence[torch.Tensor]) -> Argument:
    if name == "groups":
        return 1
    rank = operands[0].dim() if operands else 1
    return pick.one((0, 1, -1, max(rank - 1, 0), 2))


def _integers(pick: Pick, name: str, operands: Sequence[torch.Tensor]) -> Argument:
    shape = tuple(operands[0].shape) if operands else (2, 2)
    rank = len(shape)
    if name in _OF_WINDOWS:
        return (pick.one(_OF_WINDOWS[name]),) * max(rank - 2, 1)
    if "split" in name:
        return _parts(pick, pick.one(shape) if shape else 1)
    choices: list[tuple[int, ...]] = [shape] * 3
    if rank:
        choices += [(rank - 1,), (-1,), (0,), tuple(range(rank)), tuple(reversed(range(rank)))]
        choices += [(*range(rank - 2), rank - 1, rank - 2)] if rank >= 2 else []
        choices += [(math.prod(shape[:-1]), shape[-1]), (-1, shape[-1]), (math.prod(shape),)]
        choices += [(math.prod(shape[:-2]), *shape[-2:])] if rank >= 3 else []
        choices += [(1, *shape), (*shape[:-1], 1, shape[-1])]
    return pick.one(choices)


def _parts(pick: Pick, size: int) -> tuple[int, ...]:
    """Sizes that add up to `size`."""
    first = pick.integer(0, size)
    number = pick.one([parts for parts in range(1, size + 1) if size % parts == 0] or [1])
    return pick.one(((first, size - first), (size // number,) * number, (size,)))


# Of convolutions and pools: one number per dimension of the window.
_OF_WINDOWS = {
    "stride": (1, 1, 2),
    "padding": (0, 0, 1),
    "dilation": (1,),
    "output_padding": (0,),
    "kernel_size": (2, 1, 3),
}
_BY_KIND: dict[str, Callable[[Pick, str, Sequence[torch.Tensor]], Argument]] = {
    "int": _integer,
    "SymInt": _integer,
    "List[int]": _integers,
    "List[SymInt]": _integers,
    "number": lambda pick, name, operands: pick.one(NUMBERS),
    "Scalar": lambda pick, name, operands: pick.one(NUMBERS),
    "float": lambda pick, name, operands: pick.one((0.5, 2.0, 1.0)),
    "bool": lambda pick, name, operands: pick.chance(50),
    "ScalarType": lambda pick, name, operands: pick.one(DTYPES),
    "str": lambda pick, name, operands: pick.one(REDUCTIONS),
}
