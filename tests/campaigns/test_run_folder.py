"""Findings are read as they were written, and damaged ones are refused by name."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from aliasproof.campaigns.failure.finding import Finding
from aliasproof.campaigns.failure.reduction import reduce_failure
from aliasproof.campaigns.run.shard import run_shard
from aliasproof.campaigns.store.plan import Shard
from aliasproof.campaigns.store.run_folder import (
    RunFolder,
    read_finding,
    read_findings,
    write_finding,
)
from aliasproof.ir.errors import UserError


@pytest.fixture(scope="module")
def finding() -> Finding:
    failure: Any = run_shard(Shard(3, "functionalize")).failures[0]
    reduced = reduce_failure(failure)
    assert reduced is not None
    return reduced


def test_all_that_is_known_of_a_finding_comes_back(finding: Finding, tmp_path: Path) -> None:
    told = replace(
        finding,
        wrong_part="post_grad: remove_noop_ops",
        cause="the inverse of expand subtracts",
        known="expand-inverse",
        latent=True,
        user_level={"aot_eager": "shows", "inductor": "does not show"},
    )
    for written in (finding, told):
        write_finding(tmp_path / "findings" / finding.identifier, written)
        assert read_finding(tmp_path / "findings" / finding.identifier) == written
        assert read_findings(tmp_path) == [written]


def test_a_confirmed_finding_moves_with_its_reproducer(finding: Finding, tmp_path: Path) -> None:
    files = RunFolder.create(tmp_path / "run")
    files.prepare()
    files.write_unconfirmed(finding, "pass\n")
    assert (files.unconfirmed_folder(finding.identifier) / "reproducer.py").is_file()
    assert read_findings(files.folder) == []
    assert files.confirm(finding.identifier)
    files.remove_leftovers()
    assert read_findings(files.folder) == [finding]
    assert (files.finding_folder(finding.identifier) / "reproducer.py").is_file()
    assert not (files.folder / "unconfirmed").exists()
    files.write_unconfirmed(finding, "pass\n")  # as by a campaign that was killed at this point
    assert files.confirm(finding.identifier)
    assert not files.unconfirmed_folder(finding.identifier).exists()


def test_suspicions_replace_those_of_an_earlier_end_and_latent_findings_stay(finding, tmp_path):
    files = RunFolder.create(tmp_path / "run")
    earlier, later, latent = (replace(finding, identifier=it) for it in ("aot-1", "aot-2", "x"))
    files.write_suspicion(latent)
    files.write_suspicions([earlier], {"x"})
    files.write_suspicions([later], {"x"})
    assert {path.name for path in files.folder.glob("suspicions/*")} == {"aot-2", "x"}
    assert read_finding(files.suspicion_folder("aot-2")) == later


def test_a_run_folder_with_something_in_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("")
    with pytest.raises(UserError, match="is not empty"):
        RunFolder.create(tmp_path)


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
