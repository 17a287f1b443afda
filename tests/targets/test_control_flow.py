"""Variants with control flow: which part runs inside the operator, and the bugs that they show."""

import functools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import fx
from torch.utils._pytree import tree_leaves

from aliasproof.campaigns.publish.reproducer import render
from aliasproof.generators.features import swarm
from aliasproof.generators.strategies import sample
from aliasproof.ir.errors import Rejected
from aliasproof.ir.execution import run
from aliasproof.ir.values import input_tensors
from aliasproof.judge.examination import examine
from aliasproof.judge.trial import Case
from aliasproof.oracles.verdict import Verdict
from aliasproof.targets import aot
from aliasproof.targets.control_flow import FORMS, PartTwice, RunValues, Split
from aliasproof.targets.registry import target
from aliasproof.targets.target import Build
from tests.scripts_here import confirm_here
from tests.short_programs import known_bug, of_vectors
from tests.targets.conftest import examined, stages_of, trial_of

COUNTER = """\
v0 = aten.add_.Tensor(x0, x1)
v1 = aten.mul.Tensor(x0, x1)
v2 = aten.sub.Tensor(v1, x0)
return (v1, v2)"""
# The operands of the branch share a storage.
SHARED = """\
v0 = aten.slice.Tensor(x0, 0, 1, 4)
aten.add_.Scalar(x0, 1)
v1 = aten.mul.Scalar(v0, 2)
return (v1,)"""


def part(body: str, name: str) -> tuple[int, int]:
    found = Split.of(of_vectors(body, 0, 1), FORMS[name]).part
    return found.start, found.stop


# --- the part -------------------------------------------------------------------------------------


def test_the_last_instruction_reads_what_the_part_leaves() -> None:
    assert part(COUNTER, "cond") == (0, 2)


def test_leading_views_are_operands_of_a_branch_and_inside_of_a_loop() -> None:
    assert part(SHARED, "cond") == (1, 3)
    longer = SHARED.replace("return (v1,)", "v2 = aten.neg.default(v1)\nreturn (v2,)")
    assert part(longer, "while-loop") == (0, 3)


@pytest.mark.parametrize(
    ("body", "name"),
    [
        ("v0 = aten.alias.default(x0)\nreturn (v0,)", "cond"),  # shares a storage with an operand
        ("aten.t_.default(x0)\nreturn ()", "cond"),  # changes metadata
        ("aten.neg_.default(x0)\nreturn ()", "scan"),  # writes an operand
        # Operands of one storage need a write.
        ("v0 = aten.t.default(x0)\nv1 = aten.add.Tensor(v0, x0)\nreturn (v1, v0)", "cond"),
    ],
)
def test_what_an_operator_does_not_take_stays_outside(body: str, name: str) -> None:
    with pytest.raises(Rejected, match="no part of the program is permitted"):
        part(body, name)


@pytest.mark.parametrize("name", FORMS)
def test_the_text_means_the_program(name: str) -> None:
    """The operators as Python statements: each program agrees with eager."""

    def loop(unfinished: Callable[..., Any], body: Callable[..., Any], carried: Any) -> Any:
        while unfinished(*carried):
            carried = body(*carried)
        return carried

    def scan(combine: Callable[..., Any], carried: Any, steps: Any) -> Any:
        for step in steps:
            carried, _ = combine(carried, step)
        return carried, None

    class Torch:
        cond = staticmethod(lambda chosen, yes, no, given: (yes if chosen else no)(*given))
        while_loop = staticmethod(loop)

        def __getattr__(self, key: str) -> Any:
            return getattr(torch, key)

    form, met = FORMS[name], 0
    for program in (drawn for seed in range(24) for drawn in sample(swarm(seed), seed, 1)):
        try:
            text = form.source(Split.of(program, form))
            same = PartTwice(program).unrolled if form.twice else program
            RunValues.of(same)  # eager may refuse a second trip on the results of the first one
        except Rejected:
            continue
        expected, actual = input_tensors(program), input_tensors(program)
        torch.manual_seed(0)
        outputs = run(same, expected)
        namespace: dict[str, Any] = {"torch": Torch(), "aten": torch.ops.aten, "scan": scan}
        exec(text.replace(form.imports, ""), namespace)
        torch.manual_seed(0)
        found = tree_leaves(namespace[form.name](*actual))
        for one, other in zip((*outputs, *expected), (*found, *actual), strict=True):
            torch.testing.assert_close(one, other, rtol=0, atol=0, equal_nan=True)
        met += 1
    assert met > 10


