"""The swarm switches: each is on in some shards and off in others, and is respected."""

import math
from collections import Counter
from dataclasses import replace

import pytest
import torch

from aliasproof.generators.features import (
    DTYPES,
    GROUPS,
    LAYOUTS,
    SCENARIO_NAMES,
    WRITES,
    Features,
    swarm,
)
from aliasproof.generators.ops import OPERATORS
from aliasproof.generators.strategies import sample


def test_swarm_is_deterministic_and_turns_each_switch_on_and_off() -> None:
    shards = [swarm(seed) for seed in range(400)]
    assert shards == [swarm(seed) for seed in range(400)]
    for name, everything, plain in (
        ("dtypes", DTYPES, 1),
        ("groups", GROUPS, 1),
        ("layouts", LAYOUTS, 1),
        ("scenarios", SCENARIO_NAMES, 0),
    ):
        switches = [getattr(features, name) for features in shards]
        assert all(set(on) <= set(everything) for on in switches)
        assert all(on[:plain] == everything[:plain] for on in switches), "the plainest is always on"
        for switch in everything[plain:]:
            assert 30 < sum(switch in on for on in switches) < 370
    assert {features.large for features in shards} == {True, False}
    assert {features.instructions for features in shards} == {3, 5, 8, 12}


def test_a_shard_has_few_dtypes_and_groups() -> None:
    shards = [swarm(seed) for seed in range(200)]
    assert {len(features.dtypes) for features in shards} == {2, 3, 4}
    assert {len(features.groups) for features in shards} <= set(range(4, 10))


def test_every_shard_can_mutate() -> None:
    groups = [set(swarm(seed).groups) for seed in range(200)]
    assert all(WRITES & kept for kept in groups)


def test_favored_ops_are_drawn_in_all_their_forms_and_others_too() -> None:
    def counts(features: Features) -> Counter[str]:
        drawn = sample(features, 1, 100)
        return Counter(call.op for program in drawn for call in program.instructions)

    few, more = counts(Features()), counts(Features(favored=frozenset(("relu", "fx", "Tensor"))))
    for name in ("aten.relu.default", "aten.relu_.default"):
        assert more[name] > 20 * (few[name] + 1)
    assert len(more) > 50


def test_dtypes_are_respected() -> None:
    features = Features(dtypes=(torch.float64, torch.bfloat16))
    index = {torch.int64, torch.int32}  # for ops that take positions
    for program in sample(features, 1, 100):
        assert {storage.dtype for storage in program.storages} <= {*features.dtypes} | index
        assert {view.dtype for view in program.inputs} <= {*features.dtypes} | index
    without = Features(dtypes=(torch.float64,), groups=("view", "in-place"))
    views = [view for program in sample(without, 1, 50) for view in program.inputs]
    assert {view.dtype for view in views} == {torch.float64}


# Ops that drawers of arguments add. Only the ops of an enabled group write.
BROUGHT_ALONG = {
    *("gt.Scalar", "eq.Scalar"),  # masks
    *("arange.start_step", "remainder.Scalar", "view.default", "expand.default"),  # indices
    # Ops that read, change and store values.
    *("select.int", "slice.Tensor", "diagonal.default", "as_strided.default", "index.Tensor"),
    *("index_select.default", "gather.default", "take.default"),
    *("neg.default", "logical_not.default"),
    *("reshape.default", "new_full.default"),  # operands of a given shape
    "new_empty.default",  # buffers
    "_to_copy.default",  # operands of a dtype that the op accepts
}


@pytest.mark.parametrize("group", dict.fromkeys(operator.group for operator in OPERATORS))
def test_groups_are_respected(group: str) -> None:
    allowed = {operator.name for operator in OPERATORS if operator.group == group}
    drawn = list(sample(Features(groups=(group,), scenarios=()), 1, 40))
    seen = {instruction.op for program in drawn for instruction in program.instructions}
    assert seen <= allowed | {f"aten.{name}" for name in BROUGHT_ALONG}
    assert len(seen) >= 3


def test_sizes_stay_small_unless_large_is_switched_on() -> None:
    small = sample(Features(large=False, scenarios=()), 1, 100)
    assert max(math.prod(view.sizes) for program in small for view in program.inputs) <= 32
    large = sample(Features(large=True, scenarios=()), 1, 100)
    assert max(math.prod(view.sizes) for program in large for view in program.inputs) >= 256


def test_the_number_of_steps_is_respected() -> None:
    views = Features(groups=("view",), scenarios=())
    # A step may add a conversion.
    assert all(len(program) <= 2 for program in sample(replace(views, instructions=1), 1, 50))
    longest = max(map(len, sample(replace(views, instructions=12), 1, 50)))
    assert 8 <= longest <= 24
