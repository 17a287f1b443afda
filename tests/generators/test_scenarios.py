"""Every scenario is drawn where it is enabled, and each known cause has a family."""

import re
from collections import Counter

import pytest

from aliasproof.corpus.bug_files import known_bugs
from aliasproof.generators.features import Features
from aliasproof.generators.scenario_steps import Scenario
from aliasproof.generators.scenarios import SCENARIOS
from aliasproof.generators.scene import Counts
from aliasproof.generators.strategies import sample

PLAYED = [scenario for scenario in SCENARIOS if scenario.play is not None]


def test_names_are_unique() -> None:
    assert max(Counter(scenario.name for scenario in SCENARIOS).values()) == 1


@pytest.mark.parametrize("scenario", PLAYED, ids=lambda scenario: scenario.name)
def test_every_scenario_is_played_if_it_is_switched_on_and_only_then(scenario: Scenario) -> None:
    counts = Counts()
    list(sample(Features(scenarios=(scenario.name,), instructions=7), 1, 60, counts))
    assert set(counts.scenarios) == {scenario.name}
    assert counts.scenarios[scenario.name] >= 10


def test_no_scenario_is_played_unless_it_is_switched_on() -> None:
    counts = Counts()
    list(sample(Features(scenarios=()), 1, 20, counts))
    assert not counts.scenarios


def test_a_family_that_is_a_known_bug_is_in_the_corpus() -> None:
    names = {
        name
        for scenario in SCENARIOS
        for name in re.split(r"[,;] ", scenario.family)
        if re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)+", name)
    }
    assert len(names) >= 30
    assert names <= set(known_bugs())
