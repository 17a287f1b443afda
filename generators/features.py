"""Swarm switches: which kinds of op, data type, layout and scenario a shard of programs may contain.

Programs that draw on everything at once rarely hold two related scenarios; leaving features out at
random makes the remaining ones meet more often (Groce et al., "Swarm Testing", ISSTA 2012).
"""

from __future__ import annotations

import random
from dataclasses import dataclass, fields

import torch

DTYPES = (torch.float32, torch.float64, torch.int64, torch.bool, torch.complex64, torch.bfloat16)

GROUPS = ("view", "in-place", "functional", "scatter", "out=", "indexed", "reduction")

LAYOUTS = ("contiguous", "transposed", "gaps", "offset", "expanded", "overlapping")

SCENARIOS = (
    "shared inputs",
    "reinterpreted storage",
    "aliased operands",
    "no-op views",
    "self-overlap",
    "write between reads",
    "overlapping slices",
    "scatter chain",
    "copy into input",
    "swap",
    "return overwritten",
)


@dataclass(frozen=True, slots=True)
class Features:
    """What programs may contain.

    The first dtype, group and layout are the plainest: generation shrinks towards them.
    """

    dtypes: tuple[torch.dtype, ...] = DTYPES
    groups: tuple[str, ...] = GROUPS
    layouts: tuple[str, ...] = LAYOUTS
    scenarios: tuple[str, ...] = SCENARIOS
    large: bool = True
    instructions: int = 8

    def describe(self) -> dict[str, object]:
        """The switches as plain JSON values."""
        return {each.name: _plain(getattr(self, each.name)) for each in fields(self)}


def swarm(seed: int) -> Features:
    """The features of the shard with that seed: each switch on or off at random, the plain ones always on."""
    chance = random.Random(seed)
    kept_groups = [each for each in GROUPS[1:] if chance.random() < 0.6]
    if not {"in-place", "out=", "scatter", "indexed"} & set(kept_groups):
        kept_groups.insert(0, "in-place")
    return Features(
        dtypes=(torch.float32, *(each for each in DTYPES[1:] if chance.random() < 0.35)),
        groups=("view", *kept_groups),
        layouts=("contiguous", *(each for each in LAYOUTS[1:] if chance.random() < 0.5)),
        scenarios=tuple(each for each in SCENARIOS if chance.random() < 0.5),
        large=chance.random() < 0.3,
        instructions=chance.choice((3, 5, 8, 12)),
    )


def _plain(value: object) -> object:
    if isinstance(value, tuple):
        return [str(each).removeprefix("torch.") for each in value]
    return value
