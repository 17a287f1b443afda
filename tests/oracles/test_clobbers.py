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
from tests.oracles.scenes import Function, clobbers, line, stage

aten = torch.ops.aten

ELSEWHERE = "reads bytes that it overwrites at other positions"
ITSELF = "writes through memory that overlaps itself"
TWICE = "writes the same memory through two arguments"


WINDOWS, GRID = line(3).as_strided((2, 2), (1, 1)), line(4).view(2, 2)
COMPLEX = line().to(torch.complex64)


def first(x: Any) -> Any:
    return aten.slice.Tensor(x, 0, 0, 4)


def last(x: Any) -> Any:
    return aten.slice.Tensor(x, 0, 2, 6)


def stored(x: Any, y: Any) -> Any:
    return aten.copy_.default(x, y)


def traced(function: Function) -> Stage:
    """The calls of a function, none of which runs."""
    return Stage("reinplaced", fx.symbolic_trace(function), functional=False)


# By kind and name: the inputs, and a function whose last call is at fault.
CLOBBERS: dict[str, dict[str, tuple[list[Any], Function]]] = {
    ELSEWHERE: {
        "one element on": ([line()], lambda x: aten.add_.Tensor(first(x), last(x))),
        "a copy one element on": ([line()], lambda x: stored(first(x), last(x))),
        "into an operand": ([line()], lambda x: aten.mul.out(a := first(x), a, out=last(x))),
        "a transpose": ([GRID], lambda x: aten.add_.Tensor(x, aten.t.default(x))),
        "one element for all": (
            [line()],
            lambda x: aten.add_.Tensor(x, aten.slice.Tensor(x, 0, 2, 3)),
        ),
        "one element as the mask of all": (
            [line() > 2],
            lambda x: aten.masked_fill_.Tensor(x, one := aten.select.int(x, 0, 2), one),
        ),
        "not by element": ([GRID], lambda x: aten.mm.out(x, x, out=x)),
        "in a list": ([line()], lambda x: aten.cat.out([first(x), last(x)], out=x)),
        "as another dtype": (
            [line()],
            lambda x: stored(aten.view.dtype(first(x), torch.int32), last(x)),
        ),
        "a conjugated operand, which the kernel gets as it is": (
            [COMPLEX],
            lambda x: stored(first(x), aten._conj.default(last(x))),
        ),
        "an item of a list that it reads for another item": (
            [line(), line() + 1],
            lambda x, y: aten._foreach_copy_.default([x, y], [y, x]),
        ),
    },
    ITSELF: {
        "adds twice": ([WINDOWS], lambda x: aten.add_.Scalar(x, 1)),
        "adds to an expanded": ([line(1).expand(4)], lambda x: aten.add_.Scalar(x, 1)),
        "stores two values": ([WINDOWS, GRID], stored),
        "stores results twice": ([WINDOWS, GRID], lambda x, y: aten.neg.out(y, out=x)),
    },
    TWICE: {
        "two results at one address": (
            [line()],
            lambda x: aten._foreach_add_.Scalar([first(x), last(x)], 1),
        )
    },
}


@pytest.mark.parametrize(
    ("kind", "name"), [(kind, it) for kind in CLOBBERS for it in CLOBBERS[kind]]
)
def test_what_an_instruction_clobbers_by_itself(kind: str, name: str) -> None:
    inputs, function = CLOBBERS[kind][name]
    report = clobbers(tested := traced(function), inputs)
    assert report.verdict is Verdict.VIOLATED
    assert {violation.kind for violation in report.violations} == {kind}
    (violation,) = {found.place: found for found in report.violations}.values()
    *_, at_fault, _ = tested.graph.graph.nodes
    assert violation.place.startswith(f"stage reinplaced, {at_fault.name} = aten.")
    assert violation.evidence["writes"]


RIGHT: dict[str, tuple[list[Any], Function]] = {
    "each item of a list for itself": (
        [line(), line() + 1],
        lambda x, y: aten._foreach_add_.List([x, y], [x, y]),
    ),
    "the element that it writes": ([line()], lambda x: aten.add_.Tensor(x, x)),
    "by way of views": (
        [line(4)],
        lambda x: aten.add_.Tensor(*(aten.view.default(x, [2, 2]) for _ in range(2))),
    ),
    "side by side": (
        [line()],
        lambda x: aten.add_.Tensor(*(aten.slice.Tensor(x, 0, at, 6, 2) for at in (0, 1))),
    ),
    "in place of an op that says so in its functional form": (
        [line() > 2],
        lambda x: (aten.eq_.Tensor(x, x), aten.masked_fill_.Scalar(x, x, False)),
    ),
    "the element that is its mask and its value": (
        [torch.tensor(True)],
        lambda x: aten.masked_fill_.Tensor(x, x, x),
    ),
    "out is an operand": ([line(), line()], lambda x, y: aten.mul.out(x, y, out=y)),
    "out of an op that says so in its functional form": (
        [line(), line() > 2],
        lambda x, y: aten.where.self_out(y, x, x, out=x),
    ),
    "one value at one address": ([WINDOWS, WINDOWS.neg().view(4)[:1]], stored),
    "a fill": ([WINDOWS], lambda x: aten.fill_.Scalar(x, 1)),
    "a number that is read first": (
        [line()],
        lambda x: aten.fill_.Tensor(x, aten.select.int(x, 0, 0)),
    ),
    "other metadata": ([GRID], lambda x: (aten.t_.default(x), aten.neg_.default(x))),
    "a conjugated operand, which the kernel gets as a copy": (
        [COMPLEX],
        lambda x: aten.add_.Tensor(first(x), aten._conj.default(last(x))),
    ),
    "into a conjugated operand, which the kernel gets as a copy": (
        [COMPLEX],
        lambda x: aten.add_.Tensor(aten._conj.default(first(x)), last(x)),
    ),
    "no elements": ([line()[:0]], lambda x: aten.neg_.default(aten.expand.default(x, [3, 0]))),
}


@pytest.mark.parametrize("name", RIGHT)
def test_what_an_instruction_may_do(name: str) -> None:
    inputs, function = RIGHT[name]
    assert clobbers(traced(function), inputs).verdict is Verdict.HOLDS


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
