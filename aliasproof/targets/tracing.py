"""`Tracing`: the ways to trace in which variants of one target differ."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import fx
from torch.fx.experimental.proxy_tensor import make_fx

from aliasproof.programs.errors import Rejected
from aliasproof.targets.target import Build, Function


@dataclass(frozen=True, slots=True)
class Tracing:
    """Whether a trace decomposes operators, and whether sizes are symbols.

    The decompositions are those of Inductor, which contain the core ATen ones.
    """

    decompose: bool = False
    symbolic: bool = False

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
    def mode(self) -> Literal["real", "symbolic"]:
        """The tracing mode of `make_fx`."""
        return "symbolic" if self.symbolic else "real"

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


@dataclass(frozen=True, slots=True)
class Traced:
    """The build and the recipe of a target, as functions of how it traces."""

    build: Callable[..., Build]
    recipe: Callable[..., str]


def traced(function: Function, inputs: Sequence[torch.Tensor], tracing: Tracing) -> fx.GraphModule:
    """The graph that `make_fx` captures."""
    trace = make_fx(
        function,
        decomposition_table=tracing.table,
        tracing_mode=tracing.mode,
    )
    graph: fx.GraphModule = trace(*inputs)
    return graph


def guarded(graph: fx.GraphModule, function: Function) -> Function:
    """The function, for inputs that satisfy the guards of the trace.

    A compiler compiles again for other inputs, so a graph says nothing about them. Raises
    `Rejected` for these.
    """
    env = getattr(graph, "shape_env", None)
    if env is None:
        return function
    metas = [node.meta.get("val") for node in graph.graph.nodes if node.op == "placeholder"]

    def checked(*inputs: torch.Tensor) -> object:
        if not env.evaluate_guards_for_args(metas, inputs):
            raise Rejected("the sizes of the run do not satisfy the guards of the trace")
        return function(*inputs)

    return checked
