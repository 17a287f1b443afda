"""Oracle *clobbers*: memory that each instruction must not overwrite, and drawn programs."""

import copy
import functools
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import fx

from aliasproof.generators.features import Features, swarm
from aliasproof.generators.strategies import sample
from aliasproof.ir.errors import Rejected
from aliasproof.ir.execution import ProgramFunction, as_graph
from aliasproof.ir.program import Program
from aliasproof.ir.values import input_tensors
from aliasproof.oracles.clobbers import judge_stage
from aliasproof.oracles.contract import Contract
from aliasproof.oracles.judge import judge
from aliasproof.oracles.observation import observe, observe_eager
from aliasproof.oracles.stage import Stage
from aliasproof.oracles.stage_run import run_stage
from aliasproof.oracles.verdict import Verdict
from aliasproof.reference_pass.exceptions import Refused
from aliasproof.reference_pass.pipeline import CONDITIONS, functionalize, reinplace, remove_noops
from aliasproof.targets.registry import TARGETS
from tests.oracles.scenes import clobbers, line, stage

aten = torch.ops.aten

ELSEWHERE = "reads bytes that it overwrites at other positions"
ITSELF = "writes through memory that overlaps itself"
TWICE = "writes the same memory through two arguments"


WINDOWS = line(3).as_strided((2, 2), (1, 1))
FIRST = ("a", aten.slice.Tensor, "x", 0, 0, 4)
LAST = ("b", aten.slice.Tensor, "x", 0, 2, 6)

# By kind and name: the inputs, which are called x and y, and the calls. The last call is at fault.
CLOBBERS: dict[str, dict[str, tuple[Any, ...]]] = {
    ELSEWHERE: {
        "one element on": ([line()], FIRST, LAST, ("add", aten.add_.Tensor, "a", "b")),
        "a copy one element on": ([line()], FIRST, LAST, ("copy_", aten.copy_.default, "a", "b")),
        "into an operand": ([line()], FIRST, LAST, ("mul", aten.mul.out, "a", "a", {"out": "b"})),
        "a transpose": (
            [line(4).view(2, 2)],
            ("t", aten.t.default, "x"),
            ("add", aten.add_.Tensor, "x", "t"),
        ),
        "one element for all": (
            [line()],
            ("one", aten.slice.Tensor, "x", 0, 2, 3),
            ("add", aten.add_.Tensor, "x", "one"),
        ),
        "one element as the mask of all": (
            [line() > 2],
            ("one", aten.select.int, "x", 0, 2),
            ("fill", aten.masked_fill_.Tensor, "x", "one", "one"),
        ),
        "not by element": ([line(4).view(2, 2)], ("mm", aten.mm.out, "x", "x", {"out": "x"})),
        "in a list": ([line()], FIRST, LAST, ("cat", aten.cat.out, ["a", "b"], {"out": "x"})),
        "as another dtype": (
            [line()],
            FIRST,
            LAST,
            ("bits", aten.view.dtype, "a", torch.int32),
            ("copy_", aten.copy_.default, "bits", "b"),
        ),
        "a conjugated operand, which the kernel gets as it is": (
            [line().to(torch.complex64)],
            FIRST,
            LAST,
            ("c", aten._conj.default, "b"),
            ("copy_", aten.copy_.default, "a", "c"),
        ),
        "an item of a list that it reads for another item": (
            [line(), line() + 1],
            ("many", aten._foreach_copy_.default, ["x", "y"], ["y", "x"]),
        ),
    },
    ITSELF: {
        "adds twice": ([WINDOWS], ("add", aten.add_.Scalar, "x", 1)),
        "adds to an expanded": ([line(1).expand(4)], ("add", aten.add_.Scalar, "x", 1)),
        "stores two values": (
            [WINDOWS, line(4).view(2, 2)],
            ("copy_", aten.copy_.default, "x", "y"),
        ),
        "stores results twice": (
            [WINDOWS, line(4).view(2, 2)],
            ("neg", aten.neg.out, "y", {"out": "x"}),
        ),
    },
    TWICE: {
        "two results at one address": (
            [line()],
            FIRST,
            LAST,
            ("many", aten._foreach_add_.Scalar, ["a", "b"], 1),
        )
    },
}


@pytest.mark.parametrize(
    ("kind", "name"), [(kind, it) for kind in CLOBBERS for it in CLOBBERS[kind]]
)
def test_what_an_instruction_clobbers_by_itself(kind: str, name: str) -> None:
    inputs, *calls = CLOBBERS[kind][name]
    report = clobbers(stage(" ".join("xy"[: len(inputs)]), *calls), inputs)
    assert report.verdict is Verdict.VIOLATED
    assert {violation.kind for violation in report.violations} == {kind}
    (violation,) = {found.place: found for found in report.violations}.values()
    assert violation.place.startswith(f"stage reinplaced, {calls[-1][0]} = aten.")
    assert violation.evidence["writes"]


