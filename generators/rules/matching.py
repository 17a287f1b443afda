"""Does a rule of Inductor fire on a program? Decided by its matcher only, on the traced graph."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import fx
from torch._inductor import config
from torch._inductor.constant_folding import replace_node_with_constant
from torch._inductor.decomposition import select_decomp_table
from torch._inductor.fx_passes.post_grad import view_to_reshape
from torch._inductor.pattern_matcher import (
    Arg,
    Ignored,
    KeywordArg,
    Match,
    MultiOutputPattern,
    PatternEntry,
    PatternExpr,
    PatternMatcherPass,
    ReplacementPatternEntry,
    _return_true,
    _TargetExpr,
)
from torch._inductor.virtualized import V
from torch.fx.experimental.proxy_tensor import make_fx

from aliasproof.generators.sites.patterns import check_of, entries_of, matcher_passes, pattern_sites
from aliasproof.ir.execution import ProgramFunction
from aliasproof.ir.program import Program
from aliasproof.ir.values import input_tensors


def trace_for_rules(program: Program, *, frozen: bool = False) -> fx.GraphModule:
    """The graph that a rule sees if no other rule changes it before.

    If `frozen`, the last half of the inputs are constants, as in the variant 'freezing'.
    """
    inputs = input_tensors(program)
    with config.patch(fallback_random=True), torch.no_grad():
        trace = make_fx(
            ProgramFunction(program), decomposition_table=select_decomp_table(), tracing_mode="fake"
        )
        graph: fx.GraphModule = trace(*inputs)
    if frozen:
        given = graph.graph.find_nodes(op="placeholder")
        for node, tensor in list(zip(given, inputs, strict=True))[len(given) // 2 :]:
            replace_node_with_constant(graph, node, tensor)
    graph.graph.eliminate_dead_code()  # as AOTAutograd does: rules count the readers of a value
    return graph


def refusal(entry: PatternEntry, program: Program, *, frozen: bool = False) -> str | None:
    """Why the entry does not rewrite the program (a text below); None if it does.

    Rules that run after differentiation see `reshape` in place of `view`.
    """
    try:
        graph = trace_for_rules(program, frozen=frozen)
    except Exception:  # noqa: BLE001 - a fake kernel of torch refuses what eager accepts
        return NO_MATCH
    reason = _refusal_in(entry, graph)
    if reason == NO_MATCH:
        view_to_reshape(graph)
        reason = _refusal_in(entry, graph)
    return reason


NO_MATCH = "no call matches"
REFUSED = "its check accepts none"
RAISES = "its check raises"
TAKEN = "comes first in the pass, and takes the same calls"


def _refusal_in(entry: PatternEntry, graph: fx.GraphModule) -> str | None:
    values = (node.meta.get("val") for node in graph.graph.nodes)
    fakes = [value for value in values if isinstance(value, torch.Tensor)]
    mode = getattr(fakes[0], "fake_mode", None) if fakes else None
    reasons = []
    with V.set_fake_mode(mode), torch.no_grad():
        for node in reversed(graph.graph.nodes):
            # torch's own check would trace the pattern again; `check_of` is the check without that.
            reason = _refusal_of(entry, node, check_of(entry))
            if reason is None:
                first = next((it for it in _before(entry, node) if _takes(it, node)), None)
                if first is None:
                    return None
                reason = f"{_names()[id(first)]} {TAKEN}"
            reasons.append(reason)
    return max(reasons, key=_order, default=NO_MATCH)


def _order(reason: str) -> int:
    """How close the entry came to a match; higher is closer."""
    return 3 if reason.endswith(TAKEN) else (NO_MATCH, REFUSED, RAISES).index(reason)


def _refusal_of(entry: PatternEntry, node: fx.Node, check: Callable[[Match], Any]) -> str | None:
    match = entry.pattern.match(node)
    if not isinstance(match, Match):
        return NO_MATCH
    try:
        return None if check(match) else REFUSED
    except Exception:  # noqa: BLE001 - a check of torch that does not expect such a graph
        return RAISES


def _takes(entry: PatternEntry, node: fx.Node) -> bool:
    """True if an entry rewrites a node. Without a check, the entry decides during the rewrite."""
    if not isinstance(entry, ReplacementPatternEntry) and check_of(entry) is _return_true:
        return False
    return _refusal_of(entry, node, entry.extra_check) is None


def _before(entry: PatternEntry, node: fx.Node) -> Iterator[PatternEntry]:
    """The entries that torch tries before this one, at this node."""
    for matcher in _passes_of()[id(entry)]:
        asked = matcher.patterns.get((node.op, node.target), [])
        yield from itertools.takewhile(lambda other: other is not entry, asked)


def is_covered(entry: PatternEntry) -> bool:
    """True if torch tries another entry of the pass before, whose pattern matches as much."""
    for matcher in _passes_of()[id(entry)]:
        before = itertools.takewhile(lambda other: other is not entry, entries_of(matcher))
        if any(_covers(other.pattern, entry.pattern) for other in before):
            return True
    return False


def _covers(general: Any, special: Any) -> bool:
    """True if one pattern matches all that the other one does, ignoring numbers of readers."""
    if isinstance(general, Arg | Ignored | KeywordArg):
        return True
    if isinstance(general, _TargetExpr):
        return (
            isinstance(special, _TargetExpr)
            and {*general.fns} >= {*special.fns}
            and _covers(_arguments(general), _arguments(special))
        )
    if isinstance(general, list | tuple):
        return (
            isinstance(special, list | tuple)
            and len(general) == len(special)
            and all(itertools.starmap(_covers, zip(general, special, strict=True)))
        )
    if isinstance(general, MultiOutputPattern):
        return isinstance(special, MultiOutputPattern) and _covers(general.outputs, special.outputs)
    return type(general) is type(special) and (
        isinstance(general, PatternExpr) or general == special
    )


def _arguments(pattern: _TargetExpr) -> list[Any]:
    return [*getattr(pattern, "args", ()), *getattr(pattern, "kwargs", {}).values()]


@functools.cache
def _names() -> dict[int, str]:
    return {id(entry): site.name for site, entry in pattern_sites()}


@functools.cache
def _passes_of() -> dict[int, list[PatternMatcherPass]]:
    """For each entry, the first pass that has it: later passes see only what is left."""
    passes: dict[int, list[PatternMatcherPass]] = {}
    for _, matcher in matcher_passes():
        for entry in entries_of(matcher):
            passes.setdefault(id(entry), [matcher])
    return passes
