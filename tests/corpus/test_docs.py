"""`docs/findings.md` lists the known bugs."""

from __future__ import annotations

from pathlib import Path

import pytest

from aliasproof.corpus.known_bug import KnownBug
from aliasproof.corpus.known_bugs import KNOWN_BUGS

TEXT = (Path(__file__).parents[2] / "docs" / "findings.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("bug", KNOWN_BUGS.values(), ids=lambda bug: bug.identifier)
def test_a_known_bug_has_a_row(bug: KnownBug) -> None:
    rows = [line for line in TEXT.splitlines() if line.startswith(f"| `{bug.identifier}`: ")]
    told = " ".join(["mend,"] * bool(bug.mended) + ["mark,"] * bool(bug.mark)).strip(",")
    link = bug.link or "none found"
    assert len(rows) == 1
    assert bug.title in rows[0]
    assert link in rows[0]
    assert rows[0].endswith(f"| {', '.join(bug.versions)} | {told} |")
