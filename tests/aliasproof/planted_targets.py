"""Wrong targets, which show that each result is compared; right ones; a check that these are."""

import inspect
from collections.abc import Sequence

import torch

from aliasproof.ir.values import clone_inputs
from aliasproof.oracles.check_result import Check
from aliasproof.oracles.judge import ON_GRAPHS
from aliasproof.oracles.verdict import Verdict
from aliasproof.targets.target import Build, Function

SAFE = ("functionalize", "fx-reinplace", "aot", "aot-epilogue", "identity")


def stale(function: Function, inputs: Sequence[torch.Tensor]) -> Build:
    """Computes with inputs that are 1 larger, so that all results that depend on them are wrong."""

    def run(*tensors: torch.Tensor) -> object:
        wrong = [x + 1 if x.is_floating_point() else x for x in clone_inputs(tensors)]
        return function(*wrong)

    return Build(run, [])


def losing(function: Function, inputs: Sequence[torch.Tensor]) -> Build:
    """Runs on copies of any dtype, so that no input is ever written."""
    return Build(lambda *tensors: function(*clone_inputs(tensors)), [])


def drops_writes(graph_module: torch.fx.GraphModule) -> None:
    """A pass that loses each write to an input."""
    copy = torch.ops.aten.copy_.default
    for node in graph_module.graph.find_nodes(op="call_function", target=copy):
        node.replace_all_uses_with(node.args[0])
        graph_module.graph.erase_node(node)


# The file of a user with this pass.
DROPS_WRITES = f"import torch\n\n\n{inspect.getsource(drops_writes)}"


def places(found: Check, target: str, oracle: str) -> set[str]:
    report = found.results[target].reports[oracle]
    return {difference.place for difference in report.differences}


def judged_equal(found: Check, *targets: str) -> None:
    """Assert that each oracle on results holds, and that none on graphs is violated."""
    assert found.eager.unjudged is None
    for target in targets:
        for oracle, report in found.results[target].reports.items():
            if oracle in ON_GRAPHS:
                assert report.verdict is not Verdict.VIOLATED, (target, oracle, report)
            else:
                assert report.verdict is Verdict.HOLDS, (target, oracle, report)
