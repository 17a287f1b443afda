"""What a check shows of a second call, and buffers of a module where inputs require gradients."""

from __future__ import annotations

import functools

import torch

from aliasproof.checks.check import check
from aliasproof.oracles.verdict import Verdict
from aliasproof.targets import identity, second_calls
from aliasproof.targets.registry import TARGETS
from aliasproof.targets.target import Build, Target


def without_alias(function, inputs):
    """A compiler without a guard: it runs on copies if the first call shares nothing."""
    first = []

    def run(*tensors):
        first.append(tensors[0].untyped_storage()._cdata == tensors[1].untyped_storage()._cdata)
        copies = tensors if first[0] else [x.clone() for x in tensors]
        output = function(*copies)
        for x, copy in zip(tensors, copies, strict=True):
            x.copy_(copy)
        return output

    return Build(run, [])


def test_a_check_shows_the_inputs_of_the_first_call(monkeypatch):
    change = second_calls.CHANGES["second-call"]
    build = functools.partial(change.build, without_alias)
    planted = Target("wrong", "", identity.TARGET.contract, build, "", conditions=change.conditions)
    monkeypatch.setitem(TARGETS, "wrong", planted)
    base = torch.arange(3.0)
    found = check(lambda x, y: (y.add_(1), x + 0)[1], (base, base.view(3)), ["wrong"])
    assert found.results["wrong"].violated
    rows = {row[0]: row[1:] for row in found.results["wrong"].rows}
    first = str(torch.arange(3.0))
    assert rows["input 'x' in the first call"] == (first, first)
    assert rows["in one storage in the first call"] == ("none", "none")
    assert "input 'x' afterwards" in rows


def test_buffers_of_a_module_do_not_require_gradients():
    module = torch.nn.BatchNorm1d(3)  # eager writes its buffers, and no autograd may see that
    found = check(module, torch.randn(4, 3), ["aot:grad", "identity:grad"])
    for name in ("aot:grad", "identity:grad"):
        assert found.results[name].verdict is Verdict.HOLDS
        eager = found.results[name].eager
        assert eager is not None
        # The input, the weight and the bias have gradients; two buffers do not.
        assert len(eager.outputs) == 4
