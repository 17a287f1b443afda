"""Oracle *hazards*: what an instruction must not do to memory, by itself and to those that read later."""

from __future__ import annotations

import copy
import functools
import operator
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import fx

from generators.features import swarm
from generators.strategies import sample
from oracles.clobbers import judge_stage
from oracles.contract import Contract
from oracles.judge import judge
from oracles.observation import observe, observe_eager
from oracles.stage import Stage
from oracles.stage_run import run_stage
from oracles.verdict import Report, Verdict
from programs.errors import Rejected
from programs.execution import ProgramFunction, as_graph
from programs.program import Program
from programs.values import clone_inputs, input_tensors
from reference_pass.conditions import CONDITIONS
from reference_pass.functionalize import functionalize
from reference_pass.noops import remove_noops
from reference_pass.reinplace import reinplace
from targets.registry import TARGETS

aten = torch.ops.aten

ELSEWHERE = "reads bytes that it overwrites at other positions"
ITSELF = "writes through memory that overlaps itself"
TWICE = "writes the same memory through two arguments"
LATER = "overwrites a value that is read later"
INPUT = "leaves an input overwritten"


def stage(
    inputs: str, *calls: tuple[Any, ...], returned: str = "", name: str = "reinplaced"
) -> Stage:
    """A graph: its inputs, then (name, target, arguments, ...), where the name of a value stands for it."""
    graph = fx.Graph()
    nodes: dict[Any, Any] = {}
    for each in inputs.split():
        nodes[each] = graph.placeholder(each)
    for each, target, *args in calls:
        kwargs = args.pop() if args and isinstance(args[-1], dict) else {}
        arguments, named = fx.node.map_aggregate(
            (tuple(args), kwargs), lambda one: nodes.get(one, one)
        )
        op = "call_method" if isinstance(target, str) else "call_function"
        nodes[each] = graph.create_node(op, target, arguments, named, name=each)
    graph.output(tuple(nodes[each] for each in returned.split()))
    return Stage(name, fx.GraphModule(torch.nn.Module(), graph), functional=False)


def line(length: int = 6) -> torch.Tensor:
    return torch.arange(1.0, length + 1)


def judged(after: Stage, inputs: list[torch.Tensor], before: Stage | None = None) -> Report:
    first = None if before is None else run_stage(before, clone_inputs(inputs))
    return judge_stage(run_stage(after, clone_inputs(inputs)), first)


def kinds(report: Report) -> set[str]:
    return {each.kind for each in report.violations}


# Each instruction by itself. ----------------------------------------------------------------------

WINDOWS = line(3).as_strided((2, 2), (1, 1))
FIRST = ("a", aten.slice.Tensor, "x", 0, 0, 4)
LAST = ("b", aten.slice.Tensor, "x", 0, 2, 6)

