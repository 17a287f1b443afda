"""The judged graphs are those that run: targets compile what a bare `torch.compile` compiles."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, fx

from aliasproof.campaigns.run.drawn_programs import DrawnPrograms
from aliasproof.checks.check import check, check_target
from aliasproof.checks.preparation import prepare
from aliasproof.ir.printing import source
from aliasproof.ir.program import Program
from aliasproof.ir.values import clone_inputs, input_tensors
from aliasproof.oracles.verdict import Verdict
from aliasproof.targets.dynamo import CapturedGraph
from aliasproof.targets.inductor_fx import as_dynamo_does
from aliasproof.targets.registry import target
from aliasproof.user_code.comparable import Comparable
from aliasproof.user_code.user_file import CallArguments
from tests.aliasproof.user_functions import (
    GIVEN,
    WRONG,
    encoder,
    network,
    rows,
)
from tests.samples import caches

# Dynamo instantiates the class.
pytestmark = pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
FORMS_OF_COMPILE = ("dynamo", "aot-eager", "inductor-fx")


def bare_graphs(function: Callable[..., Any], given: object) -> list[str]:
    """The text of each graph that `torch.compile` passes to a backend, without aliasproof."""
    graphs: list[str] = []

    def backend(graph: fx.GraphModule, _: Sequence[object]) -> Callable[..., object]:
        graphs.append(graph.code)
        return graph.forward

    arguments = CallArguments.of(given)
    torch._dynamo.reset()
    torch.compile(function, backend=backend)(*arguments.args, **arguments.kwargs)
    return graphs


@pytest.fixture
def graphs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The text of each graph that the backend of a target gets, in order."""
    texts: list[str] = []
    compile_graph = CapturedGraph._recorded

    def recorded(self: CapturedGraph, graph: fx.GraphModule, inputs: Sequence[object]) -> Any:
        texts.append(graph.code)
        return compile_graph(self, graph, inputs)

    monkeypatch.setattr(CapturedGraph, "_recorded", recorded)
    return texts


def run(name: str, comparable: Comparable) -> tuple[Sequence[object], Sequence[Tensor]]:
    """All values after a target ran in the grad mode of an observed run, and the tensors."""
    torch.manual_seed(0)
    inputs = clone_inputs(comparable.inputs)
    with torch.no_grad():
        built = target(name).build(comparable, clone_inputs(comparable.inputs))
        outputs: Any = built.function(*inputs)
    names = comparable.output_names
    kept = [output for output in outputs if not isinstance(output, Tensor)]
    return [*names, *kept], [*(x for x in outputs if isinstance(x, Tensor)), *inputs]


@pytest.mark.parametrize("kind", GIVEN)
def test_the_graphs_are_those_of_the_function_alone(kind: str, graphs: list[str]) -> None:
    make_function, make_inputs = GIVEN[kind]
    comparable = Comparable.of(make_function(), make_inputs())
    (left, tensors), (kept, others) = (run(name, comparable) for name in ("dynamo", "identity"))
    assert left == kept
    torch.testing.assert_close(tensors, others)
    assert graphs == bare_graphs(make_function(), make_inputs())
    assert bool(graphs) == (kind != "lbfgs")  # Dynamo leaves such a step to Python


@pytest.mark.parametrize("name", FORMS_OF_COMPILE)
def test_each_form_of_compile_gets_them(name: str, graphs: list[str]) -> None:
    function, given = caches.attend_with_cache, caches.attend_with_cache_inputs()
    run(name, Comparable.of(function, given))
    assert graphs == bare_graphs(function, given)


def test_training_is_compiled_where_eager_does_the_same_without_gradients() -> None:
    assert Comparable.of(network().train(), rows()).recorded
    # Inference takes a fast path, as in eager; so the function is compiled without gradients.
    inputs = torch.arange(24.0).view(2, 3, 4)
    comparable = Comparable.of(encoder(), inputs)
    assert not comparable.recorded
    assert "inputs that require gradients are detached" in comparable.notes[0]
    found = check(encoder(), inputs, ["aot-eager"])
    assert not found.violated


