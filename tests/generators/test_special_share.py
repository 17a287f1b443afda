"""The special fill in what a seed draws: a share of the programs, and nothing else changes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from aliasproof.generators.features import swarm
from aliasproof.generators.strategies import sample

# Of torch, about odd programs. As errors they would decide what is drawn: some come once a process.
pytestmark = pytest.mark.filterwarnings("ignore")


def test_about_a_quarter_of_the_programs_is_special() -> None:
    drawn = [program for seed in range(40) for program in sample(swarm(seed), seed, 10)]
    assert 0.15 < sum(program.fill == "special" for program in drawn) / len(drawn) < 0.3


def test_the_fill_changes_nothing_else() -> None:
    for seed in range(5):
        plain = list(sample(swarm(seed), seed, 10, special_share=0))
        mixed = list(sample(swarm(seed), seed, 10))
        special = list(sample(swarm(seed), seed, 10, special_share=1))
        assert plain == [replace(program, fill="plain") for program in mixed]
        assert plain == [replace(program, fill="plain") for program in special]
        # Where eager refuses special values, as indices for example, the program stays plain.
        assert sum(program.fill == "special" for program in special) > 5