SPOILS: dict[str, tuple[Any, ...]] = {
    "one element on": (ELSEWHERE, [line()], (FIRST, LAST, ("add", aten.add_.Tensor, "a", "b"))),
    "a copy one element on": (
        ELSEWHERE,
        [line()],
        (FIRST, LAST, ("copy_", aten.copy_.default, "a", "b")),
    ),
    "into an operand": (
        ELSEWHERE,
        [line()],
        (FIRST, LAST, ("mul", aten.mul.out, "a", "a", {"out": "b"})),
    ),
    "a transpose": (
        ELSEWHERE,
        [line(4).view(2, 2)],
        (("t", aten.t.default, "x"), ("add", aten.add_.Tensor, "x", "t")),
    ),
    "one element for all": (
        ELSEWHERE,
        [line()],
        (("one", aten.slice.Tensor, "x", 0, 2, 3), ("add", aten.add_.Tensor, "x", "one")),
    ),
    "one element as the mask of all": (
        ELSEWHERE,
        [line() > 2],
        (
            ("one", aten.select.int, "x", 0, 2),
            ("fill", aten.masked_fill_.Tensor, "x", "one", "one"),
        ),
    ),
    "not by element": (
        ELSEWHERE,
        [line(4).view(2, 2)],
        (("mm", aten.mm.out, "x", "x", {"out": "x"}),),
    ),
    "in a list": (
        ELSEWHERE,
        [line()],
        (FIRST, LAST, ("cat", aten.cat.out, ["a", "b"], {"out": "x"})),
    ),
    "as another dtype": (
        ELSEWHERE,
        [line()],
        (
            FIRST,
            LAST,
            ("bits", aten.view.dtype, "a", torch.int32),
            ("copy_", aten.copy_.default, "bits", "b"),
        ),
    ),
    "adds twice": (ITSELF, [WINDOWS], (("add", aten.add_.Scalar, "x", 1),)),
    "adds to an expanded": (ITSELF, [line(1).expand(4)], (("add", aten.add_.Scalar, "x", 1),)),
    "stores two values": (
        ITSELF,
        [WINDOWS, line(4).view(2, 2)],
        (("copy_", aten.copy_.default, "x", "y"),),
    ),
    "stores results twice": (
        ITSELF,
        [WINDOWS, line(4).view(2, 2)],
        (("neg", aten.neg.out, "y", {"out": "x"}),),
    ),
    "two results in one place": (
        TWICE,
        [line()],
        (FIRST, LAST, ("many", aten._foreach_add_.Scalar, ["a", "b"], 1)),
    ),
}


@pytest.mark.parametrize("name", SPOILS)
def test_what_an_instruction_spoils_for_itself(name: str) -> None:
    kind, inputs, calls = SPOILS[name]
    report = judged(stage(" ".join("xyz"[: len(inputs)]), *calls), inputs)
    assert report.verdict is Verdict.VIOLATED
    assert kinds(report) == {kind}
    (violation,) = {each.place: each for each in report.violations}.values()
    assert violation.place.startswith(f"stage reinplaced, {calls[-1][0]} = aten.")
    assert violation.evidence["writes"]


RIGHT: dict[str, tuple[Any, ...]] = {
    "the element that it writes": ([line()], (("add", aten.add_.Tensor, "x", "x"),)),
    "by way of views": (
        [line(4)],
        (
            ("v", aten.view.default, "x", [2, 2]),
            ("w", aten.view.default, "x", [2, 2]),
            ("add", aten.add_.Tensor, "v", "w"),
        ),
    ),
    "side by side": (
        [line()],
        (
            ("e", aten.slice.Tensor, "x", 0, 0, 6, 2),
            ("o", aten.slice.Tensor, "x", 0, 1, 6, 2),
            ("s", aten.add_.Tensor, "e", "o"),
        ),
    ),
    "in place of an op that says so in its functional form": (
        [line() > 2],
        (("eq", aten.eq_.Tensor, "x", "x"), ("fill", aten.masked_fill_.Scalar, "x", "x", False)),
    ),
    "the element that is its mask and its value": (
        [torch.tensor(True)],
        (("fill", aten.masked_fill_.Tensor, "x", "x", "x"),),
    ),
    "out is an operand": ([line(), line()], (("mul", aten.mul.out, "x", "y", {"out": "y"}),)),
    "out of an op that says so in its functional form": (
        [line(), line() > 2],
        (("where", aten.where.self_out, "y", "x", "x", {"out": "x"}),),
    ),
    "one value in one place": (
        [WINDOWS, WINDOWS.neg().view(4)[:1]],
        (("copy_", aten.copy_.default, "x", "y"),),
    ),
    "a fill": ([WINDOWS], (("fill", aten.fill_.Scalar, "x", 1),)),
    "a number of its own": (
        [line()],
        (("one", aten.select.int, "x", 0, 0), ("fill", aten.fill_.Tensor, "x", "one")),
    ),
    "other metadata": (
        [line(4).view(2, 2)],
        (("t", aten.t_.default, "x"), ("neg", aten.neg_.default, "x")),
    ),
    "no elements": (
        [line()[:0]],
        (("e", aten.expand.default, "x", [3, 0]), ("neg", aten.neg_.default, "e")),
    ),
}


