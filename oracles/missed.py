"""Missed opportunities: what a stage could compute in place, and copies that it could leave out.

Each opportunity is proved by a trial. The stage is changed at one node and compared with itself by
the oracles that compare a target with eager, with the strongest contract: values, inputs, aliasing,
metadata, and equivalence, so for all values. Definedness watches the changed run, so a call that
reads what it writes does not count. If no oracle finds a difference, the opportunity was missed.
The change is kept for the rest of the search, so that no storage is counted twice.

A missed opportunity is not a bug, so it has a report of its own.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import TypeAlias

import torch
from torch import fx
from torch._ops import OpOverload

from aliasproof.eager.definedness import Undefined
from aliasproof.ir.eager_call import tensors_in
from aliasproof.ir.schemas import Kind, facts
from aliasproof.ir.values import clone_inputs
from aliasproof.oracles import equivalence
from aliasproof.oracles.contract import Contract
from aliasproof.oracles.forms import SCATTERS, in_place_form, out_form, view_of_copy
from aliasproof.oracles.judge import judge
from aliasproof.oracles.observation import observe_eager
from aliasproof.oracles.stage import Stage
from aliasproof.oracles.verdict import Verdict

aten = torch.ops.aten

FreshInputs: TypeAlias = Callable[[], Sequence[torch.Tensor]]
Change: TypeAlias = Callable[[fx.Graph, fx.Node], None]


@dataclass(frozen=True, slots=True)
class Opportunity:
    """A node, its possible replacement, and the bytes of new storage that this would save."""

    node: str
    op: str
    instead: str
    nbytes: int


def missed_opportunities(stage: Stage, inputs: FreshInputs) -> list[Opportunity]:
    """The missed opportunities of a stage, in node order. `inputs` gives fresh inputs.

    Captured tensors of the module are judged as further inputs: each run gets clones of them, and
    must not change their contents. Re-raises the stage's errors.
    """
    module, graph = stage.graph, stage.graph.graph
    captured = list(_captured_tensors(module).values())

    def fresh() -> list[torch.Tensor]:
        return [*inputs(), *clone_inputs(captured)]

    def hashes(graph: fx.Graph) -> equivalence.ValueHashes:
        return equivalence.run_uninterpreted(_Interpreter(module, graph).run_with_captured, fresh())

    interpreter = _Interpreter(module, graph)
    before, trace = observe_eager(interpreter.run_with_captured, fresh())
    if before.error is not None:
        raise before.error
    hashes_before = hashes(graph)

    def same(changed: fx.Graph) -> bool:
        """Whether a changed graph has the same results, for all values of the inputs."""
        try:
            after, _ = observe_eager(_Interpreter(module, changed).run_with_captured, fresh())
        # For example, the changed graph reads what it writes.
        except Undefined:
            return False
        # The cheap oracles first: most changes fail here.
        reports = judge(Contract(), before, after, trace).reports.values()
        if any(report.verdict is not Verdict.HOLDS for report in reports):
            return False
        report = equivalence.judge(Contract(), hashes_before, hashes(changed), trace)
        return report.verdict is Verdict.HOLDS

    opportunities = []
    # A result of 0 bytes can save nothing.
    for name, nbytes in interpreter.nbytes.items():
        for instead, change in _changes(_node_named(graph, name)) if nbytes else ():
            changed = copy.deepcopy(graph)
            change(changed, _node_named(changed, name))
            changed.lint()
            # Kept in `graph`, so that later changes are judged together with this one.
            if same(changed):
                op = str(_node_named(graph, name).target)
                opportunities.append(Opportunity(name, op, instead, nbytes))
                graph = changed
                break
    return opportunities


class _Interpreter(fx.Interpreter):
    """Runs a graph, and records the bytes of the storages behind each node's result."""

    def __init__(self, module: fx.GraphModule, graph: fx.Graph) -> None:
        super().__init__(module, graph=graph)
        self.extra_traceback = False
        self.nbytes: dict[str, int] = {}
        self._captured_tensors = _captured_tensors(module)

    def run_with_captured(self, *given: torch.Tensor) -> object:
        """Run on the inputs and, after them, stand-ins for the captured tensors."""
        count = len(given) - len(self._captured_tensors)
        self._captured_tensors = dict(zip(self._captured_tensors, given[count:], strict=True))
        with torch.random.fork_rng(devices=[]):  # each run draws the same random numbers
            torch.manual_seed(0)
            result: object = self.run(*given[:count])
        return result

    def fetch_attr(self, target: str) -> object:
        return (
            self._captured_tensors[target]
            if target in self._captured_tensors
            else super().fetch_attr(target)
        )

    def run_node(self, n: fx.Node) -> object:
        result: object = super().run_node(n)
        storages = [tensor.untyped_storage() for tensor in tensors_in(result)]
        # By identity, so that two tensors on one storage count once.
        self.nbytes[n.name] = sum(
            {storage._cdata: storage.nbytes() for storage in storages}.values()
        )
        return result


