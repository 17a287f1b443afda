"""What a graph allocates, and that the passes let no graph hold more than the program does."""

from __future__ import annotations

import pytest
import torch
from torch import fx

from aliasproof.reference_pass.backend.compiled import Compiled
from aliasproof.reference_pass.backend.observed_run import Observed
from aliasproof.reference_pass.capture.footprint import Footprint, footprint
from aliasproof.reference_pass.capture.function_trace import capture
from aliasproof.reference_pass.pipeline import pipeline, update_metadata

aten = torch.ops.aten
NEG = aten._foreach_neg_.default


def chain(*ops):
    """A graph in which each op is applied to the result of the one before; the last is returned."""
    graph = fx.Graph()
    value = graph.placeholder("x")
    for op in ops:
        value = graph.call_function(op, (value,))
    graph.output(value)
    return fx.GraphModule(torch.nn.Module(), graph)


@pytest.mark.parametrize(
    ("ops", "size", "expected"),
    [
        ([aten.neg.default] * 5, 4, Footprint(5, 32)),
        ([aten.neg.default, aten.neg_.default, aten.t.default], 4, Footprint(1, 16)),
        ([aten.neg_.default], 4, Footprint(0, 0)),
        ([aten.neg.default], 0, Footprint(0, 0)),
    ],
)
def test_a_footprint_counts_calls_and_bytes(ops, size, expected):
    module = chain(*ops)
    update_metadata(module, torch.ones(size))
    assert footprint(module.graph) == expected


def eliminates(a):
    a = a.clone()
    for row in range(1, 4):
        a[row] -= a[row - 1] * (a[row, row - 1] / a[row - 1, row - 1])
    return a


def test_a_copy_that_is_stored_into_stays_so_that_no_store_copies_its_original():
    matrix = torch.randn(6, 6)
    captured = capture(eliminates, [matrix])
    update_metadata(captured, matrix)
    allowed, compiled = footprint(captured.graph), pipeline(eliminates, matrix)
    found = footprint(compiled.graph)
    assert found.calls <= allowed.calls
    assert found.peak <= allowed.peak
    assert torch.equal(compiled(matrix), eliminates(matrix))


def writes_between(x, y):
    torch._foreach_neg_([x, y])


def test_the_backend_holds_no_more_than_the_captured_graph():
    memory = torch.arange(8.0)
    inputs = memory[::2], memory[1::2]
    assert footprint(pipeline(writes_between, *inputs).graph).peak == 2 * 16
    graph = fx.Graph()
    x, y = graph.placeholder("x"), graph.placeholder("y")
    graph.output(graph.call_function(writes_between, (x, y)))
    compiled = Compiled(fx.GraphModule({}, graph), inputs)
    compiled(*inputs)
    assert memory.tolist() == (-torch.arange(8.0)).tolist()
    (found,) = compiled.graphs.values()
    assert isinstance(found, Observed)
    assert isinstance(found.compiled, fx.GraphModule)
    assert found.compiled.graph.find_nodes(op="call_function", target=NEG)
