"""Backtracking of reinplacing: decisions that are taken back, and what a graph allocates."""

from __future__ import annotations

import pytest
import torch
from torch import fx

from aliasproof.reference_pass.backend.compiled import Compiled
from aliasproof.reference_pass.backend.observed_run import Observed
from aliasproof.reference_pass.backtracking import (
    MOST_RETRIES,
    Footprint,
    Walk,
    best_walk,
    footprint,
)
from aliasproof.reference_pass.candidates import How
from aliasproof.reference_pass.capture.function_trace import capture
from aliasproof.reference_pass.pipeline import pipeline, update_metadata

aten = torch.ops.aten
NEG = aten._foreach_neg_.default


def test_a_small_result_is_not_written_into_a_large_base_that_would_have_to_be_copied_for_it(
    reinplaced,
):
    def program(x):
        base = x + 2
        row = -base[0]  # could be written into base
        changed = torch.select_scatter(base, row, 0, 0)
        return row, torch.slice_scatter(
            base, changed[:2] + 1, 0, 0, 2
        )  # then this would be another

    done = reinplaced(program, torch.ones(3, 4), growth=3)
    assert done.refused("neg") == "backtracking"
    assert (done.how["add_1"], done.how["slice_scatter"]) == (How.IN_PLACE, How.REDUNDANT)


def test_a_decision_that_costs_nothing_later_stands(reinplaced):
    def program(x):
        base = x + 2
        return -base[1], base[2:] * 2

    assert reinplaced(program, torch.ones(3, 4), growth=3).how["neg"] is How.IN_PLACE


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


def test_backtracking_ends():
    walked = []

    def walk(graph, kept):
        walked.append(kept)
        return Walk(graph, tuple(f"n{number}" for number in range(100)), ())

    module = chain(aten.neg.default)
    update_metadata(module, torch.ones(4))
    assert best_walk(module.graph, walk).graph is module.graph
    assert len(walked) == len(set(walked)) == MOST_RETRIES + 1
