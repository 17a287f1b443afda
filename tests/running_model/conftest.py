"""Passes and backends to plant, in files as users have them, and a check without a summary."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

import pytest
import torch

from aliasproof.running_model.checking_backend import checking_compiled
from aliasproof.running_model.model_check import ModelCheck

PLANTED = '''
import torch

aten = torch.ops.aten


def _without(module, op):
    """Each call of an operator is replaced by its first argument."""
    for node in list(module.graph.nodes):
        if node.op == "call_function" and node.target is op:
            node.replace_all_uses_with(node.args[0])
            module.graph.erase_node(node)
    return module


def loses_neg(module):
    return _without(module, aten.neg.default)


def loses_silu_backward(module):
    return _without(module, aten.silu_backward.default)


def loses_writes(module):
    """No input is written back."""
    for node in list(module.graph.nodes):
        if node.target is aten.copy_.default:
            module.graph.erase_node(node)
    return module


def raises(module, example_inputs):
    raise ValueError("this backend takes no graph")


def returns_first_twice(module, example_inputs):
    """Two outputs are one tensor."""
    return lambda *args: (first := module(*args)[0], first)


def _with_first(change):
    """A backend that changes its first output."""
    def backend(module, example_inputs):
        def run(*args):
            first, *others = module(*args)
            return (change(first), *others)
        return run
    return backend


detaches = _with_first(torch.Tensor.detach)  # no gradient flows back through it
detaches_as_leaf = _with_first(lambda first: first.detach().requires_grad_())
requires_more = _with_first(torch.Tensor.requires_grad_)  # gradients that bring nothing


def sums_in_parts(module, example_inputs):
    """In another order, so that it rounds otherwise."""
    for node in list(module.graph.nodes):
        if node.target == "sum":
            with module.graph.inserting_before(node):
                pairs = module.graph.call_method("reshape", (node.args[0], -1, 2))
                parts = module.graph.call_method("sum", (pairs, 1))
                total = module.graph.call_method("sum", (parts,))
            node.replace_all_uses_with(total)
            module.graph.erase_node(node)
    module.recompile()
    return module


def with_fault(name):
    """A pass with a fault of the catalogue: of what follows functionalization."""
    from aliasproof.faults.catalogue import FAULTS

    passes = FAULTS[name].make

    def wrong(module):
        with passes.within():
            passes.functional(module)
            module = passes.last(module, conditions=passes.conditions)
        module.recompile()
        return module

    return wrong


one_input_is_written_back = with_fault("one input is written back")
reinplaces_what_is_read_later = with_fault("without no later use")
'''


@pytest.fixture
def planted(tmp_path: Path) -> Callable[[str], str]:
    """The name of a planted pass or backend, as a user gives it."""
    file = tmp_path / "planted.py"
    file.write_text(PLANTED)
    return lambda name: f"{file}:{name}"


@pytest.fixture
def checking(tmp_path: Path) -> Iterator[Callable[..., AbstractContextManager[ModelCheck]]]:
    """`checking_compiled` without a summary, with a folder of the test."""
    torch._dynamo.reset()
    yield partial(checking_compiled, out=tmp_path / "graphs", summary=False)
    torch._dynamo.reset()
