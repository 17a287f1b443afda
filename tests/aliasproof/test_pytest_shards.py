"""The outcome of a campaign decides its test: no wrong outcome passes."""

from pathlib import Path
from typing import Any

import pytest

from aliasproof.pytest.shards import KNOWN, ShardOutcome, ShardPlan, ShardTest, shard_tests

BUG = {"identifier": "expand", "title": "A title", "link": "https://x/1", "violations": 3}


def plan(known: str = "name", programs: int = 600, paths: tuple[str, ...] = ()) -> ShardPlan:
    shards = ShardPlan.shards_for(programs, None)
    return ShardPlan(programs, shards, 7, 60.0, None, known, paths)


def finding(known: str | None = None) -> dict[str, Any]:
    said = {"oracle": "values", "kind": "wrong value", "place": "output 0", "count": 2}
    return {**said, "identifier": "aot-values-1", "known": known, "folder": "nowhere"}


def outcome(
    *findings: dict[str, Any], known: str = "name", discarded: int = 0, **more: Any
) -> ShardOutcome:
    campaign = {
        "programs": {"aot": {"programs": 5, "discarded": discarded}},
        "findings": list(findings),
        "known bugs": [BUG] if any(each["known"] for each in findings) else [],
        "mistakes of aliasproof": more.pop("mistakes", []),
    }
    told = {"status": 0, "late": False, "campaign": campaign, "errors": "", **more}
    return ShardOutcome(ShardTest(plan(known), "aot", 1), **told)


def test_a_shard_without_findings_passes() -> None:
    assert outcome().failure() is None


def test_a_finding_fails() -> None:
    failure = outcome(finding()).failure()
    assert failure is not None
    assert "values: wrong value (output 0), aot-values-1, in 2 programs" in failure
    assert "fuzz --target aot --programs 600 --seed 7 --shard 1/3 --workers 1" in failure


@pytest.mark.parametrize("known", KNOWN)
def test_a_known_bug_is_named_and_fails_only_if_asked(known: str) -> None:
    found = outcome(finding(known="expand"), known=known)
    assert (found.failure() is not None) == (known == "fail")
    named = dict(found.properties())["aliasproof_known_bug"]
    assert named == "expand: A title (3 times), https://x/1"
    assert ("--past-known" in found.test.options) == (known == "patch")


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"campaign": None, "status": -9}, "died of signal 9"),
        ({"campaign": None, "status": 2, "errors": "a\naliasproof: no such"}, "exits 2: alias"),
        ({"late": True}, "ended after 60 seconds"),
        ({"mistakes": ["shard 3: KeyError"]}, "report it: shard 3: KeyError"),
        ({"discarded": 5}, "Nothing was tested"),
    ],
)
def test_what_is_no_answer_is_no_pass(more: dict[str, Any], told: str) -> None:
    failure = outcome(**more).failure()
    assert failure is not None
    assert told in failure


def test_programs_are_shared_without_rest() -> None:
    assert ShardPlan.shards_for(1, None) == 1
    assert ShardPlan.shards_for(26, 9) == 2  # each test has programs
    assert ShardPlan.shards_for(1000, None) == 5
    tests = list(shard_tests(["aot", "b.py:f", "aot"], plan(programs=400)))
    names = ["aot[shard-1-of-2]", "b.py:f[shard-1-of-2]", "aot[shard-2-of-2]"]
    assert [test.name for test in tests][:3] == names
    assert len({test.folder_name for test in tests}) == len(tests)
    assert all("/" not in test.folder_name for test in tests)


def test_the_path_of_the_project_is_part_of_the_command(tmp_path: Path) -> None:
    test = ShardTest(plan(paths=(str(tmp_path / "a b"),)), "aot", 1)
    assert test.shown_command().startswith(f"PYTHONPATH='{tmp_path}/a b' ")
    assert test.environment()["PYTHONPATH"].startswith(f"{tmp_path}/a b")
