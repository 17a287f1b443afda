"""The benchmarks of scenarios count causes: known bugs of torch by their names."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest

from aliasproof.generators.features import Features
from aliasproof.generators.scene import Counts
from aliasproof.generators.strategies import sample
from benchmarks import ablation, scenario_yield
from benchmarks.drawn_causes import Batch, run_batch
from benchmarks.tables import plain


def test_only_programs_that_play_the_scenario_count() -> None:
    batch = Batch("identity", Features(scenarios=("swap",), instructions=2), 1, 6, "swap")
    programs = batch.programs()
    assert len(programs) == 6
    counts = Counts()
    drawn = list(sample(batch.features, 1, 60, counts))
    assert counts.scenarios["swap"] < len(drawn), "some do not play it"
    assert all(any("copy_" in each.op for each in program.instructions) for program in programs)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_batch_names_the_causes_that_its_programs_show() -> None:
    features = Features(groups=("view",), scenarios=("self-overlap",), instructions=3)
    found = run_batch(Batch("aot", features, 1, 8, "self-overlap"))
    assert found.programs == 8
    assert found.seconds > 0
    assert found.violations == sum(found.causes.values())
    assert "expand-inverse" in found.causes
    assert found.per_thousand == 125 * len(found.causes)


def test_a_right_target_has_no_yield_and_the_figures_are_json() -> None:
    names = (scenario_yield.NONE, "swap")
    figures = scenario_yield.measure(0.0, ("identity",), names, programs=2)
    assert json.loads(json.dumps(asdict(figures)))["seconds"] == 0.0
    [table] = figures.tables()
    assert [row[:4] for row in table.rows] == [
        ("(no scenario)", "2", "0", "0"),
        ("swap", "2", "0", "0"),
    ]


def test_the_ablation_gives_each_configuration_the_same_time() -> None:
    figures = ablation.measure(0.05, ("identity",), programs=2)
    assert [each.configuration for each in figures.searches] == [
        "uniform",
        "scenarios",
        "scenarios and swarm",
        "rules",
    ]
    assert all(each.found.seconds >= 0.05 for each in figures.searches)
    assert "identity, uniform: none" in plain(figures.tables()[0])
