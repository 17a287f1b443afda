"""Programs for the code generator: sizes around vector registers, dtypes, several readers."""

import functools
import random
from collections import Counter
from dataclasses import replace

import torch

from aliasproof.campaigns.store.plan import Shard
from aliasproof.generators.features import Features, for_code_generation, swarm
from aliasproof.generators.fused_loops import SIZES, loop_scene
from aliasproof.generators.scene import Counts, Pick
from aliasproof.generators.strategies import sample
from aliasproof.ir.program import Program

ONLY_LOOPS = Features(loops=100, gradients=False)


@functools.cache
def drawn() -> list[Program]:
    scenes = (loop_scene(Pick(random.Random(seed).randint), Counts()) for seed in range(150))
    return [scene.program(tuple(dict.fromkeys(scene.wanted))) for scene in scenes]


def test_sizes_are_around_those_of_vector_registers() -> None:
    sizes = {size for program in drawn() for view in program.inputs for size in view.sizes}
    assert set(SIZES) <= sizes


def test_one_program_has_several_dtypes() -> None:
    dtypes = [{view.dtype for view in program.inputs} for program in drawn()]
    assert sum(len(own) > 1 for own in dtypes) > 30
    assert {torch.bool, torch.uint8, torch.int8, torch.bfloat16, torch.float64} <= set().union(
        *dtypes
    )


def test_values_are_read_before_a_write_and_after_it() -> None:
    """A value that is written, and read by calls before and after the write."""
    late = 0
    for program in drawn():
        for index, call in enumerate(program.instructions):
            before = {name for it in program.instructions[:index] for name in it.refs}
            after = {name for it in program.instructions[index + 1 :] for name in it.refs}
            late += bool(before & after & set(call.written))
    assert late > 40


def test_reductions_scans_moves_and_stores_by_index_are_among_the_calls() -> None:
    ops = Counter(call.op for program in drawn() for call in program.instructions)
    for op in (
        "amax",
        "sum",
        "var",
        "cumsum",
        "mm",
        "cat",
        "constant_pad_nd",
        "index_put_",
        "where",
    ):
        assert any(name.split(".")[1] == op for name in ops), op


def test_programs_depend_on_the_seed_alone() -> None:
    assert list(sample(ONLY_LOOPS, 3, 5)) == list(sample(ONLY_LOOPS, 3, 5))
    assert list(sample(replace(ONLY_LOOPS, loops=0), 3, 5)) != list(sample(ONLY_LOOPS, 3, 5))


def test_each_second_shard_is_devoted_where_code_is_generated() -> None:
    shares = [Shard(seed, "inductor").features().loops for seed in range(4)]
    assert shares[0] == shares[2] == 0
    assert shares[1] == shares[3] > 0
    assert Shard(1, "inductor:memory_planning=True").features().loops
    assert not Shard(1, "inductor-fx").features().loops
    assert for_code_generation(swarm(0), 0) == swarm(0)


def test_two_dimensions_may_be_longer_than_a_tile() -> None:
    sizes = [view.sizes for program in drawn() for view in program.inputs]
    assert sum(sum(size > 60 for size in each) >= 2 for each in sizes) > 5
