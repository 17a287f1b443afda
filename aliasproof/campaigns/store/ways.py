"""In which other ways a campaign compiles: variants that reach code which no target runs alone.

Only training has a backward graph and tensors that are saved for it, only a second call meets
guards and memory of the first, and only with a setting does the first version of
auto-functionalization run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from aliasproof.generators.features import Features
from aliasproof.generators.scenarios_of_custom_operators import CUSTOM_SCENARIOS

# Of so many shards of a target, one is compiled in another way.
EVERY = 3


def _any(features: Features) -> bool:
    return True


def _calls_custom_operators(features: Features) -> bool:
    """Whether programs may call custom operators."""
    played = {scenario.name for scenario in CUSTOM_SCENARIOS}
    return "custom" in features.groups or not played.isdisjoint(features.scenarios)


@dataclass(frozen=True, slots=True)
class Way:
    """A variant of these targets, and for which programs it makes a difference."""

    variant: str
    targets: tuple[str, ...]
    useful: Callable[[Features], bool] = _any


# Those that most users meet are first, since a short campaign gets no further. Programs cannot be
# glued for variants with gradients, so generated code is tested without.
WAYS = (
    Way("grad", ("aot", "inductor-fx")),
    Way("symbolic", ("aot", "inductor-fx", "fx-reinplace")),
    Way("second-layout", ("inductor-fx",)),
    Way("memory_planning=True", ("inductor",)),
    Way("second-call", ("inductor-fx",)),
    Way("half-grad", ("aot",)),
    Way("freezing", ("inductor-fx",)),
    # A tensor passed twice has a wrapper of its own where Dynamo does not merge the two.
    Way("same-input", ("aot", "inductor-fx")),
    Way("kept-outputs", ("inductor",)),
    Way("cpp.simdlen=1", ("inductor",)),  # scalar code, whatever the processor
    Way("cond", ("aot", "inductor-fx")),
    Way("feed-back", ("inductor-fx",)),
    # Passes on functions of torch, which a graph of Dynamo has.
    Way("as-written:pre_grad_fusion_options=all", ("inductor-fx",)),
    Way(
        "enable_auto_functionalized_v2=False",
        ("inductor-fx", "inductor"),
        _calls_custom_operators,
    ),
)


def in_another_way(target: str, shard: int, features: Features) -> str:
    """The target of the shard with that number: one of so many has a variant, in turns.

    A target that was asked for in a variant stays as it is.
    """
    ways = [way for way in WAYS if target in way.targets and way.useful(features)]
    turn, place = divmod(shard, EVERY)
    if place < EVERY - 1 or not ways:
        return target
    return f"{target}:{ways[turn % len(ways)].variant}"
