"""Drawn programs: valid, defined in eager, varied, and small after shrinking."""

import hashlib
import itertools
import math
import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, find, given, settings

import aliasproof.generators
from aliasproof.eager.definedness import Undefined
from aliasproof.generators.features import DTYPES, LAYOUTS, SCENARIO_NAMES, Features, swarm
from aliasproof.generators.ops import OPERATORS
from aliasproof.generators.scene import Counts, Scene
from aliasproof.generators.strategies import EVERYTHING, programs, sample
from aliasproof.ir.execution import ProgramFunction, call
from aliasproof.ir.program import Input, Program, Ref, Storage
from aliasproof.ir.regions import Region, dense_strides, overlap, overlaps_itself
from aliasproof.ir.serialization import dumps, loads
from aliasproof.ir.validation import validate
from aliasproof.ir.values import input_tensors
from aliasproof.oracles.observation import observe_eager

SHARDS = range(50)


def swarmed(count: int = 10) -> Iterator[Program]:
    """What campaigns draw: a few programs from each of many shards."""
    for seed in SHARDS:
        yield from sample(swarm(seed), seed, count)


@pytest.fixture(scope="module")
def drawn() -> list[Program]:
    return list(swarmed())


# --- valid and defined in eager -------------------------------------------------------------------


@given(programs())
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_programs_are_valid_survive_a_round_trip_and_run(program: Program) -> None:
    validate(program)
    assert loads(dumps(program)) == program
    observed, _ = observe_eager(ProgramFunction(program), input_tensors(program))
    assert observed.error is None
    assert len(observed.outputs) == len(program.outputs)


def test_sampled_programs_are_valid_and_seldom_discarded(drawn: list[Program]) -> None:
    fates: Counter[str] = Counter()
    for program in drawn:
        validate(program)
        try:
            observed, _ = observe_eager(ProgramFunction(program), input_tensors(program))
            fates["kept" if observed.error is None else "raised"] += 1
        except Undefined:
            fates["undefined"] += 1
    assert fates.total() == 500
    assert fates["undefined"] < 0.2 * fates.total()
    assert fates["raised"] == 0, "an instruction that eager refuses is not kept"


def dropped(counts: Counts) -> float:
    """The share of drawn instructions that were not kept."""
    return 1 - counts.kept / counts.drawn


def test_few_draws_are_refused_in_each_configuration() -> None:
    counts = Counts()
    for seed in SHARDS:
        own = Counts()
        list(sample(swarm(seed), seed, 8, own))
        assert dropped(own) < 0.2, f"seed {seed}: {own.reasons.most_common(5)}"
        counts.add(own)
    assert counts.kept > 1500
    assert dropped(counts) < 0.1


def test_dropped_draws_have_a_reason() -> None:
    counts = Counts()
    list(sample(Features(dtypes=(torch.float32,)), 3, 60, counts))
    assert dropped(counts) > 0
    assert counts.reasons.total() == counts.raised + counts.undefined + counts.too_large
    assert counts.drawn == counts.kept + counts.reasons.total()
    reasons = {reason.partition(":")[0] for _, reason in counts.reasons}
    assert reasons >= {"raises", "undefined"}


def test_float8_gets_no_op_that_computes() -> None:
    float8 = {torch.float8_e4m3fn, torch.float8_e5m2}
    counts = Counts()
    programs = list(sample(Features(dtypes=tuple(float8)), 1, 60, counts))
    assert any(view.numel() for program in programs for view in input_tensors(program))
    assert [found for found in counts.reasons if "not implemented for" in found[1]] == []


def test_counts_belong_to_one_sample() -> None:
    one, other = Counts(), Counts()
    programs = list(sample(EVERYTHING, 7, 5, one))
    assert one.kept == sum(map(len, programs))
    list(sample(EVERYTHING, 8, 5, other))
    list(sample(EVERYTHING, 9, 5))
    assert one.kept == sum(map(len, programs))
    assert other.kept > 0


# --- deterministic --------------------------------------------------------------------------------


def test_the_same_seed_draws_the_same_programs() -> None:
    assert list(sample(EVERYTHING, 7, 20)) == list(sample(EVERYTHING, 7, 20))
    assert list(sample(EVERYTHING, 7, 20))[:5] == list(sample(EVERYTHING, 7, 5))
    assert list(sample(EVERYTHING, 7, 20)) != list(sample(EVERYTHING, 8, 20))


@pytest.mark.parametrize("garbage", [1, 2**40])
def test_draws_do_not_see_memory_that_was_never_written(garbage: int, monkeypatch) -> None:
    scene = Scene((Storage(torch.int64, 2),), (Input("x0", 0, torch.int64, (2,), (1,)),), seed=0)

    def leaves_garbage(*args: Any) -> Any:
        before = scene.values["x0"].numel()
        results = call(*args)
        scene.values["x0"][before:].fill_(garbage)
        return results

    monkeypatch.setattr("aliasproof.generators.scene.call", leaves_garbage)
    scene.call("aten.resize_.default", Ref("x0"), (5,))
    assert scene.values["x0"][2:].tolist() == [0, 0, 0]