RIGHT: dict[str, tuple[Any, ...]] = {
    "each item of a list for itself": (
        [line(), line() + 1],
        ("many", aten._foreach_add_.List, ["x", "y"], ["x", "y"]),
    ),
    "the element that it writes": ([line()], ("add", aten.add_.Tensor, "x", "x")),
    "by way of views": (
        [line(4)],
        ("v", aten.view.default, "x", [2, 2]),
        ("w", aten.view.default, "x", [2, 2]),
        ("add", aten.add_.Tensor, "v", "w"),
    ),
    "side by side": (
        [line()],
        ("e", aten.slice.Tensor, "x", 0, 0, 6, 2),
        ("o", aten.slice.Tensor, "x", 0, 1, 6, 2),
        ("s", aten.add_.Tensor, "e", "o"),
    ),
    "in place of an op that says so in its functional form": (
        [line() > 2],
        ("eq", aten.eq_.Tensor, "x", "x"),
        ("fill", aten.masked_fill_.Scalar, "x", "x", False),
    ),
    "the element that is its mask and its value": (
        [torch.tensor(True)],
        ("fill", aten.masked_fill_.Tensor, "x", "x", "x"),
    ),
    "out is an operand": ([line(), line()], ("mul", aten.mul.out, "x", "y", {"out": "y"})),
    "out of an op that says so in its functional form": (
        [line(), line() > 2],
        ("where", aten.where.self_out, "y", "x", "x", {"out": "x"}),
    ),
    "one value at one address": (
        [WINDOWS, WINDOWS.neg().view(4)[:1]],
        ("copy_", aten.copy_.default, "x", "y"),
    ),
    "a fill": ([WINDOWS], ("fill", aten.fill_.Scalar, "x", 1)),
    "a number that is read first": (
        [line()],
        ("one", aten.select.int, "x", 0, 0),
        ("fill", aten.fill_.Tensor, "x", "one"),
    ),
    "other metadata": (
        [line(4).view(2, 2)],
        ("t", aten.t_.default, "x"),
        ("neg", aten.neg_.default, "x"),
    ),
    "a conjugated operand, which the kernel gets as a copy": (
        [line().to(torch.complex64)],
        FIRST,
        LAST,
        ("c", aten._conj.default, "b"),
        ("add", aten.add_.Tensor, "a", "c"),
    ),
    "into a conjugated operand, which the kernel gets as a copy": (
        [line().to(torch.complex64)],
        FIRST,
        LAST,
        ("c", aten._conj.default, "a"),
        ("add", aten.add_.Tensor, "c", "b"),
    ),
    "no elements": (
        [line()[:0]],
        ("e", aten.expand.default, "x", [3, 0]),
        ("neg", aten.neg_.default, "e"),
    ),
}


@pytest.mark.parametrize("name", RIGHT)
def test_what_an_instruction_may_do(name: str) -> None:
    inputs, *calls = RIGHT[name]
    report = clobbers(stage(" ".join("xy"[: len(inputs)]), *calls), inputs)
    assert report.verdict is Verdict.HOLDS


def test_a_graph_without_writes_has_nothing_to_judge() -> None:
    report = clobbers(stage("x", ("neg", aten.neg.default, "x")), [line()])
    assert report.verdict is Verdict.NOT_APPLICABLE


def test_after_an_error_the_rest_is_unknown() -> None:
    add, view = ("add", aten.add_.Scalar, "x", 1), ("v", aten.view.default, "x", [7])
    for calls in ((add, view), (view, add)):
        report = clobbers(stage("x", *calls), [line()])
        assert report.verdict is Verdict.UNKNOWN
        assert (
            "stage reinplaced, v = aten.view.default(x, [7]) raises RuntimeError" in report.reason
        )


# --- programs as they are drawn -------------------------------------------------------------------


# Many results can be computed in place, so a pass that lacks a condition is often wrong.
COMPUTES = Features(groups=("view", "functional", "scatter"), dtypes=(torch.float32,))


def programs(features: Features, seed: int, count: int) -> Iterator[Program]:
    """Programs that are defined in eager."""
    for program in sample(features, seed, count):
        try:
            eager, trace = observe_eager(ProgramFunction(program), input_tensors(program))
        except Rejected:
            continue
        # The reference pass refuses programs whose sizes depend on tensor data.
        if eager.error is None and trace.data_dependent is None:
            yield program


@pytest.mark.filterwarnings("ignore")  # warnings of torch about odd programs
@pytest.mark.parametrize("target", ["identity", "reference", "reference-copy"])
def test_right_targets_clobber_nothing(target: str) -> None:
    verdicts: list[Verdict] = []
    for program in programs(swarm(1), 1, 25):
        build = TARGETS[target].build(ProgramFunction(program), input_tensors(program))
        _, trace = observe_eager(ProgramFunction(program), input_tensors(program))
        before = None
        for each in build.stages:
            run = run_stage(each, input_tensors(program))
            overlaps = trace.overlapping_operands
            verdicts.append(judge_stage(run, before, overlaps=overlaps).verdict)
            before = run
    assert Verdict.HOLDS in verdicts
    # Reads cannot always be matched with reads in the stage before.
    assert verdicts.count(Verdict.UNKNOWN) <= 1
    assert set(verdicts) <= {Verdict.HOLDS, Verdict.NOT_APPLICABLE, Verdict.UNKNOWN}


@pytest.mark.filterwarnings("ignore")  # warnings of torch about odd programs
@pytest.mark.parametrize("name", ["not_an_input", "no_later_use"])
def test_a_pass_that_drops_a_condition_is_caught_wherever_it_is_wrong(name: str) -> None:
    wrong = 0
    for program in programs(COMPUTES, 2, 50):
        inputs = functools.partial(input_tensors, program)
        graph = fx.GraphModule(torch.nn.Module(), as_graph(program))
        try:
            plain = remove_noops(functionalize(graph, *inputs()))
        except Refused:  # a size depends on data
            continue
        reinplaced = reinplace(
            copy.deepcopy(plain),
            conditions=[condition for condition in CONDITIONS if condition.__name__ != name],
        )
        eager, trace = observe_eager(ProgramFunction(program), inputs())
        judgement = judge(Contract(), eager, observe(reinplaced, inputs()), trace)
        if not {"values", "inputs"} & {violation.oracle for violation in judgement.violations}:
            continue
        wrong += 1
        before = run_stage(Stage("plain", plain, functional=True), inputs())
        after = run_stage(Stage("tested", reinplaced, functional=False), inputs())
        assert judge_stage(after, before).verdict is Verdict.VIOLATED
    assert wrong > 0
