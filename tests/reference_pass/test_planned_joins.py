"""Joins of memory planning: what is computed in a buffer is all that eager has there."""

from __future__ import annotations

import pytest
import torch

from aliasproof.judge.trial import Case, run_trial
from aliasproof.reference_pass.pipeline import metadata_is_true, pipeline
from aliasproof.targets.registry import TARGETS

aten = torch.ops.aten


@pytest.mark.parametrize("start", [0, 2])
def test_a_scatter_copies_the_whole_storage_of_its_base(start):
    """A clone of the base would have a smaller storage, or another offset."""

    def program(x, y):
        scattered = aten.select_scatter(x, y + y, 0, 0)
        return aten.as_strided_scatter(scattered, y, [], [], 3)

    inputs = (torch.arange(8.0)[start : start + 2], torch.tensor(11.0))
    trial = run_trial(Case.of_function(program, inputs), TARGETS["reference-planned"])
    assert trial.eager.error is None
    assert trial.judgement.violations == []


def test_what_is_written_to_a_moved_part_is_noted_there():
    """Two stacks are in one buffer, so the part that the sum was written to has moved."""

    def program(x):
        pair = torch.stack([x + 1, x])
        total = pair[0] + (x + 1)
        total.add_(1)
        return torch.ops.aliasproof.double(torch.stack([x + 1, total]))

    assert metadata_is_true(pipeline(program, torch.ones(2), planned=True)) is None