@pytest.mark.parametrize("name", RIGHT)
def test_what_an_instruction_may_do(name: str) -> None:
    inputs, calls = RIGHT[name]
    assert judged(stage(" ".join("xyz"[: len(inputs)]), *calls), inputs).verdict is Verdict.HOLDS


def test_a_graph_without_writes_has_nothing_to_judge() -> None:
    assert (
        judged(stage("x", ("neg", aten.neg.default, "x")), [line()]).verdict
        is Verdict.NOT_APPLICABLE
    )


def test_after_an_error_the_rest_is_unknown() -> None:
    report = judged(
        stage("x", ("add", aten.add_.Scalar, "x", 1), ("v", aten.view.default, "x", [7])), [line()]
    )
    assert report.verdict is Verdict.UNKNOWN
    assert "stage reinplaced, v = aten.view.default(x, [7]) raises RuntimeError" in report.reason
    report = judged(
        stage("x", ("v", aten.view.default, "x", [7]), ("add", aten.add_.Scalar, "x", 1)), [line()]
    )
    assert report.verdict is Verdict.UNKNOWN


# A stage against the one before. ------------------------------------------------------------------

NEG = ("neg", aten.neg.default, "x")
PART = ("part", aten.slice.Tensor, "neg", 0, 3, 4)
SCATTER = ("s", aten.slice_scatter.default, "neg", "y", 0, 0, 8)
RESHAPED = ("column", aten.unsqueeze_.default, "s", 1)
FREE = ("free", torch.ops.inductor.resize_storage_bytes_.default, "neg", 0)
CAST = ("cast", aten._to_copy.default, "neg", {"dtype": torch.float64})
SCATTERED = ("scatter", aten.slice_scatter.default, "x", "part", 0, 2, 3)
BACK = ("back", aten.slice_scatter.default, "neg", "add", 0, 3, 4)
COPY = ("c", aten.copy_.default, "p", "y")
COPIED = ("clone", aten.clone.default, "neg")
FIRST_ONE = ("one", aten.slice.Tensor, "neg", 0, 0, 1)
ITEM = ("item", aten._local_scalar_dense.default, "one")
HALVES = (
    ("words", aten.view.dtype, "neg", torch.int16),
    ("high", aten.slice.Tensor, "words", 0, 1, 12, 2),
)

