"""Latent failures: reduced by *equivalence*, kept apart from findings, and seen as known bugs."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from aliasproof.campaigns.failure import failure, reduction
from aliasproof.campaigns.failure.failure import Failure
from aliasproof.campaigns.failure.reduction import reduce_failure
from aliasproof.campaigns.run.campaign import Campaign
from aliasproof.campaigns.run.confirmations import Confirmations
from aliasproof.campaigns.run.scheduler import FoundFailure
from aliasproof.campaigns.store.plan import Plan
from aliasproof.campaigns.store.run_folder import RunFolder, read_finding
from aliasproof.campaigns.store.store import Store
from aliasproof.ir.execution import ProgramFunction, as_graph
from aliasproof.ir.program import Program
from aliasproof.judge.attribution import Symptom
from aliasproof.oracles.contract import Contract
from aliasproof.oracles.stage import Stage
from aliasproof.targets.target import Build, Function, Target

LATENT = Symptom("planted", "equivalence", "wrong symbolic value")
TEXT = """
    v0 = aten.neg.default(x1)
    v1 = aten.add.Scalar(x0, 1)
    v2 = aten.bitwise_and.Scalar(v1, {mask})
    aten.copy_.default(x1, v0)
    v3 = aten.add.Tensor(v2, v0)
    return v2, v3, x1
"""


def add_two(function: Function, inputs: Sequence[Tensor]) -> Build:
    """Adds 2 where the program adds 1."""
    assert isinstance(function, ProgramFunction)
    graph = torch.fx.GraphModule({}, as_graph(function.program))
    for node in graph.graph.nodes:
        if node.target is torch.ops.aten.add.Scalar and node.args[1] == 1:
            node.args = (node.args[0], 2)
    graph.recompile()
    return Build(graph, [Stage("planted", graph, functional=False)])


@pytest.fixture
def planted(monkeypatch: pytest.MonkeyPatch) -> Target:
    target = Target("planted", "for this test", Contract(), add_two, "")
    for module in (failure, reduction):
        monkeypatch.setattr(module, "target_named", lambda name: target)
    return target


@pytest.fixture
def written(program: Callable[..., Program]) -> Callable[[int], Program]:
    """The bits of integers under a mask. Under the mask 0, no values show the sum before it."""

    def write(mask: int) -> Program:
        plain = program(TEXT.format(mask=mask), (4,), (4,))
        storages = tuple(replace(each, dtype=torch.int64) for each in plain.storages)
        inputs = tuple(replace(each, dtype=torch.int64) for each in plain.inputs)
        return replace(plain, storages=storages, inputs=inputs)

    return write


def test_a_latent_failure_is_reduced_and_explained(planted, written) -> None:
    drawn = Failure.latent(LATENT, written(0), 7)
    assert drawn == Failure(LATENT, written(0), 7)
    reduced = reduce_failure(drawn)
    assert reduced is not None
    assert [call.op for call in reduced.program.instructions] == [
        "aten.add.Scalar",
        "aten.bitwise_and.Scalar",
    ]
    evidence = reduced.violation.evidence
    assert evidence["eager"] == "bitwise_and[other=0](add[other=1](x0))"
    assert evidence["target"] == "bitwise_and[other=0](add[other=2](x0))"
    assert "latent" in str(evidence["values that show it"])


def test_what_results_show_is_not_latent(planted, written) -> None:
    assert Failure.latent(LATENT, written(3), 7) is None
    assert reduce_failure(Failure(LATENT, written(3), 7)) is None


def test_it_is_stored_without_a_reproducer(planted, written, tmp_path: Path) -> None:
    reduced = reduce_failure(Failure(LATENT, written(0), 7))
    assert reduced is not None
    files, campaign = RunFolder.create(tmp_path / "run"), Campaign(Plan(("aot",)), tmp_path / "run")
    store = Store.open(files.folder)
    confirmations = Confirmations(campaign, store, files)
    for task in ("one", "another"):
        failure = store.keep_failure(task, Failure(LATENT, reduced.original, reduced.seed))
        confirmations.add(FoundFailure(reduced, failure, 0))
    confirmations.stop()
    assert not confirmations.pending
    assert not campaign.findings
    (finding,) = campaign.latent.values()
    assert (finding.latent, finding.count) == (True, 2)
    stored = read_finding(files.suspicion_folder(finding.identifier))
    assert stored == replace(reduced, count=1)