# --- bugs that the variants show ------------------------------------------------------------------


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("base", ["identity", "aot-eager"])
def test_a_right_program_runs_right(base: str, name: str) -> None:
    found = examined(of_vectors(COUNTER, 0, 1), f"{base}:{name}")
    assert found.violations == []
    assert found.reports["values"].verdict is Verdict.HOLDS


def test_the_operator_is_in_the_graph() -> None:
    found = examined(of_vectors(COUNTER, 0, 1), "aot-eager:while-loop")
    assert "while_loop" in stages_of(trial_of(found))[0].graph.code


@known_bug
def test_operands_on_one_storage_are_read_as_they_were_before_the_branch_wrote() -> None:
    """`cond` is functionalized with the view as a separate operand, which keeps its old values."""
    for name in ("aot:cond", "aot:cond-else", "aot-eager:cond"):
        found = examined(of_vectors(SHARED, 0), name)
        assert found.violations[0].oracle == "values"
    assert examined(of_vectors(SHARED, 0), "identity:cond").violations == []
    assert examined(of_vectors(SHARED, 0), "aot").violations == []


@known_bug
def test_a_reproducer_has_the_operator_and_needs_torch_alone(tmp_path: Path) -> None:
    program, tested = of_vectors(SHARED, 0), target("aot:cond")
    violation = examined(program, tested.name).violations[0]
    script = tmp_path / "script.py"
    script.write_text(render(program, tested, violation, exact=True))
    assert confirm_here(script).shown


def test_only_a_program_has_a_part() -> None:
    found = examine(Case.of_function(torch.neg, [torch.ones(2)]), target("aot:cond"))
    assert "a function can call the operator itself" in str(found.rejected)


# --- a planted mistake that only an operator shows ------------------------------------------------


def drops_dead_calls(graph: fx.GraphModule) -> fx.GraphModule:
    """Removes unused calls, also the writes back into the operands of a branch."""
    branches = [m for m in graph.modules() if isinstance(m, fx.GraphModule) and m is not graph]
    for branch in branches:
        for node in reversed(branch.graph.nodes):
            if node.op == "call_function" and not node.users:
                branch.graph.erase_node(node)
        branch.recompile()
    return graph


def test_a_write_that_a_branch_loses_is_a_violation() -> None:
    def planted(function: Any, inputs: Any) -> Build:
        return aot.build(function, inputs, keep_input_mutations=True, further=drops_dead_calls)

    case, form = Case.of(of_vectors(COUNTER, 0, 1)), FORMS["cond"]
    wrong = replace(target("aot:cond"), build=functools.partial(form.build, planted))
    assert {found.oracle for found in examine(case, wrong).violations} == {"values", "inputs"}
    # Without a branch, the same pass changes nothing.
    assert examine(case, replace(target("aot"), build=planted)).violations == []


def test_a_part_draws_the_random_numbers_of_eager() -> None:
    """The run that chooses the part does not advance the generator of the compared run."""
    body = "aten.bernoulli_.float(x0, 0.5)\nv0 = aten.add.Tensor(x0, x1)\nreturn (v0,)"
    for name in ("identity:while-loop", "identity:cond", "aot-eager:while-loop"):
        assert examined(of_vectors(body, 0, 1, sizes=(64,)), name).violations == []
