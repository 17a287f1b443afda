"""The benchmark of rediscovery counts causes: known bugs of torch by their names."""

import pytest

from aliasproof.generators.features import Features
from benchmarks.rediscovery import Batch, run_batch


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_batch_names_the_causes_that_its_programs_show() -> None:
    features = Features(groups=("view",), scenarios=("self-overlap",), instructions=3)
    found = run_batch(Batch("aot", features, 1, 16))
    assert found.programs == 16
    assert found.seconds > 0
    assert found.violations == sum(found.causes.values())
    assert "expand-inverse" in found.causes


def test_a_right_target_shows_no_cause() -> None:
    found = run_batch(Batch("identity", Features(scenarios=("swap",), instructions=2), 1, 6))
    assert (found.programs, found.violations, found.causes) == (6, 0, {})
