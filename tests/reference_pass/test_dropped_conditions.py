"""Each condition of reinplacing is needed: without it, hazard-drawn programs come out wrong, and the oracles notice."""

from __future__ import annotations

import copy
import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pytest
import torch
from torch import fx

from generators.errors import Rejected
from generators.execution import as_graph
from generators.features import swarm
from generators.program import Program
from generators.strategies import sample
from oracles.contract import Contract
from oracles.verdict import Violation
from reduction.trial import Subject, run_trial
from reference_pass.conditions import CONDITIONS, Condition
from reference_pass.functionalize import functionalize
from reference_pass.noops import remove_noops
from reference_pass.reinplace import decisions, reinplace
from targets.target import Build, Target

pytestmark = pytest.mark.filterwarnings("ignore")  # of torch, about odd programs

SHARDS, PROGRAMS = 40, 50  # 2,000 programs

# Where each is shown: the shards to try first, each with the number of the program there and what is wrong with it. If
# programs are drawn otherwise one day, the search goes on through all shards.
SHOWN: dict[str, dict[int, tuple[int, str]]] = {}

# Without these the kernels of torch notice, and raise: nothing is computed wrongly in silence.
LOUD = {"not_repeated", "no_overlapping_operand"}


@dataclass(frozen=True, slots=True)
class Case:
    """A program, its functional graph, and the conditions that the pass itself refuses something with."""

    program: Program
    functional: fx.GraphModule
    refusing: frozenset[str]


@functools.cache
def drawn(shard: int) -> list[Program]:
    return list(sample(swarm(shard), shard, PROGRAMS))


@functools.cache
def case(shard: int, number: int) -> Case:
    program = drawn(shard)[number]
    captured = fx.GraphModule(torch.nn.Module(), as_graph(program))
    functional = remove_noops(functionalize(captured, *Subject.of(program).fresh_inputs()))
    decided = decisions(reinplace(copy.deepcopy(functional)))
    return Case(program, functional, frozenset(name for each in decided for _, name, _ in each.refused))


def violations(of: Case, conditions: Sequence[Condition]) -> list[Violation]:
    def build(*_: object) -> Build:
        return Build(reinplace(copy.deepcopy(of.functional), conditions=conditions), [])

    try:
        return run_trial(Subject.of(of.program), Target("reference", "", Contract(), build, "")).judgement.violations
    except Rejected:
        return []


def wrong_without(dropped: Condition) -> Iterator[tuple[Case, str]]:
    """The programs that come out wrong without a condition, each with the oracle that notices first."""
    name, others = dropped.__name__, [each for each in CONDITIONS if each is not dropped]
    for shard in dict.fromkeys((*SHOWN[name], *range(SHARDS))):
        for number in range(PROGRAMS):
            found = case(shard, number)
            # What refuses nothing changes nothing when it is dropped.
            for each in violations(found, others)[:1] if name in found.refusing else []:
                if each.silent or name in LOUD:
                    yield found, each.oracle


@pytest.mark.parametrize("dropped", CONDITIONS, ids=lambda each: each.__name__)
def test_without_a_condition_a_drawn_program_comes_out_wrong_that_is_right_with_it(dropped: Condition) -> None:
    found, _ = next(wrong_without(dropped))
    assert violations(found, CONDITIONS) == []