# Name: kind, the instruction at fault, who reads what it overwrote, and the graphs before and
# after, with what is returned.
LOSES: dict[str, tuple[Any, ...]] = {
    "a later read": (
        LATER,
        "add",
        "mul = aten.mul.Tensor(neg, add)",
        [NEG, ("add", aten.add.Scalar, "neg", 1), ("mul", aten.mul.Tensor, "neg", "add")],
        [NEG, ("add", aten.add_.Scalar, "neg", 1), ("mul", aten.mul.Tensor, "neg", "add")],
        "mul",
    ),
    "what is returned": (
        LATER,
        "add",
        "the caller",
        [NEG, ("add", aten.add.Scalar, "neg", 1)],
        [NEG, ("add", aten.add_.Scalar, "neg", 1)],
        "neg add",
    ),
    "one byte of a view": (
        LATER,
        "add",
        "sum",
        [NEG, PART, ("add", aten.add.Scalar, "part", 1), ("sum", aten.sum.default, "neg")],
        [NEG, PART, ("add", aten.add_.Scalar, "part", 1), ("sum", aten.sum.default, "neg")],
        "add sum",
    ),
    "what is copied later": (
        LATER,
        "add",
        "sum",
        [NEG, ("add", aten.add.Scalar, "neg", 1), COPIED, ("sum", aten.sum.default, "clone")],
        [NEG, ("add", aten.add_.Scalar, "neg", 1), COPIED, ("sum", aten.sum.default, "clone")],
        "add sum",
    ),
    "what is cast later": (
        LATER,
        "add",
        "sum",
        [NEG, ("add", aten.add.Scalar, "neg", 1), CAST, ("sum", aten.sum.default, "cast")],
        [NEG, ("add", aten.add_.Scalar, "neg", 1), CAST, ("sum", aten.sum.default, "cast")],
        "add sum",
    ),
    "half of what is cast later": (
        LATER,
        "add",
        "sum",
        [NEG, *HALVES, ("add", aten.add.Scalar, "high", 1), CAST, ("sum", aten.sum.default, "cast")],
        [NEG, *HALVES, ("add", aten.add_.Scalar, "high", 1), CAST, ("sum", aten.sum.default, "cast")],
        "add sum",
    ),
    "a number that is shown later": (
        LATER,
        "add",
        "item",
        [NEG, FIRST_ONE, ("add", aten.add.Scalar, "neg", 1), ITEM, ("mul", aten.mul.Scalar, "y", "item")],
        [NEG, FIRST_ONE, ("add", aten.add_.Scalar, "neg", 1), ITEM, ("mul", aten.mul.Scalar, "y", "item")],
        "add mul",
    ),
    "what is asserted later": (
        LATER,
        "add",
        "check",
        [NEG, FIRST_ONE, ("add", aten.add.Scalar, "neg", 7), ("check", aten._assert_async.default, "one")],
        [NEG, FIRST_ONE, ("add", aten.add_.Scalar, "neg", 7), ("check", aten._assert_async.default, "one")],
        "add",
    ),
    "what a method overwrites": (
        LATER,
        "add",
        "sum",
        [NEG, ("add", "add", "neg", 1), ("sum", aten.sum.default, "neg")],
        [NEG, ("add", "add_", "neg", 1), ("sum", aten.sum.default, "neg")],
        "add sum",
    ),
    "what is scattered later": (
        LATER,
        "add",
        "sum",
        [NEG, PART, ("add", aten.add.Scalar, "part", 1), SCATTERED, ("sum", aten.sum.default, "scatter")],
        [NEG, PART, ("add", aten.add_.Scalar, "part", 1), SCATTERED, ("sum", aten.sum.default, "scatter")],
        "add sum",
    ),
    "a scatter as a copy": (
        LATER,
        "copy_",
        "sum",
        [NEG, ("s", aten.slice_scatter.default, "neg", "y", 0, 0, 6), ("sum", aten.sum.default, "neg")],
        [NEG, ("v", aten.alias.default, "neg"), ("copy_", aten.copy_.default, "v", "y"), ("sum", aten.sum.default, "neg")],
        "sum",
    ),
    "the result of an epilogue": (
        LATER,
        "copy_",
        "the caller",
        [NEG, ("add", aten.add.Scalar, "y", 1), ("copy_", aten.copy_.default, "y", "neg")],
        [NEG, ("add", aten.add_.Scalar, "y", 1), ("copy_", aten.copy_.default, "y", "neg")],
        "add",
    ),
    "an input": (INPUT, "add", "the caller", [("add", aten.add.Scalar, "x", 1)], [("add", aten.add_.Scalar, "x", 1)], "add"),
    "an input that the epilogue writes in part": (
        INPUT,
        "neg",
        "the caller",
        [NEG, ("p", aten.slice.Tensor, "x", 0, 0, 2), ("copy_", aten.copy_.default, "p", "y")],
        [("neg", aten.neg_.default, "x"), ("p", aten.slice.Tensor, "x", 0, 0, 2), ("copy_", aten.copy_.default, "p", "y")],
        "",
    ),
    "with the operands swapped": (
        LATER,
        "add",
        "sum",
        [NEG, ("add", aten.add.Tensor, "y", "neg"), ("sum", aten.sum.default, "neg")],
        [NEG, ("add", aten.add_.Tensor, "neg", "y"), ("sum", aten.sum.default, "neg")],
        "add sum",
    ),
}  # fmt: skip


def two_inputs(name: str) -> list[torch.Tensor]:
    return [line(), torch.ones(2)] if "in part" in name else [line(), torch.ones(6)]


