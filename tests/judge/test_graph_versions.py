"""The versions of a graph that a watch keeps."""

from types import FunctionType

import pytest
import torch
from torch import fx

from aliasproof.corpus.bug_files import known_bugs
from aliasproof.judge import compile_steps
from aliasproof.judge.compile_steps import Driver, PassWatch
from aliasproof.judge.localization import first_wrong_pass
from aliasproof.judge.trial import Case, run_trial
from aliasproof.targets.registry import target
from tests.short_programs import known_bug

aten = torch.ops.aten


def draws(graph: fx.Graph) -> None:
    """Add a call for which torch writes `torch.ops.aten.random_.from`, a keyword of Python."""
    [x] = graph.find_nodes(op="placeholder")
    with graph.inserting_after(x):
        graph.call_function(getattr(aten.random_, "from"), (x, 0, 2))


def forgets(graph: fx.Graph) -> None:
    for node in graph.find_nodes(op="call_function", target=getattr(aten.random_, "from")):
        graph.erase_node(node)
    for node in graph.find_nodes(op="call_function", target=aten.neg.default):
        node.target = aten.abs.default


def puts_before_operand(graph: fx.Graph) -> None:
    """Put a call before what it reads; a later pass brings calls in order."""
    [call] = graph.find_nodes(op="call_function", target=aten.neg.default)
    [x] = graph.find_nodes(op="placeholder")
    x.prepend(call)


def brings_in_order(graph: fx.Graph) -> None:
    [call] = graph.find_nodes(op="call_function", target=aten.neg.default)
    [x] = graph.find_nodes(op="placeholder")
    x.append(call)
    call.target = aten.abs.default


def run_passes(graph: fx.Graph) -> None:
    draws(graph)
    forgets(graph)


def run_passes_that_reorder(graph: fx.Graph) -> None:
    puts_before_operand(graph)
    brings_in_order(graph)


@pytest.mark.parametrize(
    ("run_passes", "last"),
    [(run_passes, "forgets"), (run_passes_that_reorder, "brings_in_order")],
    ids=["code that Python does not read", "calls out of order"],
)
def test_a_graph_that_cannot_run_is_no_version(monkeypatch, run_passes, last):
    driver = Driver(run_passes, "a part", "graph")
    monkeypatch.setattr(compile_steps, "drivers", lambda: {id(run_passes.__code__): driver})
    graph = fx.Graph()
    graph.output(graph.call_function(aten.neg.default, (graph.placeholder("x"),)))
    watch = PassWatch()
    with watch.watching():
        run_passes(graph)
    assert [version.name for version in watch.versions[1:]] == [last]


def names_a_constant(graph: fx.Graph) -> None:
    """Add a constant to the module of the graph, as Inductor does to keep random calls in order."""
    assert graph.owning_module is not None
    graph.owning_module.register_buffer("constant", torch.ones(2))
    [output] = graph.find_nodes(op="output")
    with graph.inserting_before(output):
        graph.call_function(aten.neg.default, (graph.get_attr("constant"),))


def run_passes_that_name_constants(graph: fx.Graph) -> None:
    names_a_constant(graph)


def test_a_version_has_what_a_pass_put_into_the_module(monkeypatch: pytest.MonkeyPatch) -> None:
    run = run_passes_that_name_constants
    monkeypatch.setattr(
        compile_steps, "drivers", lambda: {id(run.__code__): Driver(run, "a part", "graph")}
    )
    watch = PassWatch()
    module = fx.symbolic_trace(lambda x: x + 1)
    with watch.watching():
        run(module.graph)
    assert [version.name for version in watch.versions[1:]] == ["names_a_constant"]


@known_bug
def test_a_traced_pattern_is_named_by_its_function() -> None:
    program = known_bugs()["attention-mask-of-numbers"].program
    case, tested = Case.of(program), target("inductor-fx")
    violation = run_trial(case, tested).judgement.violations[0]
    named = first_wrong_pass(case, tested, violation)
    assert named is not None
    assert named.name == "joint_graph: pass_pattern_0 (_sfdp_pattern_15)"


def called():
    """Called by code that cannot be hashed."""


def test_passes_are_watched_beside_code_that_cannot_be_hashed():
    """Dynamo's code after a graph break can have a dict among its constants."""

    def plain():
        return called()

    made = plain.__code__.replace(co_consts=(*plain.__code__.co_consts, {}))
    with PassWatch().watching():
        assert FunctionType(made, globals())() is None
