"""Each condition of reinplacing is needed: without it, a drawn program is compiled wrongly."""

import copy
import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pytest
import torch
from torch import fx

from aliasproof.generators.features import swarm
from aliasproof.generators.strategies import sample
from aliasproof.ir.errors import Rejected
from aliasproof.ir.execution import as_graph
from aliasproof.ir.program import Program
from aliasproof.judge.trial import Case, run_trial
from aliasproof.oracles.contract import Contract
from aliasproof.oracles.verdict import Violation
from aliasproof.reference_pass.conditions import Condition
from aliasproof.reference_pass.eager.rounding import same_bits
from aliasproof.reference_pass.exceptions import Refused
from aliasproof.reference_pass.pipeline import CONDITIONS, functionalize, reinplace, remove_noops
from aliasproof.reference_pass.reinplace import decisions
from aliasproof.targets.target import Build, Target

aten = torch.ops.aten
pytestmark = pytest.mark.filterwarnings("ignore")  # warnings of torch about odd programs

SHARDS, PROGRAMS = 40, 50  # 2,000 programs

# The simplest groups: among all ops, too few programs have a view of a scatter's result.
GROUPS = ("view", "in-place", "functional", "scatter", "out=", "reduction")

# For conditions that few programs need, only these scenarios are drawn.
PLAYED = {
    "dead_before_epilogue": (
        "several inputs written",
        "swap",
        "copies beside a clone",
        "copy into input",
    ),
    "same_location": ("cat of split",),
}

# The shards to try first. The comments give the program (of 50) in the shard that needs the
# condition, and the oracle that reports it. If the generator changes, all shards are searched.
SHOWN_IN: dict[str, tuple[int, ...]] = {
    "same_size_and_dtype": (0, 1),  # 23: metadata
    "same_stride": (1, 2),  # 16: metadata
    "same_location": (1,),  # 21: values
    "no_self_overlap": (4, 18),  # 22: errors
    "not_repeated": (13, 15),  # 48: errors
    "no_overlapping_operand": (34, 35),  # 22: errors
    "source_is_at_destination": (0,),  # 0: inputs
    "not_an_input": (0,),  # 5: inputs
    "no_later_use": (0,),  # 6: values
    "dead_before_epilogue": (33, 39),  # 10: values
    "no_new_alias": (1, 2),  # 11: aliasing
}

# Without these conditions the graph raises, since a kernel of torch refuses the call. Without any
# other one it must be silently wrong.
RAISES = {"no_self_overlap", "not_repeated", "no_overlapping_operand"}


@dataclass(frozen=True, slots=True)
class RefusingCase:
    """A program, its functional graph, and the conditions that candidates fail in it."""

    program: Program
    functional: fx.GraphModule
    refusing: frozenset[str]


@functools.cache
def drawn(shard: int, played: tuple[str, ...]) -> list[Program]:
    features = replace(swarm(shard), dtypes=(torch.float32, torch.int64), groups=GROUPS)
    if played:
        features = replace(features, scenarios=played, layouts=("contiguous",))
    return list(sample(features, shard, PROGRAMS))


@functools.cache
def case(shard: int, number: int, played: tuple[str, ...]) -> RefusingCase | None:
    """The program as a case; None if the pass refuses it."""
    program = drawn(shard, played)[number]
    captured = fx.GraphModule(torch.nn.Module(), as_graph(program))
    try:
        functional = remove_noops(functionalize(captured, *Case.of(program).fresh_inputs()))
    except Refused:
        return None
    decided = decisions(reinplace(copy.deepcopy(functional)))
    return RefusingCase(
        program, functional, frozenset(name for each in decided for _, name, _ in each.refused)
    )


def violations(of: RefusingCase, conditions: Sequence[Condition]) -> list[Violation]:
    def build(*_: object) -> Build:
        return Build(reinplace(copy.deepcopy(of.functional), conditions=conditions), [])

    try:
        return run_trial(
            Case.of(of.program), Target("reference", "", Contract(), build, "")
        ).judgement.violations
    except Rejected:
        return []


def cases(name: str) -> Iterator[RefusingCase]:
    for shard in dict.fromkeys((*SHOWN_IN.get(name, ()), *range(SHARDS))):
        for number in range(PROGRAMS):
            found = case(shard, number, PLAYED.get(name, ()))
            if found is not None:
                yield found


def first_wrong_without(dropped: Condition) -> RefusingCase:
    name, others = dropped.__name__, [each for each in CONDITIONS if each is not dropped]
    for each in cases(name):
        if name not in each.refusing:
            continue  # no candidate fails it, so dropping it changes nothing
        found = violations(each, others)
        if any(violation.silent for violation in found) or (found and name in RAISES):
            return each
    raise AssertionError(f"{SHARDS * PROGRAMS} programs are compiled correctly without {name}")


# In-place calls of these dtypes give the same bits in all drawn programs.
DRAWN = [condition for condition in CONDITIONS if condition is not same_bits]


@pytest.mark.parametrize("dropped", DRAWN, ids=lambda each: each.__name__)
def test_without_a_condition_a_program_is_wrong_that_is_right_with_it(dropped: Condition) -> None:
    assert violations(first_wrong_without(dropped), CONDITIONS) == []


def test_without_same_bits_a_lazy_negative_bit_is_lost() -> None:
    def program(base: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
        doubled, negative = aten.mul.Tensor(base, 2), aten._neg_view.default(source)
        result: torch.Tensor = aten.slice_scatter.default(doubled, negative, 0, 0, 4)
        return result

    def inputs() -> tuple[torch.Tensor, torch.Tensor]:
        return torch.ones(8), torch.arange(1.0, 5).half()

    # As a graph: a trace would resolve the bit.
    right, functional = program(*inputs()), fx.symbolic_trace(program)
    others = [condition for condition in CONDITIONS if condition is not same_bits]
    wrong = reinplace(copy.deepcopy(functional), *inputs(), conditions=others)
    reinplaced = reinplace(functional, *inputs())
    assert torch.equal(reinplaced(*inputs()), right)
    assert torch.equal(wrong(*inputs())[:4], -right[:4])
    refused = {name for each in decisions(reinplaced) for _, name, _ in each.refused}
    assert "same_bits" in refused
