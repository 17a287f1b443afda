"""What is judged is what runs: targets compile what a bare `torch.compile` compiles."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, fx, nn

from aliasproof.campaigns.run.drawn_programs import DrawnPrograms
from aliasproof.programs.printing import source
from aliasproof.programs.program import Program
from aliasproof.programs.values import clone_inputs, input_tensors
from aliasproof.targets.captured_graph import CapturedGraph
from aliasproof.targets.inductor_fx import as_dynamo_does
from aliasproof.targets.registry import target
from aliasproof.user_code.call_arguments import CallArguments
from aliasproof.user_code.comparable import Comparable

FORMS_OF_COMPILE = ("dynamo", "aot-eager", "inductor-fx")


def swap(x: Tensor, y: Tensor) -> Tensor:
    old = y.clone()
    y.add_(1)
    x.copy_(old)
    return y + 0


def slices(target: Tensor, source: Tensor) -> None:
    target[0:, :] = source[0:, :]
    source.add_(1)


def keywords(x: Tensor, *rest: Tensor, scale: float = 1.0, **more: Tensor) -> dict[str, object]:
    total = more["b"] * scale
    for other in rest:
        total = total + other
    more["a"].add_(total)
    return {"total": total + x, "size": x.shape[0]}


def tree(batch: dict[str, Any]) -> list[object]:
    y, more = batch["pair"]
    batch["sum"] = y + batch["x"]
    y.mul_(2)
    return [batch["sum"], (more["k"] - y,)]


class Moments(NamedTuple):
    mean: Tensor
    square: Tensor


@dataclass
class State:
    step: int
    moments: dict[str, Tensor]
    more: Moments


def optimizer_step(state: State, gradients: dict[str, Tensor]) -> Tensor:
    state.step += 1
    for name, gradient in reversed(gradients.items()):
        state.moments[name].mul_(0.9).add_(gradient)
        state.more.square.mul_(0.5).add_(gradient)
    state.moments["new"] = state.moments["w"] * state.step
    return state.moments["w"] * 2


def state() -> tuple[State, dict[str, Tensor]]:
    moments = {"w": torch.zeros(3), "b": torch.zeros(3)}
    gradients = {"w": torch.arange(3.0), "b": torch.ones(3)}
    return State(0, moments, Moments(torch.ones(3), torch.ones(3))), gradients


class Average:
    count = 0
    shared = torch.zeros(3)

    def __init__(self) -> None:
        self.mean = torch.zeros(3)

    def update(self, x: Tensor, decay: float = 0.9) -> Tensor:
        self.count += 1
        Average.shared.add_(x)
        self.mean.mul_(decay).add_(x, alpha=1 - decay)
        return self.mean / self.count + Average.shared

    def __call__(self, x: Tensor) -> Tensor:
        return self.update(x, 0.5)


class Delayed(nn.Module):
    previous: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("previous", torch.zeros(3))
        self.weight = nn.Parameter(torch.ones(3))
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        old = x.clone()
        x.add_(1)
        self.previous.copy_(old)
        self.last = x * 2
        return x * self.weight


def closure() -> Callable[[Tensor], tuple[Tensor, int]]:
    total, calls = torch.zeros(3), 0

    def step(x: Tensor) -> tuple[Tensor, int]:
        nonlocal calls
        calls += 1
        y = x * 2
        total.mul_(0.5).add_(y)
        return total.clone(), calls

    return step


SEEN = torch.zeros(3)
WEIGHT = nn.Parameter(torch.arange(3.0))
CALLS = 0


def uses_globals(x: Tensor) -> Tensor:
    global CALLS  # noqa: PLW0603
    CALLS += 1
    y = x + CALLS
    SEEN.add_(y)
    return SEEN * y


def updates_a_parameter(x: Tensor) -> Tensor:
    with torch.no_grad():
        WEIGHT.sub_(x, alpha=0.1)
    return (WEIGHT * x).sum()


def defaults(x: Tensor, calls: list[int] = [], total: Tensor = torch.zeros(3)) -> Tensor:  # noqa: B006, B008
    calls.append(1)
    return total.add_(x) * len(calls)


def two_graphs(x: Tensor, y: Tensor) -> Tensor:
    z = y * 2
    if z.sum().item() > 3:
        z = z + x
    x.add_(z)
    return z


def hidden() -> Callable[[Tensor], Tensor]:
    tensors = {"a": torch.zeros(3)}
    get = functools.lru_cache(tensors.__getitem__)
    return lambda x: get("a").add_(x) * 2


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.ReLU(), nn.Dropout(0.5))


def x3() -> Tensor:
    return torch.arange(3.0)


def rows() -> Tensor:
    return torch.arange(12.0).reshape(4, 3)


GIVEN: dict[str, tuple[Callable[[], Callable[..., object]], Callable[[], object]]] = {
    "swap": (lambda: swap, lambda: (torch.zeros(3), x3())),
    "slices": (lambda: slices, lambda: (torch.zeros(4, 3), rows())),
    "shared memory": (lambda: swap, lambda: tuple(rows().view(-1).unfold(0, 6, 3)[:2])),
    "one tensor twice": (lambda: swap, lambda: (x3(),) * 2),
    "keywords": (
        lambda: keywords,
        lambda: ((x3(), x3()), {"scale": 2.0, "b": torch.ones(3), "a": torch.zeros(3)}),
    ),
    "tree": (
        lambda: tree,
        lambda: ({"x": x3(), "pair": (torch.ones(3), {"k": torch.zeros(3)})},),
    ),
    "dataclass": (lambda: optimizer_step, state),
    "method": (lambda: Average().update, lambda: ((x3(),), {"decay": 0.5})),
    "callable": (Average, x3),
    "partial": (lambda: functools.partial(swap, torch.zeros(3)), x3),
    "closure": (closure, x3),
    "globals": (lambda: uses_globals, x3),
    "parameter": (lambda: updates_a_parameter, x3),
    "defaults": (lambda: defaults, x3),
    "hidden": (hidden, x3),
    "two graphs": (lambda: two_graphs, lambda: (x3(), torch.ones(3))),
    "module": (Delayed, x3),
    "module's method": (lambda: Delayed().forward, x3),
    "training": (lambda: network().train(), rows),
    "evaluation": (lambda: network().eval(), rows),
    "leaf": (lambda: lambda x: (x * 2).sin(), lambda: x3().requires_grad_()),
}


def bare_graphs(function: Callable[..., Any], given: object) -> list[str]:
    """The text of each graph that a backend gets from `torch.compile`, and nothing around it."""
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
    """The text of each graph that the backend of a target gets, as it comes."""
    texts: list[str] = []
    compile_graph = CapturedGraph._recorded

    def recorded(self: CapturedGraph, graph: fx.GraphModule, inputs: Sequence[object]) -> Any:
        texts.append(graph.code)
        return compile_graph(self, graph, inputs)

    monkeypatch.setattr(CapturedGraph, "_recorded", recorded)
    return texts


def run(name: str, comparable: Comparable) -> tuple[Sequence[object], Sequence[Tensor]]:
    """All that a target leaves behind, in the grad mode of an observed run, and the tensors."""
    torch.manual_seed(0)
    inputs = clone_inputs(comparable.inputs)
    with torch.no_grad():
        built = target(name).build(comparable.function, clone_inputs(comparable.inputs))
        outputs: Any = built.function(*inputs)
    names = comparable.function.output_names
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
    assert graphs


@pytest.mark.parametrize("name", FORMS_OF_COMPILE)
def test_each_form_of_compile_gets_them(name: str, graphs: list[str]) -> None:
    run(name, Comparable.of(optimizer_step, given := state()))
    assert graphs == bare_graphs(optimizer_step, given)


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
    """The inputs and the calls of the one graph that Dynamo captures; None if there is no such."""
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
    names = [str(node.target) for graph in found for node in graph.find_nodes(op="placeholder")]
    return [name.strip("L_") for name in names], [line for graph in found for line in calls(graph)]


@pytest.mark.parametrize("seed", range(5))
def test_drawn_programs_are_compiled_as_dynamo_captures_them(seed: int) -> None:
    same = 0
    for program in DrawnPrograms().draw(seed, 60):
        expected = captured(program)
        if expected is not None and expected[1]:
            passed, graph = as_dynamo_does(program)
            names = [program.inputs[index].name for index in passed]
            assert (names, calls(graph.graph)) == expected, source(program)
            same += 1
    assert same > 50
