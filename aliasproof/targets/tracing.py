"""`Tracing`: the ways to trace in which variants of one target differ."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch
from torch import fx

from aliasproof.ir.execution import ProgramFunction, as_graph

_Function: TypeAlias = Callable[..., object]


@dataclass(frozen=True, slots=True)
class Tracing:
    """Whether a trace decomposes operators, whether sizes are symbols, and settings of Inductor.

    The decompositions are those of Inductor, which contain the core ATen ones. `config` has
    settings of `torch._inductor.config`, `options` names of options of another compiler. `called`
    says that a variant calls what is compiled: more than once, with gradients, or on other inputs.
    `guarded` says that the guards of Dynamo must choose what runs, since a compiler asks nothing of
    later inputs.
    """

    decompose: bool = False
    symbolic: bool = False
    config: Mapping[str, object] = field(default_factory=dict)
    called: bool = False
    guarded: bool = False
    options: frozenset[str] = frozenset()

    def __or__(self, other: Tracing) -> Tracing:
        """What one of the two says."""
        return Tracing(
            self.decompose or other.decompose,
            self.symbolic or other.symbolic,
            {**self.config, **other.config},
            self.called or other.called,
            self.guarded or other.guarded,
            self.options | other.options,
        )

    @property
    def table(self) -> dict[Any, Callable[..., Any]] | None:
        """The decompositions; None if there are none."""
        if not self.decompose:
            return None
        # Imported here: this takes a second, and no other target needs it. Not
        # `select_decomp_table`: that one draws random numbers in another order than eager.
        from torch._inductor.decomposition import decompositions  # noqa: PLC0415

        return dict(decompositions)

    @property
    def imports(self) -> str:
        """The lines that a recipe with these options needs on top."""
        line = "from torch._inductor.decomposition import decompositions\n"
        return line if self.decompose else ""

    @property
    def dynamic(self) -> str:
        """The argument of `torch.compile` in a recipe."""
        return ", dynamic=True" if self.symbolic else ""

    def arguments(self) -> str:
        """Arguments of `make_fx` in a recipe."""
        named = {
            "decomposition_table=decompositions": self.decompose,
            'tracing_mode="symbolic"': self.symbolic,
        }
        return "".join(f", {text}" for text, chosen in named.items() if chosen)


PLAIN = Tracing()


def untraced(function: _Function) -> _Function:
    """A program as its graph; any other function as it is."""
    if not isinstance(function, ProgramFunction):
        return function
    return fx.GraphModule(torch.nn.Module(), as_graph(function.program))


def copied(graph: fx.Graph, root: torch.nn.Module | None) -> fx.GraphModule:
    """A copy of a graph and its metadata, with the modules and constants of its root.

    Passes may change the graph that a compiler traced.
    """
    # No deep copy: it copies constants too, and under a fake mode these would become fake.
    made, nodes = fx.Graph(), dict[fx.Node, fx.Node]()
    returned = made.graph_copy(graph, nodes)
    output = made.output(returned)
    output.meta = dict(graph.output_node().meta)
    return fx.GraphModule(root if root is not None else torch.nn.Module(), made)