@pytest.mark.parametrize("variant", ["captured", "buffers", "freezing", "grad", "half-grad"])
def test_variants_compile_the_function_itself(variant: str, graphs: list[str]) -> None:
    make_function, make_inputs = GIVEN["evaluation"]
    prepared = prepare(make_function(), make_inputs())
    result = check_target(prepared, target(f"inductor-fx:{variant}"))
    assert result.reports["values"].verdict is Verdict.HOLDS
    assert not result.violated
    assert graphs
    assert all("weight" in text for text in graphs)  # the module's name for it


# --- drawn programs, which *inductor-fx* compiles without Dynamo ----------------------------------


def calls(graph: fx.Graph) -> list[str]:
    """The graph as text, with nodes named by their positions."""
    names = {node: str(index) for index, node in enumerate(graph.nodes)}
    return [
        f"{node.op} {'' if node.op in ('placeholder', 'output') else node.target}"
        f" {'' if node.op == 'placeholder' else fx.map_arg((node.args, node.kwargs), names.get)}"
        for node in graph.nodes
    ]


def captured(program: Program) -> tuple[list[str], list[str]] | None:
    """The inputs and calls of the only graph that Dynamo captures; None if there is no such graph.

    None also if a size depends on data.
    """
    found: list[fx.Graph] = []

    def backend(graph: fx.GraphModule, _: Sequence[object]) -> Callable[..., object]:
        found.append(graph.graph)
        return graph.forward

    namespace: dict[str, Any] = {"torch": torch, "aten": torch.ops.aten}
    exec(source(program), namespace)
    torch._dynamo.reset()
    compiled = torch.compile(namespace["program"], backend=backend, fullgraph=True)
    try:
        compiled(*input_tensors(program))
    except Exception:  # noqa: BLE001 - such as what it cannot trace, or what eager raises
        return None
    # Dynamo asserts the range of a size that depends on data. That is no call of the program.
    assertion = torch.ops.aten._assert_scalar.default
    if any(graph.find_nodes(op="call_function", target=assertion) for graph in found):
        return None
    names = [str(node.target) for graph in found for node in graph.find_nodes(op="placeholder")]
    return [name.strip("L_") for name in names], [line for graph in found for line in calls(graph)]


@pytest.mark.parametrize(("seed", "count"), [(0, 60), (1, 100)])
def test_drawn_programs_are_compiled_as_dynamo_captures_them(seed: int, count: int) -> None:
    same = 0
    for program in DrawnPrograms().draw(seed, count):
        expected = captured(program)
        if expected is not None and expected[1]:
            passed, graph = as_dynamo_does(program)
            names = [program.inputs[index].name for index in passed]
            assert (names, calls(graph.graph)) == expected, source(program)
            same += 1
    assert same > 0.8 * count


# --- each run starts from the same state ----------------------------------------------------------

ORDER = ("aot", "inductor-fx")  # without Dynamo, and with it


@pytest.mark.parametrize("kind", GIVEN)
def test_verdicts_do_not_depend_on_the_order_of_targets(kind: str) -> None:
    make_function, make_inputs = GIVEN[kind]
    prepared = prepare(make_function(), make_inputs())
    assert prepared.eager.unjudged is None
    verdicts = []
    for order in (ORDER, ORDER[::-1]):
        reports = {name: check_target(prepared, target(name)).reports for name in order}
        verdicts.append(
            {
                name: {oracle: report.verdict for oracle, report in of_target.items()}
                for name, of_target in reports.items()
            }
        )
    assert verdicts[0] == verdicts[1]
    violated = {name for name in ORDER if Verdict.VIOLATED in verdicts[0][name].values()}
    assert violated == WRONG.get(kind, set())
