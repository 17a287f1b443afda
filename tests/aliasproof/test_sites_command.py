"""`aliasproof sites`: where torch may rewrite a program, which fired, and why others did not."""

import json
import re
from collections import Counter

import pytest
import torch

from aliasproof.campaigns.run.fired_sites import sites_json
from aliasproof.campaigns.run.shard import Statistics
from aliasproof.generators.sites.all_sites import all_sites
from aliasproof.reports.console import results
from aliasproof.reports.listings import print_sites


def test_sites_of_a_few_programs(call):
    outcome = call("sites", "--programs", "8", "--target", "aot", "--json")
    assert outcome.code == 0
    assert outcome.err == (
        "note: running 8 programs, then reading the sites of torch: about a minute\n"
    )
    found = json.loads(outcome.out)
    assert found["programs"] == 8
    assert len(found["sites"]) == len(all_sites())
    fired = {site["name"]: site["fired"] for site in found["sites"] if site["fired"]}
    assert fired["wrapper/RuntimeWrapper.post_compile"] <= 8
    assert all(site["reason"] is None for site in found["sites"] if site["fired"])
    patterns = [site for site in found["sites"] if site["kind"] == "pattern"]
    assert {site["reason"] for site in patterns} == {"is Inductor's: the target does without"}


def test_sites_alone_are_listed_with_their_reasons_and_gaps(call):
    outcome = call("sites", "--programs", "0", "--kind", "pattern")
    assert outcome.code == 0
    lines = outcome.out.splitlines()
    count = "206" if torch.__version__.startswith("2.13.") else r"\d+"
    freezing = f"{count} never, runs only with the passes of freezing"
    assert any(re.match(freezing, line) for line in lines)
    assert any("no reason: a gap" in line for line in lines)
    assert f"0 of {sum(site.kind == 'pattern' for site in all_sites())} sites fired" in lines[-1]
    assert all(line == line.rstrip() for line in lines)
    every = call("sites", "--programs", "0", "--kind", "pattern", "--all").out
    assert len(every.splitlines()) > len(lines)


def test_a_kind_that_does_not_exist_is_refused(call):
    refusal = call("sites", "--programs", "0", "--kind", "patern").refusal
    assert "'patern'; did you mean 'pattern'?" in refusal


def test_a_run_shows_what_its_programs_fired(call):
    ran = call("fuzz", "--target", "aot", "--programs", "3", "--seed", "15", "--run", "mine")
    assert ran.code == 0, ran.err
    found = call("sites", "--run", "mine", "--json").json()
    assert (found["target"], found["seed"], found["programs"]) == ("aot", 15, 3)
    fired = sum(site["fired"] > 0 for site in found["sites"])
    assert fired > 0
    told = f"{fired} sites of the compiler fired, 0 first in the last quarter"
    assert told in ran.out
    assert told in call("watch", "mine").out
    of_campaign = call(
        "sites", "--programs", "3", "--seed", "15", "--target", "aot", "--json"
    ).json()
    assert found["sites"] == of_campaign["sites"]
    assert "no target 'identity'" in call("sites", "--run", "mine", "--target", "identity").refusal
    assert call("sites", "--run", "elsewhere").code == 2


def test_a_site_that_torch_no_longer_has_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    counted = Statistics(programs=2, fired=Counter({"joint_graph.patterns/gone(aten.mm)": 2}))
    print_sites(results(), sites_json(counted, "inductor-fx", 1))
    assert "2 joint_graph.patterns/gone(aten.mm)" in capsys.readouterr().out
