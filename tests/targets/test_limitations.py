"""Documented differences: each program of samples/limitations.md shows one."""

import re
from pathlib import Path
from typing import Any

import pytest

from aliasproof.checks.check import check
from aliasproof.oracles.verdict import Verdict

PAGE = (Path(__file__).parents[2] / "tests" / "samples" / "limitations.md").read_text(
    encoding="utf-8"
)
SECTION = re.compile(r"## ([^\n]+)\n\nTarget (\S+)\. [^`]*```python\n(.*?)```", re.DOTALL)


@pytest.mark.parametrize(
    ("name", "target", "code"),
    [pytest.param(*found, id=f"{found[1]}: {found[0]}") for found in SECTION.findall(PAGE)],
)
def test_the_program_shows_the_limitation(name: str, target: str, code: str) -> None:
    defined: dict[str, Any] = {}
    exec(compile(code, name, "exec"), defined)
    result = check(defined["program"], defined["inputs"](), [target]).results[target]
    assert result.verdict is Verdict.DOCUMENTED
    assert name in {found.limitation.name for found in result.documented}
