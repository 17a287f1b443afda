"""Does a rule of Inductor fire on a program? Only its matcher runs, on the traced graph."""

from __future__ import annotations

import torch
from torch import fx
from torch._inductor import config
from torch._inductor.decomposition import select_decomp_table
from torch._inductor.fx_passes.post_grad import view_to_reshape
from torch._inductor.pattern_matcher import Match, PatternEntry
from torch._inductor.virtualized import V
from torch.fx.experimental.proxy_tensor import make_fx

from aliasproof.programs.execution import ProgramFunction
from aliasproof.programs.program import Program
from aliasproof.programs.values import input_tensors


def traced(program: Program) -> fx.GraphModule:
    """The graph that a rule sees, as far as other rules leave it alone."""
    with config.patch(fallback_random=True), torch.no_grad():
        trace = make_fx(
            ProgramFunction(program),
            decomposition_table=select_decomp_table(),
            tracing_mode="fake",
        )
        graph: fx.GraphModule = trace(*input_tensors(program))
    graph.graph.eliminate_dead_code()  # as AOTAutograd does: a rule counts the readers of a value
    return graph


def matches(entry: PatternEntry, program: Program) -> bool:
    """True if the entry's pattern matches, and its further check accepts the match.

    The rules after the gradient see `reshape` for each `view`.
    """
    try:
        graph = traced(program)
    except Exception:  # noqa: BLE001 - a fake kernel of torch refuses what eager accepts
        return False
    if _matches_in(entry, graph):
        return True
    view_to_reshape(graph)
    return _matches_in(entry, graph)


def _matches_in(entry: PatternEntry, graph: fx.GraphModule) -> bool:
    values = (node.meta.get("val") for node in graph.graph.nodes)
    fakes = [value for value in values if isinstance(value, torch.Tensor)]
    mode = getattr(fakes[0], "fake_mode", None) if fakes else None
    with V.set_fake_mode(mode), torch.no_grad():
        return any(_accepts(entry, node) for node in reversed(graph.graph.nodes))


def _accepts(entry: PatternEntry, node: fx.Node) -> bool:
    match = entry.pattern.match(node)
    if not isinstance(match, Match):
        return False
    try:
        return bool(entry.extra_check(match))
    except Exception:  # noqa: BLE001 - a check of torch that does not expect such a graph
        return False
