"""Swarm switches: which kinds of op, dtype, layout and scenario a shard of programs may contain.

A program that may contain everything rarely contains two related scenarios. Random switches turn
some kinds off, so that the others meet more often (Groce et al., "Swarm Testing", ISSTA 2012).
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import torch

from aliasproof.generators.scenarios import SCENARIOS

T = TypeVar("T")

DTYPES = (
    torch.float32,
    torch.float64,
    torch.int64,
    torch.bool,
    torch.complex64,
    torch.bfloat16,
    torch.float16,
    torch.int32,
    torch.int16,
    torch.int8,
    torch.uint8,
    torch.complex128,
    torch.float8_e4m3fn,
    torch.float8_e5m2,
)

GROUPS = (
    "view",
    "in-place",
    "functional",
    "scatter",
    "out=",
    "indexed",
    "reduction",
    "metadata",
    "conversion",
    "pointwise",
    "comparison",
    "matrix",
    "foreach",
    "random",
    "custom",
)

# The groups whose ops write, or compute the contents that a write through a view would leave.
WRITES = {
    "in-place",
    "out=",
    "scatter",
    "indexed",
    "metadata",
    "pointwise",
    "matrix",
    "foreach",
    "custom",
}

# "offset" and "slack" combine with the others.
LAYOUTS = (
    "contiguous",
    "transposed",
    "gaps",
    "offset",
    "slack",
    "channels last",
    "expanded",
    "overlapping",
)

RULES_SHARE = 50  # percent of the programs of a shard that has the switch on
LOOPS_SHARE = 60  # percent of the programs of a shard for loops in generated code
# Rules that fire only in a variant of a target, by the start of their names.
RULES_OF = {
    "freezing": "freezing_patterns.",  # for constant weights
    "as-written": "pre_grad.",  # for functions of torch
    "post_grad_fusion_options=all": "post_grad.POST_GRAD_PATTERNS[",
}

SCENARIO_NAMES = tuple(scenario.name for scenario in SCENARIOS)
# Scenarios that decide how inputs are drawn can be combined with all others.
_OF_INPUTS = tuple(scenario.name for scenario in SCENARIOS if scenario.play is None)
_PLAYED = tuple(scenario.name for scenario in SCENARIOS if scenario.play is not None)


@dataclass(frozen=True, slots=True)
class Features:
    """The ops, dtypes, layouts and scenarios that programs may contain.

    Inputs have these dtypes. An operand is converted for an op that accepts none of them.
    The first dtype, group and layout are the simplest: generation shrinks towards them.
    """

    dtypes: tuple[torch.dtype, ...] = DTYPES
    groups: tuple[str, ...] = GROUPS
    layouts: tuple[str, ...] = LAYOUTS
    scenarios: tuple[str, ...] = SCENARIO_NAMES
    large: bool = True
    instructions: int = 8
    gradients: bool = True
    # Percentage of programs that are derived from the compiler's rules.
    rules: int = 0
    # These include the rules of this variant, one of `RULES_OF`.
    variant: str = ""
    # Percentage of programs whose calls one loop of generated code may compute.
    loops: int = 0
    # Ops that are drawn more often; see `favored_operators`.
    favored: frozenset[str] = frozenset()


def swarm(seed: int) -> Features:
    """The features of the shard with this seed: each switch is on or off at random.

    The simplest dtype, group and layout are always on. Few dtypes, groups and scenarios are on at
    a time, so that they meet often in one program.
    """
    # The order of the draws defines the meaning of a seed, so a new switch goes last.
    chance = random.Random(seed)
    groups = _some(chance, GROUPS[1:], 3, 7)
    # Without a mutation there is nothing to functionalize.
    if not WRITES & set(groups):
        groups = ("in-place", *groups)
    return Features(
        dtypes=(DTYPES[0], *_some(chance, DTYPES[1:], 1, 3)),
        groups=(GROUPS[0], *groups),
        layouts=(LAYOUTS[0], *(layout for layout in LAYOUTS[1:] if chance.random() < 0.6)),
        scenarios=(
            *(it for it in _OF_INPUTS if chance.random() < 0.5),
            *_some(chance, _PLAYED, 4, 20),
        ),
        large=chance.random() < 0.7,
        instructions=chance.choice((3, 5, 8, 12)),
        gradients=chance.random() < 0.25,
        rules=RULES_SHARE if chance.random() < 0.25 else 0,
    )


def for_code_generation(features: Features, seed: int) -> Features:
    """The features of the shard with this seed on a target that generates code.

    Every second shard is for loops: in other shards, few programs fill a vector register.
    """
    return replace(features, loops=LOOPS_SHARE) if seed % 2 else features


def exclude_features(features: Features, left_out: frozenset[str]) -> Features:
    """The features without the groups, layouts, dtypes and scenarios of these names.

    The simplest stay.
    """
    groups = tuple(name for name in features.groups if name not in left_out)
    return replace(
        features,
        dtypes=tuple(
            it for it in features.dtypes if str(it).removeprefix("torch.") not in left_out
        ),
        groups=groups if WRITES & set(groups) else (*groups, "in-place"),
        layouts=tuple(name for name in features.layouts if name not in left_out),
        scenarios=tuple(name for name in features.scenarios if name not in left_out),
    )


def _some(chance: random.Random, names: Sequence[T], least: int, most: int) -> tuple[T, ...]:
    """Between `least` and `most` of the names, in their order."""
    chosen = set(chance.sample(range(len(names)), chance.randint(least, most)))
    return tuple(name for index, name in enumerate(names) if index in chosen)
