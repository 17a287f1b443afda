"""Oracle *invariants*: each invariant has at least one planted fault; right graphs break none."""

import functools
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch
from torch import fx
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.passes.fake_tensor_prop import FakeTensorProp

from aliasproof.checks.check import check
from aliasproof.generators.features import swarm
from aliasproof.generators.strategies import sample
from aliasproof.ir.errors import Rejected
from aliasproof.ir.execution import ProgramFunction
from aliasproof.ir.schemas import facts
from aliasproof.ir.values import input_tensors
from aliasproof.oracles.invariants import INVARIANTS, BrokenInvariant, Invariant, judge_stage
from aliasproof.oracles.observation import observe_eager
from aliasproof.oracles.stage import Stage
from aliasproof.oracles.stage_run import StageRun, describe, run_stage
from aliasproof.oracles.verdict import HOLDS, Report, Verdict
from aliasproof.targets.registry import TARGETS
from tests.oracles import scenes

aten = torch.ops.aten


def dead_calls(run: StageRun) -> Iterator[BrokenInvariant]:
    """A dead call: it has no effect, and nobody uses its value."""
    for node in (node.node for node in run.nodes):
        if not node.users and node.op == "call_function" and has_no_effect(node.target):
            yield BrokenInvariant(node, {})


def has_no_effect(op: Any) -> bool:
    if not isinstance(op, OpOverload):
        return op is operator.getitem
    # A random op without users still moves the state of the generator.
    return not op._schema.is_mutable and bool(op._schema.returns) and not facts(op).random


# For passes that promise to drop dead code: `make_fx` and `torch.func.functionalize` do not.
TIDY = (*INVARIANTS, Invariant("value is never used", dead_calls, functional=True))


stage = functools.partial(scenes.stage, name="functional", functional=True)


def inputs() -> list[torch.Tensor]:
    """`x` and `y`; `z` shares a storage with `x`."""
    base = torch.arange(12.0)
    return [base[:6].view(2, 3), torch.ones(2, 3), base[6:]]


def noted(tested: Stage, given: list[torch.Tensor] | None = None) -> dict[str, fx.Node]:
    """Note true metadata on the nodes; returns the nodes by name."""
    with FakeTensorMode() as mode:
        fakes = [mode.from_tensor(each) for each in given or inputs()[: len(placeholders(tested))]]
        FakeTensorProp(tested.graph, mode).propagate_dont_convert_inputs(*fakes)
    return {node.name: node for node in tested.graph.graph.nodes}


def placeholders(tested: Stage) -> list[fx.Node]:
    return [node for node in tested.graph.graph.nodes if node.op == "placeholder"]


def judged(tested: Stage, given: list[torch.Tensor] | None = None) -> Report:
    return judge_stage(run_stage(tested, given or inputs()[: len(placeholders(tested))]), TIDY)


# Graphs. ------------------------------------------------------------------------------------------

ADD = ("add", aten.add.Tensor, "x", "y")
STORE = ("copy_", aten.copy_.default, "x", "add")

MUTATES = "mutation in a functional graph"
NOT_AN_INPUT = "epilogue writes to memory that is not an input"
LATE = "computes after the epilogue began"
OVERWRITTEN = "reads what the epilogue overwrote"

