"""Reinplacing: mutation put back where it is safe, to save memory.

One walk over the graph, in order, as in `reinplace` of the first chapter. The first candidate that
meets all `conditions` is applied at once, so later decisions see the graph as it is then. The first
chapter reads a `location` off the graph; here the metadata of all views is made true after each
rewrite, because the conditions compare bytes, and a rewrite moves them.

The specification is the docstring of `torch.fx.passes.reinplace.reinplace`. Differences:

- Overlap is decided in bytes. Two disjoint slices of one base do not prevent each other.
- A scatter reads its base only outside of what it stores over. Step (2c) follows from that: a write
  through a view is safe if the only later use is a scatter over the same bytes, whatever its
  source. And the scatter is redundant if its source is at its destination already (5).
- The caller reads the inputs after the end of the graph. That is step (1b). The optimisation noted
  there follows: a `copy_` into an input overwrites its old data, so the caller does not read it.
- An output gets no larger storage than in eager, unless the caller allows it
  (`larger_output_storage`).
- Decisions are recorded (`decisions`): how a node is in place, or the condition that each candidate
  fails.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from torch import fx
from torch._ops import OpOverload
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

from aliasproof.reference_pass.calls.fake_tensors import fake_mode, on_fakes
from aliasproof.reference_pass.calls.graphs import erase_dead, erase_self_copies, has_effect
from aliasproof.reference_pass.calls.metadata import note_value, set_value
from aliasproof.reference_pass.calls.operator_forms import (
    EPILOGUE,
    aten,
    bind,
    facts,
    stores_through,
    writes,
)
from aliasproof.reference_pass.candidates import Candidate, How
from aliasproof.reference_pass.conditions import Condition
from aliasproof.reference_pass.exceptions import Refused
from aliasproof.reference_pass.liveness import Liveness
from aliasproof.reference_pass.semantics import Semantics

# (a node, the live ranges) -> its candidates, the best first
Offered: TypeAlias = Callable[[fx.Node, Liveness], Iterator[Candidate]]


@dataclass(frozen=True, slots=True)
class Decision:
    """The decision about a node.

    `node` keeps its name in place, and `op` is what it called before. `how` is the way in which it
    is in place, or None, and `into` names the destinations of its results. `refused` has an entry
    for each refused candidate: the way, the name of the condition that it fails, and the reason.
    """

    node: str
    op: str
    how: How | None
    refused: tuple[tuple[How, str, str], ...]
    into: tuple[str, ...] = ()


def put_in_place(
    graph_module: fx.GraphModule,
    semantics: Semantics,
    conditions: Sequence[Condition],
    offered: Offered,
) -> None:
    """Turn functional ops of a functional graph into in-place ones.

    Requires true metadata. Notes the decisions in `graph_module.meta["reinplace"]`.
    Raises `Refused` if the graph writes anything except its inputs at its end.
    """
    graph = graph_module.graph
    for node in graph.nodes:
        if writes(node.target) and node.target not in EPILOGUE:
            raise Refused(
                f"{node.format_node()} writes to its operand: functionalize the graph first"
            )
    erase_dead(graph)  # a dead use must not count as a read
    with on_fakes(fake_mode(graph_module)):
        liveness = Liveness(graph, semantics)
        # A copy of the list, since rewrites erase and add nodes. A dead node need not be in place,
        # unless it is called for its effect.
        made = [
            decide(node, offered(node, liveness), conditions)
            for node in list(graph.nodes)
            if node.op == "call_function" and (node.users or has_effect(node))
        ]
        erase_self_copies(graph)
        erase_dead(graph)
    graph_module.meta["reinplace"] = tuple(decision for decision in made if decision is not None)
    graph_module.recompile()


def decisions(graph_module: fx.GraphModule) -> tuple[Decision, ...]:
    """What `reinplace` decided about each node that had a candidate."""
    found: tuple[Decision, ...] = graph_module.meta.get("reinplace", ())
    return found


def first_failure(candidate: Candidate, conditions: Sequence[Condition]) -> tuple[str, str] | None:
    """The name of the first condition that a candidate fails, with the reason."""
    # A size that is unknown until the run can fail any comparison; then the condition fails.
    for condition in conditions:
        try:
            reason = condition(candidate)
        except GuardOnDataDependentSymNode as error:
            reason = f"this depends on a data-dependent size: {error.cond}"
        if reason is not None:
            return condition.__name__, reason
    return None


def decide(
    node: fx.Node, candidates: Iterator[Candidate], conditions: Sequence[Condition]
) -> Decision | None:
    """Apply the first candidate that meets all conditions; None if there is no candidate."""
    # A call on copies, or of another wrapper, has its operator as the first argument.
    op = str(next((op for op in node.args if isinstance(op, OpOverload)), node.target))
    refused: list[tuple[How, str, str]] = []
    for candidate in candidates:
        failure = first_failure(candidate, conditions)
        if failure is None:
            into = tuple(slot.destination.name for slot in candidate.slots)
            _apply(candidate)
            return Decision(node.name, op, candidate.how, tuple(refused), into)
        refused.append((candidate.how, *failure))
    return Decision(node.name, op, None, tuple(refused)) if refused else None


# --- rewrites -------------------------------------------------------------------------------------
#
# Nodes that they leave without a use are erased at the end.


def _apply(candidate: Candidate) -> None:
    node, liveness = candidate.node, candidate.liveness
    # Other candidates replace the node by its destination: a scatter by its base, a copy by a view.
    if candidate.how not in (How.IN_PLACE, How.OUT, How.CAST_BACK):
        (slot,) = candidate.slots
        if candidate.how is How.SCATTER:
            _store(node, liveness)
        liveness.replace(node, slot.destination, slot.value)
        if candidate.how is How.COPIED:
            with node.graph.inserting_after(node):
                _new(node.graph, candidate.op, candidate.args, liveness)
        return
    had_tuple = isinstance(node.meta["val"], tuple)
    node.target, node.args, node.kwargs = candidate.op, candidate.args, candidate.kwargs
    liveness.replace_all(  # (4)
        (slot.result, slot.destination, slot.value)
        for slot in candidate.slots
        if slot.result is not None
    )
    returns = candidate.op._schema.returns
    if len(returns) == len(candidate.slots) == 1 and not facts(candidate.op).fresh:
        # The call returns the tensor that it writes, so it need not run.
        note_value(node, candidate.slots[0].destination.meta["val"])
    else:
        set_value(node, liveness.semantics)
    if had_tuple:
        _renumber(node, candidate.op, liveness)


def _store(node: fx.Node, liveness: Liveness) -> None:
    """(3a) A scatter as a view and a copy_."""
    assert isinstance(node.target, OpOverload)
    # Inserted before the scatter, where the base has its old contents and the source is computed.
    with node.graph.inserting_before(node):
        view = _new(node.graph, *stores_through(node), liveness)
        stored = view, bind(node.target, node.args, node.kwargs)["src"]
        _new(node.graph, aten.copy_.default, stored, liveness)


def _new(graph: fx.Graph, op: OpOverload, args: tuple[Any, ...], liveness: Liveness) -> fx.Node:
    """A new node, which gets the position of the node after it."""
    new = graph.create_node("call_function", op, args, name=op.overloadpacket.__name__)
    if op is aten.copy_.default:
        note_value(new, args[0].meta["val"])  # it returns the tensor that it writes
    else:
        set_value(new, liveness.semantics)
        liveness.views.add(new)
    liveness.position[new] = liveness.position[new.next]
    return new


def _renumber(node: fx.Node, op: OpOverload, liveness: Liveness) -> None:
    """Correct the indices of results: a mutating form does not return what it writes."""
    fresh = facts(op).fresh
    single = len(op._schema.returns) == 1
    for user in list(node.users):
        # Users of written results use the destinations by now; fresh results come first.
        index = user.args[1] if user.target is operator.getitem else None
        if not isinstance(index, int) or index >= len(fresh):
            continue
        if single:  # then a call returns the tensor itself, not a tuple
            liveness.replace(user, node, user.meta["val"])
        else:
            user.args = (node, fresh[index])
            liveness.follow([user])