def _captured_tensors(module: fx.GraphModule) -> dict[str, torch.Tensor]:
    """The tensors of a module that its graph uses, by name."""
    names = (str(node.target) for node in module.graph.find_nodes(op="get_attr"))
    attributes: dict[str, object] = {name: attrgetter(name)(module) for name in names}
    return {name: value for name, value in attributes.items() if isinstance(value, torch.Tensor)}


def _node_named(graph: fx.Graph, name: str) -> fx.Node:
    match: fx.Node = next(node for node in graph.nodes if node.name == name)
    return match


# --- changes --------------------------------------------------------------------------------------


def _changes(node: fx.Node) -> Iterator[tuple[str, Change]]:
    """The ways to avoid new memory at a node: each in words, and as a change to the graph."""
    op = node.target
    # Only functional ops always allocate.
    if not isinstance(op, OpOverload) or facts(op).kind is not Kind.FUNCTIONAL:
        return
    if op in _COPIES:
        yield "nothing: a copy that could go", _drop
    elif (view := view_of_copy(op)) is not None:
        yield str(view), _with_target(view)
    elif op in SCATTERS:
        # Storing through the view saves the clone of the base.
        yield f"{SCATTERS[op]} and aten.copy_.default", _store_into_base
    else:
        yield from _in_place(node, op)


_COPIES = {aten.clone.default, aten.lift_fresh_copy.default}


def _in_place(node: fx.Node, op: OpOverload) -> Iterator[tuple[str, Change]]:
    form, out = in_place_form(op), out_form(op)
    if form is not None:
        yield str(form), _with_target(form)
    # A generated `out=` form computes into new memory and copies, so it saves nothing.
    if out is None or torch.Tag.generated in out.tags:
        return
    (name,) = (out._schema.arguments[index].name for index in facts(out).writes)
    for operand in node.all_input_nodes:
        yield f"{out} into {operand}", _into(out, name, operand.name)


def _with_target(op: OpOverload) -> Change:
    def change(graph: fx.Graph, node: fx.Node) -> None:
        node.target = op

    return change


def _into(op: OpOverload, name: str, operand: str) -> Change:
    def change(graph: fx.Graph, node: fx.Node) -> None:
        node.target, node.kwargs = op, {**node.kwargs, name: _node_named(graph, operand)}

    return change


def _drop(graph: fx.Graph, node: fx.Node) -> None:
    (operand,) = node.all_input_nodes
    node.replace_all_uses_with(operand)
    graph.erase_node(node)


def _store_into_base(graph: fx.Graph, node: fx.Node) -> None:
    """A scatter becomes a view of its base and a `copy_` into the view."""
    assert isinstance(node.target, OpOverload)
    names = (argument.name for argument in node.target._schema.arguments)
    given = dict(zip(names, node.args, strict=False)) | node.kwargs
    base, source = given.pop("self"), given.pop("src")
    with graph.inserting_before(node):
        view = graph.call_function(SCATTERS[node.target], (base,), given)
        graph.call_function(aten.copy_.default, (view, source))
    assert isinstance(base, fx.Node)
    node.replace_all_uses_with(base)
    graph.erase_node(node)