# The last call is at fault.
BROKEN: dict[str, tuple[str, Stage]] = {
    "in place": (MUTATES, stage("x y", ("add_", aten.add_.Tensor, "x", "y"))),
    "in place, by a method": (MUTATES, stage("x y", ("add_", "add_", "x", "y"))),
    "in place, by a function of Python": (MUTATES, stage("x y", ("add_", operator.iadd, "x", "y"))),
    "into a new tensor": (
        MUTATES,
        stage("x y", ADD, ("out", aten.add.out, "x", "y", {"out": "add"}), returned="add"),
    ),
    "other metadata": (MUTATES, stage("x y", ADD, ("t", aten.t_.default, "add"), returned="add")),
    "a copy into a tensor that is not an input": (
        NOT_AN_INPUT,
        stage("x y", ADD, ("copy_", aten.copy_.default, "add", "y"), returned="add"),
    ),
    "a resize of a tensor that is not an input": (
        NOT_AN_INPUT,
        stage("x y", ADD, ("r", aten.resize_.default, "add", [9]), returned="add"),
    ),
    "computed after the epilogue": (
        LATE,
        stage("x y", ADD, STORE, ("late", aten.neg.default, "y"), returned="late"),
    ),
    "a copy after the epilogue": (
        LATE,
        stage("x y", ADD, STORE, ("late", aten.clone.default, "add"), returned="late"),
    ),
    "the epilogue itself reads what it overwrote": (
        OVERWRITTEN,
        stage("x y", ADD, STORE, ("swap", aten.copy_.default, "y", "x")),
    ),
    "dead code": (
        "value is never used",
        stage("x y", ADD, ("dead", aten.neg.default, "x"), returned="add"),
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_a_functional_graph_must_not_do(name: str) -> None:
    kind, tested = BROKEN[name]
    *_, last, _ = tested.graph.graph.nodes
    report = judged(tested)
    assert report.verdict is Verdict.VIOLATED
    assert [(found.oracle, found.kind, found.place) for found in report.violations] == [
        ("invariants", kind, f"stage functional, {describe(last)}")
    ]


def test_a_read_of_a_view_that_the_epilogue_overwrote() -> None:
    calls = (ADD, STORE, ("v", aten.select.int, "x", 0, 1), ("sum", aten.sum.default, "v"))
    report = judged(stage("x y", *calls, returned="sum"))
    assert [(each.kind, each.evidence) for each in report.violations] == [
        (LATE, {"epilogue begins with": "copy_"}),
        (OVERWRITTEN, {"argument": "self", "storage": 0, "overwritten by": "copy_"}),
    ]


def test_a_number_that_the_epilogue_overwrote() -> None:
    report = judged(
        stage("x y", ADD, STORE, ("same", aten.equal.default, "x", "y"), returned="same")
    )
    assert [(each.kind, each.evidence["overwritten by"]) for each in report.violations] == [
        (OVERWRITTEN, "copy_")
    ]


RIGHT = {
    "nothing is written": stage("x y", ADD, returned="add"),
    "an epilogue": stage("x y", ADD, STORE, returned="add"),
    "views and returns after the epilogue": stage(
        "x y", ADD, STORE, ("v", aten.view.default, "x", [6]), returned="v x"
    ),
    "an input is stored in part": stage(
        "x y",
        ADD,
        ("v", aten.select.int, "add", 0, 0),
        ("w", aten.select.int, "x", 0, 0),
        ("c", aten.copy_.default, "w", "v"),
    ),
    "a copy beside what is overwritten": stage(
        "x y z",
        ADD,
        STORE,
        ("v", aten.view.default, "z", [2, 3]),
        ("c", aten.copy_.default, "y", "v"),
    ),
    "other metadata of inputs": stage(
        "x y", ADD, STORE, ("s", aten.set_.source_Tensor, "x", "add"), returned="x"
    ),
    "a random draw that nobody uses": stage("x", ("r", aten.rand_like.default, "x")),
}


@pytest.mark.parametrize("name", RIGHT)
def test_what_a_functional_graph_may_do(name: str) -> None:
    assert judged(RIGHT[name]) == HOLDS


def test_a_graph_with_mutation_may_do_all_that() -> None:
    assert {
        judged(Stage("reinplaced", tested.graph, functional=False)).verdict
        for _, tested in BROKEN.values()
    } == {Verdict.HOLDS}


def test_a_value_used_before_it_is_defined() -> None:
    tested = stage("x y", ADD, ("mul", aten.mul.Tensor, "add", "y"), returned="mul")
    nodes = {node.name: node for node in tested.graph.graph.nodes}
    nodes["mul"].append(nodes["add"])
    report = judged(tested)
    assert [(each.kind, each.evidence) for each in report.violations] == [
        ("use before definition", {"value": "add"})
    ]


def test_a_graph_that_fx_refuses() -> None:
    tested = stage("x y", ADD, returned="add")
    next(iter(tested.graph.graph.nodes)).name = "add"
    assert [each.kind for each in judged(tested).violations] == ["ill-formed graph"]


def test_if_the_run_raises_the_rest_is_unknown() -> None:
    report = judged(stage("x", ("v", aten.view.default, "x", [7]), returned="v"))
    assert report.verdict is Verdict.UNKNOWN
    assert "stage functional, v = aten.view.default(x, [7]) raises RuntimeError" in report.reason


# Metadata. ----------------------------------------------------------------------------------------


def calls() -> Stage:
    view, split = ("v", aten.select.int, "x", 0, 1), ("s", aten.split.Tensor, "x", 1)
    return stage("x y z", ADD, view, split, ("neg", aten.neg.default, "v"), returned="add neg s")


# The metadata, and the wrong value that replaces it.
UNTRUE: dict[str, tuple[str, str, Callable[[dict[str, torch.Tensor]], Any]]] = {
    "dtype": ("metadata has another dtype", "add", lambda metas: metas["add"].to(torch.float64)),
    "size": (
        "metadata has another size",
        "add",
        lambda metas: aten.new_empty(metas["add"], [2, 4]),
    ),
    "rank": (
        "metadata has another size",
        "add",
        lambda metas: aten.new_empty(metas["add"], [2, 3, 1]),
    ),
    "stride": (
        "metadata has another stride",
        "add",
        lambda metas: aten.new_empty_strided(metas["add"], [2, 3], [1, 2]),
    ),
    "offset": ("metadata has another offset", "v", lambda metas: metas["x"].select(0, 0)),
    "one of a list": (
        "metadata has another number of tensors",
        "s",
        lambda metas: metas["x"].split(1)[:1],
    ),
    "a number": ("metadata has another number of tensors", "add", lambda metas: 3),
    "in a list": ("metadata has another offset", "s", lambda metas: metas["x"].split(1)[::-1]),
    "neg": ("metadata has other conj or neg bits", "v", lambda metas: torch._neg_view(metas["v"])),
    "kept apart": (
        "metadata does not show that storage is shared",
        "z",
        lambda metas: aten.new_empty(metas["z"], [12])[6:],
    ),
    "shared": (
        "metadata shows shared storage that is not shared",
        "add",
        lambda metas: aten.alias(metas["y"]),
    ),
}


@pytest.mark.parametrize("name", UNTRUE)
def test_untrue_metadata(name: str) -> None:
    kind, place, plant = UNTRUE[name]
    nodes = noted(tested := calls())
    with nodes["x"].meta["val"].fake_mode:
        value = plant({node: nodes[node].meta["val"] for node in ("x", "y", "z", "add", "v")})
    nodes[place].meta["val"] = value
    report = judged(tested)
    assert report.verdict is Verdict.VIOLATED
    assert {each.kind for each in report.violations} == {kind}
    assert all(f" {place} = " in each.place for each in report.violations)


def test_true_metadata_breaks_no_invariant() -> None:
    tested = calls()
    assert len(noted(tested)) == 8
    assert judge_stage(run_stage(tested, inputs())) == HOLDS


def test_a_kernel_may_leave_out_a_result() -> None:
    tested = stage(
        "x",
        ("two", lambda x: (x.neg(), None), "x"),
        ("one", operator.getitem, "two", 0),
        returned="one",
    )
    with FakeTensorMode() as mode:
        fakes = {"x": mode.from_tensor(inputs()[0]), "one": torch.empty(2, 3)}
    for node in tested.graph.graph.nodes:
        node.meta["val"] = (
            [fakes["one"], fakes["x"]] if node.name == "two" else fakes.get(node.name)
        )
    assert judge_stage(run_stage(tested, inputs()[:1])) == HOLDS


def test_of_a_node_without_metadata_only_that_is_seen() -> None:
    nodes = noted(tested := calls())
    del nodes["x"].meta["val"], nodes["v"].meta["val"]
    report = judge_stage(run_stage(tested, inputs()))
    assert [violation.kind for violation in report.violations] == ["metadata is missing"] * 2
    assert report.violations[1].evidence == {"op": "aten.select.int"}


def adds_a_node_without_metadata(graph: fx.GraphModule) -> None:
    (node,) = graph.graph.find_nodes(op="call_function", target=aten.neg.default)
    with graph.graph.inserting_before(node):
        copied = graph.graph.call_function(aten.clone.default, node.args)
    node.args = (copied,)


@pytest.mark.parametrize("strict", [True, False])
def test_of_a_pass_it_is_a_note_that_counts_where_it_is_asked(strict: bool) -> None:
    outcome = check(torch.neg, torch.arange(4.0), [adds_a_node_without_metadata])
    (result,) = outcome.results.values()
    assert [note.kind for note in result.notes] == ["metadata is missing"]
    assert "may leave a node without metadata" in str(result.notes[0].evidence["cause"])
    assert outcome.exit_status(strict=strict) == int(strict)


@pytest.mark.parametrize(
    ("real", "fake"),
    [
        (torch.empty(2, 1), torch.empty(2, 1).as_strided((2, 1), (1, 7))),
        (torch.empty(0, 3), torch.empty(0, 3).as_strided((0, 3), (9, 9), 5)),
    ],
)
def test_strides_that_decide_nothing_may_differ(real: torch.Tensor, fake: torch.Tensor) -> None:
    tested = stage("x", ("t", aten.neg.default, "x"), returned="t")
    noted(tested, [fake])
    assert judged(tested, [real]) == HOLDS


def test_tensors_without_elements_have_nothing_to_share() -> None:
    tested = stage("x", ("v", aten.alias.default, "x"), ("add", aten.add.Tensor, "v", "v"))
    nodes = noted(tested, [torch.empty(0, 3)])
    with nodes["x"].meta["val"].fake_mode:
        nodes["v"].meta["val"] = torch.empty(0, 3)
    assert judge_stage(run_stage(tested, [torch.empty(0, 3)])) == HOLDS


def test_a_trace_on_real_tensors_notes_neither_offset_nor_storage() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return x[1].neg()

    tested = Stage("traced", make_fx(function)(torch.ones(3, 2)), functional=True)
    assert judged(tested, [torch.ones(3, 2)]) == HOLDS
    tested = Stage(
        "traced", make_fx(function, tracing_mode="fake")(torch.ones(3, 2)), functional=True
    )
    assert judged(tested, [torch.ones(6).view(3, 2)]) == HOLDS
    assert {each.kind for each in judged(tested, [torch.ones(9)[3:].view(3, 2)]).violations} == {
        "metadata has another offset"
    }


# All of it. ---------------------------------------------------------------------------------------


def test_each_invariant_has_a_planted_fault() -> None:
    planted = {kind for kind, _ in BROKEN.values()} | {kind for kind, _, _ in UNTRUE.values()}
    planted |= {"metadata is missing", "ill-formed graph", "use before definition", OVERWRITTEN}
    assert planted == {invariant.broken for invariant in TIDY}
    assert {invariant.broken for invariant in TIDY} - {
        invariant.broken for invariant in INVARIANTS
    } == {"value is never used"}


@pytest.mark.filterwarnings("ignore")  # warnings of torch about odd programs
@pytest.mark.parametrize(
    ("target", "invariants"),
    [
        ("identity", INVARIANTS),
        ("reference", TIDY),
        ("reference-copy", TIDY),
        ("reference-planned", TIDY),
    ],
)
def test_right_targets_keep_the_invariants(target: str, invariants: Sequence[Invariant]) -> None:
    judged = 0
    for program in sample(swarm(3), 3, 25):
        try:
            eager, _ = observe_eager(ProgramFunction(program), input_tensors(program))
        except Rejected:
            continue
        if eager.error is None:
            FakeTensorMode.cache_clear()
            build = TARGETS[target].build(ProgramFunction(program), input_tensors(program))
            for tested in build.stages:
                assert judge_stage(run_stage(tested, input_tensors(program)), invariants) == HOLDS
                judged += 1
    assert judged > 10
