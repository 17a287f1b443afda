"""Values without metadata, in graphs in which others have some."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import fx
from torch.fx.experimental.proxy_tensor import make_fx

from aliasproof.checks.check import check
from aliasproof.oracles.invariants import judge_stage
from aliasproof.oracles.stage import Stage
from aliasproof.oracles.stage_run import run_stage
from aliasproof.oracles.verdict import HOLDS

aten = torch.ops.aten


def traced_without_metadata_of(*ops: Any) -> Stage:
    graph = make_fx(lambda x: torch.neg(x + 1), tracing_mode="fake")(torch.arange(4.0))
    for node in graph.graph.nodes:
        if not ops or node.target in ops:
            node.meta.pop("val", None)
    return Stage("planted", graph, functional=True)


def test_a_value_without_metadata_is_seen() -> None:
    run = run_stage(traced_without_metadata_of(aten.add.Tensor), [torch.arange(4.0)])
    (violation,) = judge_stage(run).violations
    assert violation.kind == "metadata is missing"
    assert violation.evidence == {"op": "aten.add.Tensor"}


def test_a_graph_without_any_metadata_misses_none() -> None:
    assert judge_stage(run_stage(traced_without_metadata_of(), [torch.arange(4.0)])) == HOLDS


def adds_a_node_without_metadata(graph: fx.GraphModule) -> None:
    (node,) = graph.graph.find_nodes(op="call_function", target=aten.neg.default)
    with graph.graph.inserting_before(node):
        copied = graph.graph.call_function(aten.clone.default, node.args)
    node.args = (copied,)


@pytest.mark.parametrize("strict", [True, False])
def test_of_a_pass_it_is_a_note_that_counts_where_it_is_asked(strict: bool) -> None:
    outcome = check(torch.neg, torch.arange(4.0), [adds_a_node_without_metadata])
    (result,) = outcome.results.values()
    assert [note.kind for note in result.notes] == ["metadata is missing"]
    assert "may leave a node without metadata" in str(result.notes[0].evidence["cause"])
    assert outcome.exit_status(strict=strict) == int(strict)
