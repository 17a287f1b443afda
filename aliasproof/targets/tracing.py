"""`Tracing`: how a target traces; some variants differ only in this."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, TypeAlias

import torch
from torch import fx

from aliasproof.ir.execution import ProgramFunction, as_graph

_Function: TypeAlias = Callable[..., object]


@dataclass(frozen=True, slots=True)
class Tracing:
    """Whether a trace decomposes operators, whether sizes are symbols, and settings of Inductor.

    The decompositions are those of Inductor, which contain the core ATen ones. `config` has
    settings of `torch._inductor.config`, `options` the names of another compiler's options.
    `called` says that a variant calls the compiled function more than once, with gradients, or with
    other inputs. `guarded` says that the guards of Dynamo must choose which code runs, since the
    compiler itself does not check later inputs.
    """

    decompose: bool = False
    symbolic: bool = False
    config: Mapping[str, object] = field(default_factory=dict)
    called: bool = False
    guarded: bool = False
    options: frozenset[str] = frozenset()

    def __or__(self, other: Tracing) -> Tracing:
        """The union of both."""
        return Tracing(*(getattr(self, it.name) | getattr(other, it.name) for it in fields(self)))

    @property
    def table(self) -> dict[Any, Callable[..., Any]] | None:
        """The decompositions; None if there are none."""
        if not self.decompose:
            return None
        # Imported here: this takes a second, and no other target needs it. Not
        # `select_decomp_table`: its decompositions draw random numbers in another order than eager.
        from torch._inductor.decomposition import decompositions  # noqa: PLC0415

        return dict(decompositions)

    @property
    def imports(self) -> str:
        """The import lines that a recipe with these options needs."""
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
    """A program as a graph; any other function unchanged."""
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
