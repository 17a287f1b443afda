"""Fixtures: a program goes through the reference pass, and is compared with eager."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import pytest
import torch
import torch._dynamo
from torch import Tensor, distributed, fx
from torch.fx.experimental.proxy_tensor import make_fx
from torch.testing._internal.distributed.fake_pg import FakeStore

from aliasproof.reference_pass.calls.graphs import copied
from aliasproof.reference_pass.candidates import How
from aliasproof.reference_pass.pipeline import functionalize, metadata_is_true, reinplace
from aliasproof.reference_pass.reinplace import decisions
from aliasproof.targets.target import Function
from tests.reference_pass.graphs import calls_of
from tests.reference_pass.scene import violations


@dataclass(frozen=True, slots=True)
class Reinplaced:
    """The graph that the pass made of a program, and the decisions."""

    graph_module: fx.GraphModule

    @property
    def calls(self) -> list[str]:
        """The calls of the graph, as `add_.Tensor`."""
        return calls_of(self.graph_module)

    @property
    def how(self) -> dict[str, How | None]:
        """How each node is put in place, by its name in the functional graph."""
        return {each.node: each.how for each in decisions(self.graph_module)}

    def refused(self, name: str, how: How = How.IN_PLACE) -> str | None:
        """The condition that a candidate fails; None if it was not tried or was applied."""
        (decision,) = (each for each in decisions(self.graph_module) if each.node == name)
        return next((condition for tried, condition, _ in decision.refused if tried is how), None)

    def node(self, name: str) -> fx.Node:
        """A node of the graph."""
        found: dict[str, fx.Node] = {node.name: node for node in self.graph_module.graph.nodes}
        return found[name]


Reinplaces: TypeAlias = Callable[..., Reinplaced]


@pytest.fixture(autouse=True)
def fresh_dynamo() -> None:
    """Drop what Dynamo has compiled for other tests."""
    torch._dynamo.reset()


@pytest.fixture
def reinplaced() -> Reinplaces:
    """`reinplaced(program, *inputs)`: the result of functionalize and reinplace.

    The fixture checks that it agrees with eager.
    """

    def run(program: Function, *inputs: Any) -> Reinplaced:
        return _checked(program, functionalize(program, *inputs), *inputs)

    return run


@pytest.fixture
def reinplaced_as_written() -> Reinplaces:
    """The same for a program that is functional already, so that only `reinplace` changes it."""

    def run(program: Function, *inputs: Any) -> Reinplaced:
        traced = program if isinstance(program, fx.GraphModule) else make_fx(program)(*inputs)
        return _checked(program, copied(traced), *inputs)

    return run


def _checked(program: Function, functional: fx.GraphModule, *inputs: Tensor) -> Reinplaced:
    graph_module = reinplace(functional, *inputs)
    assert violations(program, inputs, lambda *_: graph_module) == []
    assert metadata_is_true(graph_module) is None
    return Reinplaced(graph_module)


@pytest.fixture
def group() -> Iterator[Any]:
    """The functional collectives, in a process group of one process."""
    distributed.init_process_group("fake", rank=0, world_size=1, store=FakeStore())
    import torch.distributed._functional_collectives  # registers the operators

    yield torch.ops._c10d_functional
    distributed.destroy_process_group()


KEPT: list[Tensor] = []


@pytest.fixture
def keeping() -> Iterator[Any]:
    """Operators whose schemas are false: `store` keeps its operand, and `load` reads it."""
    with torch.library._scoped_library("aliasproof_keeping", "FRAGMENT") as library:
        library.define("store(Tensor x) -> Tensor")
        library.define("load(Tensor like) -> Tensor")

        def store(x: Tensor) -> Tensor:
            KEPT[:] = [x]
            return x.sum()

        library.impl("store", store, "CPU")
        library.impl("store", lambda x: x.new_empty(()), "Meta")
        library.impl("load", lambda like: KEPT[0].clone(), "CPU")
        library.impl("load", torch.empty_like, "Meta")
        yield torch.ops.aliasproof_keeping
    KEPT.clear()
