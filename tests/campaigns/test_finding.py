"""Findings survive the disk, and damaged ones are refused by name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from campaigns.finding import Finding, read_finding, read_findings, write_finding
from campaigns.shard import Shard, reduce_failure, run_shard
from programs.errors import UserError


@pytest.fixture(scope="module")
def finding() -> Finding:
    reduced = reduce_failure(run_shard(Shard(3, "functionalize")).failures[0])
    assert reduced is not None
    return Finding.of(reduced, 3)


def test_round_trip(finding: Finding, tmp_path: Path) -> None:
    write_finding(tmp_path / "findings" / finding.identifier, finding)
    assert read_finding(tmp_path / "findings" / finding.identifier) == finding
    assert read_findings(tmp_path) == [finding]


@pytest.mark.parametrize("name", ["program.json", "finding.json"])
def test_a_missing_file_is_named(finding: Finding, tmp_path: Path, name: str) -> None:
    write_finding(tmp_path, finding)
    (tmp_path / name).unlink()
    with pytest.raises(UserError, match=name):
        read_finding(tmp_path)


@pytest.mark.parametrize("damage", ["{", "[]", "{}", '{"version": 99}', "null"])
def test_a_damaged_file_is_named(finding: Finding, tmp_path: Path, damage: str) -> None:
    write_finding(tmp_path, finding)
    (tmp_path / "finding.json").write_text(damage)
    with pytest.raises(UserError, match=r"finding\.json"):
        read_finding(tmp_path)


def test_a_program_with_an_unknown_op_is_refused(finding: Finding, tmp_path: Path) -> None:
    write_finding(tmp_path, finding)
    data = json.loads((tmp_path / "program.json").read_text())
    data["instructions"][0]["op"] = "os.system.default"
    (tmp_path / "program.json").write_text(json.dumps(data))
    with pytest.raises(UserError, match=r"instructions\[0\]"):
        read_finding(tmp_path)
