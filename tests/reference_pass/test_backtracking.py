"""Backtracking of reinplacing: decisions that are taken back, and what a graph allocates."""

from __future__ import annotations

import pytest
import torch
from torch import fx

from reference_pass.backtracking import MOST_RETRIES, Footprint, Walk, best_walk, footprint
from reference_pass.candidates import How
from reference_pass.metadata import update_metadata

aten = torch.ops.aten


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


def test_backtracking_ends():
    walked = []

    def walk(graph, kept):
        walked.append(kept)
        return Walk(graph, tuple(f"n{number}" for number in range(100)), ())

    module = chain(aten.neg.default)
    update_metadata(module, torch.ones(4))
    assert best_walk(module.graph, walk).graph is module.graph
    assert len(walked) == len(set(walked)) == MOST_RETRIES + 1