@pytest.mark.parametrize("name", LOSES)
def test_who_overwrites_what_is_read_later(name: str) -> None:
    kind, writer, reader, before, after, returned = LOSES[name]
    tested = stage("x y", *after, returned=returned)
    report = judged(
        tested, two_inputs(name), stage("x y", *before, returned=returned, name="functional")
    )
    assert report.verdict is Verdict.VIOLATED
    assert kinds(report) == {kind}
    assert all(f"stage reinplaced, {writer} = " in each.place for each in report.violations)
    assert str(report.violations[0].evidence["read by"]).startswith(reader)
    assert judged(tested, two_inputs(name)).verdict in (
        Verdict.HOLDS,
        Verdict.NOT_APPLICABLE,
    )  # alone, it means just that


def test_the_evidence_names_the_bytes() -> None:
    _, _, _, before, after, returned = LOSES["one byte of a view"]
    report = judged(
        stage("x y", *after, returned=returned),
        two_inputs(""),
        stage("x y", *before, returned=returned),
    )
    assert [each.evidence for each in report.violations] == [
        {
            "read by": "sum_1 = aten.sum.default(neg)",
            "what is read": "self",
            "value overwritten": "element 3 of neg = aten.neg.default(x), in stage reinplaced",
            "storage": 2,
            "bytes": [12, 13, 14, 15],
            "bytes in all": 4,
        }
    ]


def test_of_many_bytes_the_evidence_names_the_first() -> None:
    kind, _, _, before, after, returned = LOSES["what is copied later"]
    inputs = [line(1 << 16), line(1)]
    report = judged(
        stage("x y", *after, returned=returned), inputs, stage("x y", *before, returned=returned)
    )
    (violation,) = report.violations
    assert (violation.kind, violation.evidence["bytes"]) == (kind, list(range(64)))
    assert violation.evidence["bytes in all"] == 4 << 16


