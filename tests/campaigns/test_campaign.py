"""What `run.json` says of a campaign."""

from pathlib import Path
from typing import Any

import pytest

from aliasproof.campaigns.run.campaign import Campaign, Parts
from aliasproof.campaigns.run.shard import Statistics
from aliasproof.campaigns.store.plan import Plan
from aliasproof.corpus.bug_files import known_bugs
from aliasproof.judge.trial import Spent


def test_known_bugs_are_listed_the_most_frequent_first(tmp_path: Path) -> None:
    campaign = Campaign(Plan(("aot",)), tmp_path)
    campaign.known.update({"as-strided-of-new-base": 1, "lost-strides": 3})
    listed: Any = campaign.to_json()["known bugs"]
    first, second = listed
    assert first == {
        "identifier": "lost-strides",
        "title": known_bugs()["lost-strides"].title,
        "link": "https://github.com/pytorch/pytorch/issues/133512",
        "attributed": "by patching it",
        "violations": 3,
    }
    assert (second["violations"], second["attributed"]) == (1, "by its signature")


def test_the_seconds_of_each_target_are_listed_by_part(tmp_path: Path) -> None:
    campaign = Campaign(Plan(("aot",)), tmp_path, {"aot": Statistics(spent=Spent(target=2.04))})
    rest = dict.fromkeys(("generation", "eager", "oracles", "graphs"), 0.0)
    assert campaign.to_json()["seconds by target"] == {"aot": rest | {"target": 2.0}}


@pytest.mark.parametrize(
    ("parts", "share"),
    [
        (Parts(), 0.0),
        (Parts(searching=7.0, reducing=3.0), 0.3),
        (Parts(searching=2.0, recognizing=1.0, reducing=1.0, confirming=1.0, compiling=1.0), 0.5),
    ],
)
def test_the_share_after_the_search(parts: Parts, share: float) -> None:
    assert parts.after_search == pytest.approx(share)
