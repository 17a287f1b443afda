"""`aliasproof stats`: what campaigns draw, as tables and as JSON."""

from __future__ import annotations

import json

import pytest

import aliasproof.campaigns.run.drawn_programs
from aliasproof.generators.features import Features, swarm


def test_stats(call):
    outcome = call("stats", "--programs", "30")
    assert outcome.code == 0
    for heading in ("instructions by group", "dtypes of inputs", "scenarios played", "discarded"):
        assert heading in outcome.out
    assert all(line == line.rstrip() for line in outcome.out.splitlines())


def test_stats_as_json(call):
    found = json.loads(call("stats", "--programs", "30", "--seed", "4", "--json").out)
    assert found["programs"] == 30
    counts = found["instructions"]
    assert counts["drawn"] >= counts["kept"] > 0
    assert found == json.loads(call("stats", "--programs", "30", "--seed", "4", "--json").out)
    assert found != json.loads(call("stats", "--programs", "30", "--seed", "5", "--json").out)


def test_a_blind_spot_is_marked(call, monkeypatch: pytest.MonkeyPatch) -> None:
    def without_sharing(seed: int) -> Features:
        return Features(groups=swarm(seed).groups, scenarios=("swap",), large=False)

    monkeypatch.setattr(aliasproof.campaigns.run.drawn_programs, "swarm", without_sharing)
    lines = call("stats", "--programs", "60").out.splitlines()
    (shared,) = (line for line in lines if line.startswith("shared inputs"))
    assert shared.split()[-3:] == ["0.0", "%", "NEVER"]
    (swaps,) = (line for line in lines if line.startswith("swap"))
    assert "NEVER" not in swaps


def test_the_number_of_programs_must_be_positive(call):
    outcome = call("stats", "--programs", "0")
    assert outcome.code == 2
    assert "--programs 0: give at least 1" in outcome.err


@pytest.mark.filterwarnings("ignore")  # of torch, about odd programs
def test_stats_of_how_dynamo_cuts_python_programs(call):
    found = json.loads(call("stats", "--python", "--programs", "6", "--frames", "3", "--json").out)
    cuts = found["cuts"]
    assert cuts["defined in eager"] + cuts.get("undefined in eager", 0) == 6
    kinds = ("no graph breaks", "graphs break", "no graph", "raises")
    assert sum(cuts.get(kind, 0) for kind in kinds) == cuts["compiled"] <= 3