def test_draws_see_what_a_call_computes_into_an_empty_output() -> None:
    scene = Scene((Storage(torch.int64, 2),), (Input("x0", 0, torch.int64, (2,), (1,)),), seed=0)
    (empty,) = scene.call("aten.new_empty.default", Ref("x0"), (0,))
    scene.call("aten.neg.out", Ref("x0"), out=Ref(empty))
    assert scene.values[empty].tolist() == scene.values["x0"].neg().tolist() != [0, 0]


def test_another_process_draws_the_same_programs() -> None:
    code = (
        "import hashlib; from aliasproof.generators.features import swarm;"
        "from aliasproof.ir.serialization import dumps;"
        "from aliasproof.generators.strategies import sample;"
        "programs = [*sample(swarm(3), 3, 40), *sample(swarm(27), 27, 40)];"
        "print(hashlib.sha256(''.join(map(dumps, programs)).encode()).hexdigest())"
    )
    root = Path(aliasproof.generators.__file__).parents[2]
    answer = subprocess.run(
        [sys.executable, "-c", code],
        cwd=root,
        env=os.environ | {"PYTHONHASHSEED": "1", "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        check=True,
    )
    torch.manual_seed(17)  # a worker has run programs that draw random numbers
    programs = [*sample(swarm(3), 3, 40), *sample(swarm(27), 27, 40)]
    ours = "".join(map(dumps, programs))
    assert answer.stdout.strip() == hashlib.sha256(ours.encode()).hexdigest()


# --- varied ---------------------------------------------------------------------------------------


def test_almost_every_op_occurs_in_a_thousand_programs() -> None:
    drawable = {operator.name for operator in OPERATORS}
    drawn = {call.op for program in swarmed(count=20) for call in program.instructions}
    assert len(drawable - drawn) <= 0.2 * len(drawable), sorted(drawable - drawn)


def test_every_dtype_occurs_in_an_input(drawn: list[Program]) -> None:
    assert {view.dtype for program in drawn for view in program.inputs} == set(DTYPES)


def region(program: Program, view: Input) -> Region:
    """The region of an input, in an address space where storages are far apart."""
    size = view.dtype.itemsize
    return Region(
        (view.storage << 32) + view.offset * size,
        view.sizes,
        tuple(s * size for s in view.strides),
        size,
    )


def is_dense(view: Input) -> bool:
    return view.strides == dense_strides(view.sizes)


LAYOUT_SHOWS: dict[str, Callable[[Program, Input], bool]] = {
    "contiguous": lambda program, view: is_dense(view) and view.offset == 0,
    "transposed": lambda program, view: (
        view.strides == dense_strides(view.sizes[::-1])[::-1] and not is_dense(view)
    ),
    "gaps": lambda program, view: (
        view.strides == tuple(2 * n for n in dense_strides(view.sizes)) and view.sizes != ()
    ),
    "offset": lambda program, view: view.offset > 0,
    "slack": lambda program, view: (
        region(program, view).interval[1] & 0xFFFFFFFF < program.storages[view.storage].nbytes
    ),
    "channels last": lambda program, view: (
        len(view.sizes) == 4
        and view.sizes[1] > 1
        and view.strides[1] == 1
        and view.strides[3] == view.sizes[1]
    ),
    "expanded": lambda program, view: any(
        n > 1 and s == 0 for n, s in zip(view.sizes, view.strides, strict=True)
    ),
    "overlapping": lambda program, view: (
        len(view.sizes) > 1 and 0 not in view.sizes and set(view.strides) == {1}
    ),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_occurs_where_it_is_switched_on(layout: str, drawn: list[Program]) -> None:
    shows = LAYOUT_SHOWS[layout]
    assert sum(shows(program, view) for program in drawn for view in program.inputs) >= 10
    alone = Features(layouts=(layout,), scenarios=(), groups=("view",))
    programs = list(sample(alone, 1, 60))
    assert sum(shows(program, view) for program in programs for view in program.inputs) >= 5


def test_one_input_in_ten_has_an_offset_and_gaps_or_another_order(drawn: list[Program]) -> None:
    views = [view for program in drawn for view in program.inputs]
    both = [view for view in views if view.offset and not is_dense(view)]
    assert len(both) > 0.1 * len(views)


def test_a_third_of_the_programs_has_an_input_beyond_a_vector_register(drawn):
    def is_long(view: Input) -> bool:
        return math.prod(view.sizes) * view.dtype.itemsize > 64

    assert sum(any(map(is_long, program.inputs)) for program in drawn) > len(drawn) / 3


def test_only_the_layouts_that_are_switched_on_occur() -> None:
    plain = Features(layouts=("contiguous",), scenarios=())
    assert all(
        is_dense(view) and view.offset == 0
        for program in sample(plain, 1, 100)
        for view in program.inputs
    )


@pytest.mark.parametrize(
    ("size", "shows"),
    [
        ("0-d", lambda view: view.sizes == ()),
        ("empty", lambda view: 0 in view.sizes),
        ("one element", lambda view: view.sizes == (1,)),
        ("several vector registers", lambda view: region_numel(view) >= 64),
        ("not a multiple of a vector register", lambda view: region_numel(view) == 17),
        ("rank 4", lambda view: len(view.sizes) == 4),
        ("rank 5", lambda view: len(view.sizes) == 5),
    ],
)
def test_every_kind_of_size_occurs(size, shows, drawn):
    assert any(shows(view) for program in drawn for view in program.inputs)


def region_numel(view: Input) -> int:
    return Region(0, view.sizes, view.strides, 1).numel


def sharing(drawn: list[Program]) -> Iterator[tuple[Region, Region]]:
    """The regions of all pairs of inputs in one storage."""
    for program in drawn:
        for one, other in itertools.combinations(program.inputs, 2):
            if one.storage == other.storage:
                yield region(program, one), region(program, other)


@pytest.fixture(scope="module")
def pairs(drawn: list[Program]) -> list[tuple[Region, Region]]:
    """The pairs of a campaign, and more from programs that are drawn for them."""
    alone = Features(scenarios=("shared inputs",), groups=("view",))
    return list(sharing([*drawn, *sample(alone, 1, 300)]))


@pytest.mark.parametrize(
    ("kind", "shows"),
    [
        ("the same view", lambda one, other: one == other and one.numel > 0),
        ("overlapping in part", lambda one, other: overlap(one, other) and one != other),
        (
            "side by side",
            lambda one, other: not overlap(one, other) and one.numel * other.numel > 0,
        ),
        (
            "another item size",
            lambda one, other: one.itemsize != other.itemsize and overlap(one, other),
        ),
        (
            "every second element, and those between",
            lambda one, other: (
                abs(one.start - other.start) == one.itemsize
                and one.strides == other.strides
                and one.strides[-1:] == (2 * one.itemsize,)
                and not overlap(one, other)
            ),
        ),
        ("one overlaps itself", lambda one, other: overlaps_itself(one) and overlap(one, other)),
    ],
)
def test_inputs_share_storages_in_each_of_these_ways(kind, shows, pairs):
    assert sum(shows(one, other) for one, other in pairs) >= 3


def test_inputs_that_share_a_storage_have_different_offsets() -> None:
    dense = sharing(list(sample(Features(layouts=("contiguous",)), 1, 100)))
    assert sum(one.start != other.start and one.sizes != () for one, other in dense) >= 5


def test_inputs_share_no_storage_unless_switched_on() -> None:
    features = Features(scenarios=tuple(name for name in SCENARIO_NAMES if name != "shared inputs"))
    assert list(sharing(list(sample(features, 1, 100)))) == []


def test_outputs_are_of_every_kind(drawn: list[Program]) -> None:
    assert {len(program.outputs) for program in drawn} == {0, 1, 2, 3, 4}
    returned_inputs = [
        {view.name for view in program.inputs} & set(program.outputs) for program in drawn
    ]
    assert sum(map(bool, returned_inputs)) > 50
    results = [
        result for program in drawn for last in program.instructions[-1:] for result in last.results
    ]
    assert sum(bool(set(program.outputs) & set(results)) for program in drawn) > 50
    assert sum(len(set(program.outputs)) == len(program.outputs) for program in drawn) == len(drawn)


# --- the special fill -----------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore")  # warnings of torch about odd programs
def test_about_a_quarter_of_the_programs_is_special() -> None:
    drawn = [program for seed in range(40) for program in sample(swarm(seed), seed, 10)]
    assert 0.15 < sum(program.fill == "special" for program in drawn) / len(drawn) < 0.3


@pytest.mark.filterwarnings("ignore")  # warnings of torch about odd programs
def test_the_fill_changes_nothing_else() -> None:
    for seed in range(5):
        plain = list(sample(swarm(seed), seed, 10, special_share=0))
        mixed = list(sample(swarm(seed), seed, 10))
        special = list(sample(swarm(seed), seed, 10, special_share=1))
        assert plain == [replace(program, fill="plain") for program in mixed]
        assert plain == [replace(program, fill="plain") for program in special]
        # Where eager refuses special values, for example as indices, the program stays plain.
        assert sum(program.fill == "special" for program in special) > 5


# --- small after shrinking ------------------------------------------------------------------------

SHRINK = settings(
    max_examples=500, deadline=None, database=None, suppress_health_check=list(HealthCheck)
)


def test_a_mutation_shrinks_to_at_most_two_instructions() -> None:
    def mutates(program: Program) -> bool:
        return any(instruction.mutates() for instruction in program.instructions)

    found = find(programs(), mutates, settings=SHRINK, random=random.Random(1))
    assert len(found) <= 2
    assert len(found.inputs) == 1
    assert {storage.dtype for storage in found.storages} == {torch.float32}
    assert all(map(is_dense, found.inputs))


def test_inputs_that_share_shrink_to_two_plain_ones() -> None:
    def shares(program: Program) -> bool:
        return len({view.storage for view in program.inputs}) < len(program.inputs)

    found = find(programs(), shares, settings=SHRINK, random=random.Random(1))
    assert len(found) <= 2
    assert len(found.inputs) <= 3
    assert all(map(is_dense, found.inputs))
