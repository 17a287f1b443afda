"""Marks in a functional graph: which operand's memory the result of a call may take over.

    add = call_in_place(aten.add.Tensor, (0,), mul, x)        # the result may be where `mul` is

As `call_tir_inplace` of TVM Relax, a marked call is *pure*: it computes the same as the call
without the mark, and writes nothing. So marks are made early, on a graph that other passes may
still change. They are lowered late, when it is known where everything is, and checked at that time.
A pass, or a user, may make marks of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import fx
from torch._ops import OpOverload

from aliasproof.reference_pass.calls.nested import tensors_in
from aliasproof.reference_pass.calls.operator_forms import writes
from aliasproof.reference_pass.conditions import Condition
from aliasproof.reference_pass.exceptions import Refused
from aliasproof.reference_pass.liveness import Liveness
from aliasproof.reference_pass.planning.offers import (
    NEW,
    Mark,
    by_bytes_kept,
    operands_of,
    operands_taken,
)
from aliasproof.reference_pass.reinplace import Decision, first_failure
from aliasproof.reference_pass.semantics import Semantics


def call_in_place(op: OpOverload, into: tuple[int, ...], *args: Any, **kwargs: Any) -> Any:
    """Call a functional operator. The call is pure: only `plan_memory` uses `into`.

    `into` has one number per result: the index of the operand whose memory the result may take over
    (0 is the first tensor among the arguments), or -1 for a new storage.
    """
    return op(*args, **kwargs)


def mark(graph: fx.Graph, semantics: Semantics, conditions: Sequence[Condition]) -> None:
    """Mark each call of a functional graph whose result may take over the memory of an operand.

    Each mark is right by itself: the operand is dead after the call, and so are its aliases.
    Requires true metadata. The caller has entered `on_fakes`.
    """
    liveness = Liveness(graph, semantics)
    made: dict[fx.Node, Mark] = {}
    # Nothing is changed in this loop, so each call is decided on the graph as it is.
    for node in graph.nodes:
        if node.op != "call_function" or not isinstance(node.target, OpOverload) or not node.users:
            continue
        for _, candidate in by_bytes_kept(node, liveness):
            into = operands_taken(candidate)
            if into is not None and first_failure(candidate, conditions) is None:
                made[node] = into
                break
    for node, into in made.items():
        node.args = (node.target, into, *node.args)  # type: ignore[arg-type]
        node.target = call_in_place


# --- lowering -------------------------------------------------------------------------------------


def without_marks(graph: fx.Graph) -> dict[str, Mark]:
    """Take the marks off a graph; returns them by the name of their node.

    Raises `Refused` for a `call_in_place` that is not a valid mark.
    """
    marks: dict[str, Mark] = {}
    for node in graph.find_nodes(op="call_function", target=call_in_place):
        op, into, *args = node.args
        if not isinstance(into, (list, tuple)) or not all(type(index) is int for index in into):
            raise Refused(f"{node} is marked {into!r}; a mark is a tuple of one int per result")
        node.target, node.args, marks[node.name] = op, tuple(args), tuple(into)
    return marks


def refuse_malformed(graph: fx.Graph, marks: Mapping[str, Mark]) -> None:
    """Raise `Refused` for a mark that is wrong whatever comes before and after the call."""
    for node in graph.nodes:
        if node.name not in marks:
            continue
        into, results = marks[node.name], len(tensors_in(node.meta["val"]))
        operands = len(operands_of(node))
        taken = [index for index in into if index != NEW]
        reason = None
        if not isinstance(node.target, OpOverload) or writes(node.target):
            reason = "it is not a call of a functional operator"
        elif len(into) != results:
            reason = f"it has {results} result{'s' * (results != 1)}"
        elif not all(0 <= index < operands for index in taken):
            reason = f"it has {operands} operand{'s' * (operands != 1)}"
        elif len(set(taken)) < len(taken):
            reason = "two results cannot be in one operand"
        if reason is not None:
            raise Refused(f"{node} = {node.target} is marked {into}, but {reason}")


def refuse_unmet(marks: Mapping[str, Mark], made: Sequence[Decision]) -> None:
    """Raise `Refused` for a mark that no condition allows."""
    decided = {decision.node: decision for decision in made}
    for name, into in marks.items():
        decision = decided.get(name)
        if all(index == NEW for index in into) or (decision and decision.how is not None):
            continue
        reasons = [reason for _, _, reason in decision.refused] if decision else []
        why = "; ".join(reasons) or "the operator cannot write its result there"
        raise Refused(f"{name} is marked {into}, but {why}")
