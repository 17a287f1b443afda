"""Wrong passes, each of one kind, and right passes beside them."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice

from torch import fx
from torch._functorch.compile_utils import fx_graph_cse

from benchmarks.people.planted_kinds import KINDS


@dataclass(frozen=True, slots=True)
class PlantedPass:
    """Makes the mistake of a kind at a site, by its number; nothing where there is no such site."""

    kind: str
    site: int = 0

    @property
    def __name__(self) -> str:
        return f"{self.kind}_at_{self.site}"

    def __call__(self, module: fx.GraphModule) -> fx.GraphModule:
        edit = next(islice(KINDS[self.kind](module.graph), self.site, None), None)
        if edit is not None:
            edit()
            module.graph.lint()
            module.recompile()
        return module


def sites(kind: str, graph: fx.Graph) -> int:
    """How many sites a kind has in a graph."""
    return sum(1 for _ in KINDS[kind](graph))


# --- right passes ---------------------------------------------------------------------------------


def unchanged(module: fx.GraphModule) -> None:
    """Nothing."""


def dead_code_removed(module: fx.GraphModule) -> None:
    """Calls without users and without effects are removed."""
    module.graph.eliminate_dead_code()


def equal_calls_merged(module: fx.GraphModule) -> fx.GraphModule:
    """Common subexpressions, by the pass that AOTAutograd has for graphs of training."""
    return fx.GraphModule(module, fx_graph_cse(module.graph))


RIGHT_PASSES = (unchanged, dead_code_removed, equal_calls_merged)
