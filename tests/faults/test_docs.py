"""docs/faults.md lists the catalogue as it is."""

from pathlib import Path

import pytest

from aliasproof.faults.catalogue import FAULTS

TEXT = (Path(__file__).parents[2] / "docs" / "faults.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_each_fault_is_described(fault) -> None:
    assert f"| {fault.name} | {fault.summary} | {fault.source} |" in TEXT


def test_no_other_is() -> None:
    assert sum(line.startswith("| ") for line in TEXT.splitlines()) == len(FAULTS) + TEXT.count(
        "| fault |"
    )
