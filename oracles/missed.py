"""Missed opportunities: what a stage could have done in place, and copies that it could have left out.

Nobody's word is taken for it: the stage is changed at one instruction and held against itself as it
was, by the oracles that judge a target against eager, with the strongest contract: numbers, inputs,
aliasing, metadata, and terms, so for all numbers. The changed run is watched, so that a call which
reads what it writes does not count. What holds was missed, and is kept while the search goes on, so
that no storage is counted twice.

A missed opportunity is no bug. It is a report of its own.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import fx
from torch._ops import OpOverload

from oracles import equivalence
from oracles.contract import Contract
from oracles.forms import SCATTERS, in_place_form, out_form, view_of_copy
from oracles.judge import judge
from oracles.observation import Observation, observe_eager
from oracles.stage import Stage
from oracles.verdict import Verdict
from programs.definedness import Undefined, tensors_in
from programs.schemas import Kind, facts
from programs.trace import Trace
from programs.values import clone_inputs

aten = torch.ops.aten

FreshInputs: TypeAlias = Callable[[], Sequence[torch.Tensor]]
Change: TypeAlias = Callable[[fx.Graph, fx.Node], None]


@dataclass(frozen=True, slots=True)
class Opportunity:
    """An instruction, what it could have been, and the bytes of new storage that it takes without need."""

    node: str
    op: str
    instead: str
    nbytes: int


def missed(stage: Stage, inputs: FreshInputs) -> list[Opportunity]:
    """What a stage missed, in the order of its instructions. `inputs` gives fresh ones. Raises what the stage raises.

    Tensors that the module holds are judged as further inputs: they are cloned, and what they hold
    must stay.
    """
    graph, found = stage.graph.graph, []
    held = list(_held(stage.graph).values())

    def given() -> list[torch.Tensor]:
        return [*inputs(), *clone_inputs(held)]

    before = _Run.of(stage.graph, graph, given)
    for name, nbytes in before.nbytes.items():
        for instead, change in _changes(_named(graph, name)) if nbytes else ():
            changed = copy.deepcopy(graph)
            change(changed, _named(changed, name))
            changed.lint()
            if before.same(stage.graph, changed, given):
                found.append(Opportunity(name, str(_named(graph, name).target), instead, nbytes))
                graph = changed
                break
    return found


@dataclass(frozen=True, slots=True)
class _Run:
    """What a graph leaves behind, and the bytes of the storages that the result of each of its nodes lies in."""

    observation: Observation
    trace: Trace
    terms: equivalence.ValueHashes
    nbytes: dict[str, int]

    @classmethod
    def of(cls, module: fx.GraphModule, graph: fx.Graph, inputs: FreshInputs) -> _Run:
        interpreter = _Interpreter(module, graph)
        observation, trace = observe_eager(interpreter.run_with_held, inputs())
        if observation.error is not None:
            raise observation.error
        return cls(observation, trace, _terms(module, graph, inputs), interpreter.nbytes)

    def same(self, module: fx.GraphModule, graph: fx.Graph, inputs: FreshInputs) -> bool:
        """True if another graph leaves the same, for all numbers."""
        try:
            changed, _ = observe_eager(_Interpreter(module, graph).run_with_held, inputs())
        except Undefined:
            return False
        reports = judge(Contract(), self.observation, changed, self.trace).reports.values()
        if any(each.verdict is not Verdict.HOLDS for each in reports):
            return False
        return (
            equivalence.judge(
                Contract(), self.terms, _terms(module, graph, inputs), self.trace
            ).verdict
            is Verdict.HOLDS
        )


def _terms(module: fx.GraphModule, graph: fx.Graph, inputs: FreshInputs) -> equivalence.ValueHashes:
    return equivalence.run_uninterpreted(_Interpreter(module, graph).run_with_held, inputs())


class _Interpreter(fx.Interpreter):
    """Runs a graph on its inputs and the tensors that its module holds, and notes the bytes behind each node's result."""

    def __init__(self, module: fx.GraphModule, graph: fx.Graph) -> None:
        super().__init__(module, graph=graph)
        self.extra_traceback = False
        self.nbytes: dict[str, int] = {}
        self._held = _held(module)

    def run_with_held(self, *given: torch.Tensor) -> object:
        count = len(given) - len(self._held)
        self._held = dict(zip(self._held, given[count:], strict=True))
        with torch.random.fork_rng(devices=[]):  # each run draws the same random numbers
            torch.manual_seed(0)
            result: object = self.run(*given[:count])
        return result

    def fetch_attr(self, target: str) -> object:
        return self._held[target] if target in self._held else super().fetch_attr(target)

    def run_node(self, n: fx.Node) -> object:
        result: object = super().run_node(n)
        storages = {
            each.untyped_storage()._cdata: each.untyped_storage().nbytes()
            for each in tensors_in(result)
        }
        self.nbytes[n.name] = sum(storages.values())
        return result


def _held(module: fx.GraphModule) -> dict[str, torch.Tensor]:
    """The tensors of a module that its graph uses, by name."""
    names = (str(node.target) for node in module.graph.find_nodes(op="get_attr"))
    found: dict[str, object] = {
        name: functools.reduce(getattr, name.split("."), module) for name in names
    }
    return {name: value for name, value in found.items() if isinstance(value, torch.Tensor)}


def _named(graph: fx.Graph, name: str) -> fx.Node:
    found: fx.Node = next(node for node in graph.nodes if node.name == name)
    return found


# --- what could be changed ------------------------------------------------------------------------


def _changes(node: fx.Node) -> Iterator[tuple[str, Change]]:
    """The ways in which an instruction could do without new memory: in words, and as a change of the graph."""
    op = node.target
    if not isinstance(op, OpOverload) or facts(op).kind is not Kind.FUNCTIONAL:
        return
    if op in _COPIES:
        yield "nothing: a copy that could go", _drop
    elif (view := view_of_copy(op)) is not None:
        yield str(view), _with_target(view)
    elif op in SCATTERS:
        yield f"{SCATTERS[op]} and aten.copy_.default", _store_into_base
    else:
        yield from _in_place(node, op)


_COPIES = {aten.clone.default, aten.lift_fresh_copy.default}


def _in_place(node: fx.Node, op: OpOverload) -> Iterator[tuple[str, Change]]:
    form, out = in_place_form(op), out_form(op)
    if form is not None:
        yield str(form), _with_target(form)
    if out is None or torch.Tag.generated in out.tags:  # these compute elsewhere and copy
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
        node.target, node.kwargs = op, {**node.kwargs, name: _named(graph, operand)}

    return change


def _drop(graph: fx.Graph, node: fx.Node) -> None:
    (operand,) = node.all_input_nodes
    node.replace_all_uses_with(operand)
    graph.erase_node(node)


def _store_into_base(graph: fx.Graph, node: fx.Node) -> None:
    assert isinstance(node.target, OpOverload)
    names = (each.name for each in node.target._schema.arguments)
    given = dict(zip(names, node.args, strict=False)) | node.kwargs
    base, source = given.pop("self"), given.pop("src")
    with graph.inserting_before(node):
        view = graph.call_function(SCATTERS[node.target], (base,), given)
        graph.call_function(aten.copy_.default, (view, source))
    assert isinstance(base, fx.Node)
    node.replace_all_uses_with(base)
    graph.erase_node(node)