KEEPS: dict[str, tuple[Any, ...]] = {
    "in place at its last use": (
        [NEG, ("add", aten.add.Scalar, "neg", 1), ("sum", aten.sum.default, "add")],
        [NEG, ("add", aten.add_.Scalar, "neg", 1), ("sum", aten.sum.default, "neg")],
        ("sum", "sum"),
    ),
    "swapped": (
        [NEG, ("add", aten.add.Tensor, "y", "neg"), ("sum", aten.sum.default, "add")],
        [NEG, ("add", aten.add_.Tensor, "neg", "y"), ("sum", aten.sum.default, "neg")],
        ("sum", "sum"),
    ),
    "into the other operand": (
        [NEG, ("sub", aten.sub.Tensor, "y", "neg")],
        [NEG, ("sub", aten.sub.out, "y", "neg", {"out": "neg"})],
        ("sub", "neg"),
    ),
    "with its arguments in another order": (
        [NEG, ("add", aten.add.Scalar, "y", 1), ("sub", aten.sub.Tensor, "neg", "add")],
        [NEG, ("add", aten.add.Scalar, "y", 1), ("sub", aten.sub_.Tensor, {"other": "add", "self": "neg"})],
        ("sub", "sub"),
    ),
    "what is asked for its size alone": (
        [NEG, ("add", aten.add.Scalar, "neg", 1), ("n", aten.sym_size.int, "neg", 0), ("mul", aten.mul.Scalar, "y", "n")],
        [NEG, ("add", aten.add_.Scalar, "neg", 1), ("n", aten.sym_size.int, "neg", 0), ("mul", aten.mul.Scalar, "y", "n")],
        ("add mul", "neg mul"),
    ),
    "what is cast from bytes of several": (
        [NEG, *HALVES, ("add", aten.add_.Scalar, "high", 1), CAST, ("sum", aten.sum.default, "cast")],
        [NEG, *HALVES, ("add", aten.add_.Scalar, "high", 1), CAST, ("sum", aten.sum.default, "cast")],
        ("sum", "sum"),
    ),
    "memory that is given back": (
        [NEG, ("mul", aten.mul.Scalar, "neg", 2), ("add", aten.add.Scalar, "mul", 1)],
        [NEG, ("mul", aten.mul.Scalar, "neg", 2), FREE, ("add", aten.add_.Scalar, "mul", 1)],
        ("add", "mul"),
    ),
    "a scatter that is given another shape later": (
        [NEG, SCATTER, ("sum", aten.sum.default, "s"), ("add", aten.add.Scalar, "neg", 1)],
        [NEG, SCATTER, ("sum", aten.sum.default, "s"), RESHAPED, ("add", aten.add_.Scalar, "neg", 1)],
        ("sum add", "sum add"),
    ),
    "with its cast": (
        [NEG, ("ge", aten.ge.Scalar, "neg", 0), ("c", aten._to_copy.default, "ge", {"dtype": torch.float32})],
        [NEG, ("ge", aten.ge_.Scalar, "neg", 0)],
        ("c", "neg"),
    ),
    "a scatter as a copy": (
        [NEG, ("s", aten.slice_scatter.default, "neg", "y", 0, 2, 8), ("sum", aten.sum.default, "s")],
        [NEG, ("p", aten.slice.Tensor, "neg", 0, 2, 8), COPY, ("sum", aten.sum.default, "neg")],
        ("sum", "sum"),
    ),
    "a scatter of what lies there": (
        [NEG, PART, ("add", aten.add.Scalar, "part", 1), BACK, ("sum", aten.sum.default, "back")],
        [NEG, PART, ("add", aten.add_.Scalar, "part", 1), ("sum", aten.sum.default, "neg")],
        ("sum", "sum"),
    ),
    "an input that the epilogue stores over": (
        [("add", aten.add.Scalar, "x", 1), ("mul", aten.mul.Scalar, "add", 2), ("copy_", aten.copy_.default, "x", "mul")],
        [("add", aten.add_.Scalar, "x", 1), ("mul", aten.mul_.Scalar, "x", 2)],
        ("x", "x"),
    ),
    "the sizes of what is overwritten": (
        [NEG, ("add", aten.add.Scalar, "neg", 1), ("z", aten.zeros_like.default, "neg"), ("f", aten.fill.Scalar, "neg", 2)],
        [NEG, ("add", aten.add_.Scalar, "neg", 1), ("z", aten.zeros_like.default, "neg"), ("f", aten.fill.Scalar, "neg", 2)],
        ("add z f", "neg z f"),
    ),
    "a read of which nothing comes": (
        [NEG, ("add", aten.add.Scalar, "neg", 1), ("sum", aten.sum.default, "neg")],
        [NEG, ("add", aten.add_.Scalar, "neg", 1), ("sum", aten.sum.default, "neg")],
        ("add", "neg"),
    ),
    "a copy dropped": (
        [NEG, COPIED, ("add", aten.add.Scalar, "clone", 1)],
        [NEG, ("add", aten.add_.Scalar, "neg", 1)],
        ("add", "neg"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", KEEPS)
def test_what_may_be_overwritten(name: str) -> None:
    before, after, (meant, returned) = KEEPS[name]
    inputs = [line(8), torch.ones(6 if "scatter as" in name else 8)]
    report = judged(
        stage("x y", *after, returned=returned), inputs, stage("x y", *before, returned=meant)
    )
    assert report.verdict is Verdict.HOLDS


def test_an_operator_on_copies_is_the_operator_in_place() -> None:
    def on_copies(op: Any, tensor: torch.Tensor, *args: Any) -> tuple[torch.Tensor]:
        op(made := tensor.clone(), *args)
        return (made,)

    added = (
        NEG,
        ("many", on_copies, aten.add_.Scalar, "neg", 1),
        ("add", operator.getitem, "many", 0),
    )
    after = stage(
        "x",
        NEG,
        ("many", aten.add_.Scalar, "neg", 1),
        ("sum", aten.sum.default, "neg"),
        returned="sum neg",
    )
    before = stage("x", *added, ("sum", aten.sum.default, "add"), returned="sum add")
    assert judged(after, [line()], before).verdict is Verdict.HOLDS
    before = stage("x", *added, ("sum", aten.sum.default, "neg"), returned="sum add")
    assert kinds(judged(after, [line()], before)) == {LATER}


UNDECIDED: dict[str, list[tuple[Any, ...]]] = {
    "another computation": [("twice", aten.mul.Scalar, "x", 2), ("sum", aten.sum.default, "twice")],
    "another operand": [
        ("neg", aten.neg.default, "x"),
        ("add", aten.add.Scalar, "neg", 1),
        ("sum", aten.sum.default, "neg"),
    ],
    "another size": [
        ("neg", aten.neg.default, "x"),
        ("p", aten.slice.Tensor, "neg", 0, 1),
        ("sum", aten.sum.default, "p"),
    ],
}


@pytest.mark.parametrize("name", UNDECIDED)
def test_what_is_no_hazard_for_sure_is_unknown(name: str) -> None:
    meant = stage(
        "x y",
        NEG,
        ("add", aten.add.Scalar, "neg", 1),
        ("sum", aten.sum.default, "add"),
        returned="sum",
    )
    after = stage("x y", *UNDECIDED[name], ("copy_", aten.copy_.default, "y", "y"), returned="sum")
    assert judged(after, [line(), line()], meant).verdict is Verdict.UNKNOWN


def test_stages_with_other_inputs_cannot_be_compared() -> None:
    after = stage("x", ("add", aten.add_.Scalar, "x", 1), returned="x")
    before = run_stage(stage("x", ("add", aten.add.Scalar, "x", 1), returned="add"), [line(3)])
    assert (
        judge_stage(run_stage(after, [line()]), before).reason
        == "the two stages do not take the same inputs"
    )


# Programs as they are drawn. ----------------------------------------------------------------------


def programs(seed: int, count: int) -> Iterator[Program]:
    """Programs that eager gives one meaning."""
    for program in sample(swarm(seed), seed, count):
        try:
            eager, _ = observe_eager(ProgramFunction(program), input_tensors(program))
        except Rejected:
            continue
        if eager.error is None:
            yield program


@pytest.mark.filterwarnings("ignore")  # of torch, about odd programs
@pytest.mark.parametrize("target", ["identity", "reference", "reference-copy"])
def test_right_targets_have_no_hazards(target: str) -> None:
    verdicts = set()
    for program in programs(1, 25):
        build = TARGETS[target].build(ProgramFunction(program), input_tensors(program))
        before = None
        for each in build.stages:
            run = run_stage(each, input_tensors(program))
            verdicts.add(judge_stage(run, before).verdict)
            before = run
    assert Verdict.HOLDS in verdicts
    assert verdicts <= {Verdict.HOLDS, Verdict.NOT_APPLICABLE}


@pytest.mark.filterwarnings("ignore")  # of torch, about odd programs
@pytest.mark.parametrize("name", ["not_an_input", "no_later_use"])
def test_a_pass_that_drops_a_condition_is_caught_wherever_it_is_wrong(name: str) -> None:
    wrong = 0
    for program in programs(0, 25):
        inputs = functools.partial(input_tensors, program)
        graph = fx.GraphModule(torch.nn.Module(), as_graph(program))
        plain = remove_noops(functionalize(graph, *inputs()))
        reinplaced = reinplace(
            copy.deepcopy(plain), conditions=[each for each in CONDITIONS if each.__name__ != name]
        )
        eager, trace = observe_eager(ProgramFunction(program), inputs())
        judgement = judge(Contract(), eager, observe(reinplaced, inputs()), trace)
        if not {"values", "inputs"} & {each.oracle for each in judgement.violations}:
            continue
        wrong += 1
        before = run_stage(Stage("plain", plain, functional=True), inputs())
        assert (
            judge_stage(
                run_stage(Stage("tested", reinplaced, functional=False), inputs()), before
            ).verdict
            is Verdict.VIOLATED
        )
    assert wrong > 0
