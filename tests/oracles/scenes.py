"""Scenes of the oracles' tests: a function for eager and one for the target, or small graphs."""

import re
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor, fx

from aliasproof.eager.trace import Trace
from aliasproof.ir.values import clone_inputs
from aliasproof.oracles import equivalence
from aliasproof.oracles.clobbers import judge_stage
from aliasproof.oracles.contract import Contract, Promise, Waiver
from aliasproof.oracles.equivalence import ValueHashes, differences, run_uninterpreted
from aliasproof.oracles.observation import Observation, observe, observe_eager
from aliasproof.oracles.stage import Stage
from aliasproof.oracles.stage_run import run_stage
from aliasproof.oracles.verdict import Report, Verdict, Violation

Runs: TypeAlias = tuple[Observation, Observation, Trace]
Function: TypeAlias = Callable[..., object]
Pair: TypeAlias = tuple[Function, Function, tuple[Tensor, ...]]
Judge: TypeAlias = Callable[[Contract, Observation, Observation, Trace], Report]

ALL = Contract()


def runs(eager: Function, target: Function, inputs: Sequence[Tensor]) -> Runs:
    """Runs two functions on clones of inputs: `judge(contract, *runs(eager, target, inputs))`."""
    expected, trace = observe_eager(eager, clone_inputs(inputs))
    return expected, observe(target, clone_inputs(inputs)), trace


def pairs_in(text: str, scope: dict[str, object]) -> dict[str, Pair]:
    """The functions of eager and of a target, and their inputs, by name.

    A line `NAME: EAGER => TARGET` has two expressions of x, the input X of the scope. Else a line
    `NAME (x, y): INPUTS`, without inputs for X, is followed by one line for each expression.
    """
    pairs: dict[str, Pair] = {}
    for block in re.split(r"\n(?=\w)", re.sub(r"\n#.*", "", text.strip())):
        head, *expressions = re.split(r"\n {4}", block)
        name, _, given = head.partition(":")
        if not expressions:
            given, expressions = "", given.split(" => ")
        name, _, parameters = name.partition(" (")
        eager, target = (
            eval(f"lambda {parameters.rstrip(')') or 'x'}: {each.strip()}", scope)  # noqa: S307
            for each in expressions
        )
        pairs[name] = eager, target, eval(f"({given or 'X'},)", scope)  # noqa: S307 - our own text
    return pairs


def waiving(*promises: Promise) -> Contract:
    """The contract that does not make these promises."""
    return Contract(waivers=tuple(Waiver(each, "for this test") for each in promises))


def waived(judge: Judge, promise: Promise, both: Runs) -> tuple[Violation, ...]:
    """The differences that are documented if the promise is not made; all must be."""
    report = judge(waiving(promise), *both)
    assert report.verdict is Verdict.DOCUMENTED
    return tuple(found.difference for found in report.documented)


def stage(
    inputs: str,
    *calls: tuple[Any, ...],
    returned: str = "",
    name: str = "reinplaced",
    functional: bool = False,
) -> Stage:
    """A stage from its inputs and calls: `stage("x y", ("sum", aten.add.Tensor, "x", "y"))`.

    A call is (name, target, arguments, ...). The name of a value, as an argument, stands for the
    value. A dict at the end has the keyword arguments.
    """
    graph = fx.Graph()
    nodes: dict[Any, Any] = {each: graph.placeholder(each) for each in inputs.split()}
    for result, target, *args in calls:
        kwargs = args.pop() if args and isinstance(args[-1], dict) else {}
        arguments, named = fx.node.map_aggregate(
            (tuple(args), kwargs), lambda value: nodes.get(value, value)
        )
        op = "call_method" if isinstance(target, str) else "call_function"
        nodes[result] = graph.create_node(op, target, arguments, named, name=result)
    graph.output(tuple(nodes[output] for output in returned.split()))
    return Stage(name, fx.GraphModule(torch.nn.Module(), graph), functional)


def line(length: int = 6) -> Tensor:
    return torch.arange(1.0, length + 1)


def clobbers(after: Stage, inputs: Sequence[Tensor], before: Stage | None = None) -> Report:
    """The report of *clobbers* on a stage, with the stage before it if that is given."""
    first = None if before is None else run_stage(before, clone_inputs(inputs))
    return judge_stage(run_stage(after, clone_inputs(inputs)), first)


def report(eager: Function, target: Function, *inputs: Tensor, contract: Contract = ALL) -> Report:
    """The report of *equivalence* on two functions."""

    def both(*, named: bool, seed: int) -> tuple[ValueHashes, ValueHashes]:
        torch.manual_seed(0)
        one = run_uninterpreted(eager, clone_inputs(inputs), named=named, seed=seed)
        torch.manual_seed(0)
        return one, run_uninterpreted(target, clone_inputs(inputs), named=named, seed=seed)

    hashes = both(named=False, seed=0)
    return equivalence.judge(contract, *hashes, Trace(), lambda: both(named=True, seed=1))


def same_hashes(one: Function, other: Function, *inputs: Tensor) -> bool:
    """Whether two functions leave equal value hashes, without a second pair of runs."""
    hashes = []
    for function in (one, other):
        torch.manual_seed(0)
        hashes.append(run_uninterpreted(function, clone_inputs(inputs)))
    return not differences(*hashes)
