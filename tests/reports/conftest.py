"""A campaign in progress, with a silent finding and one that raises."""

from dataclasses import replace
from pathlib import Path

import pytest

from aliasproof.campaigns.failure.finding import Finding
from aliasproof.campaigns.run.campaign import Campaign
from aliasproof.campaigns.run.shard import Statistics
from aliasproof.campaigns.store.plan import Plan
from tests.campaigns.made_findings import finding_of
from tests.short_programs import program_of, view


@pytest.fixture
def silent_finding() -> Finding:
    return finding_of(
        program_of("aten.add_.Scalar(x0, 1)\nreturn (x0,)", view(2)),
        *("aot-epilogue", "metadata", "wrong value", "output 0, output 1"),
        identifier="aot-epilogue-metadata-12345678",
        seed=3,
        count=2,
    )


@pytest.fixture
def raising_finding(silent_finding: Finding) -> Finding:
    return replace(
        silent_finding,
        identifier="aot-errors-87654321",
        target="aot",
        oracle="errors",
        kind="raises RuntimeError: " + "so long " * 30,
    )


@pytest.fixture
def campaign(silent_finding: Finding, raising_finding: Finding) -> Campaign:
    findings = (raising_finding, silent_finding)
    return Campaign(
        plan=Plan(("aot", "aot-epilogue"), seed=3, seconds=90.0, workers=2),
        folder=Path("runs/20260101-120000"),
        statistics={"aot": Statistics(100, 10, 1, 5), "aot-epilogue": Statistics(75, 5, 0, 3)},
        findings={finding.identifier: finding for finding in findings},
        unconfirmed={"aot-values-1": "did not"},
        reducing=2,
        confirming=1,
        repeats=4,
        deaths=1,
        elapsed=45.0,
    )
