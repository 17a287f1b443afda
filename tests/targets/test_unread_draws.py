"""Unused random numbers are still drawn, so that later draws equal those of eager.

A compiler removes such draws, unless a setting prevents it; this is intended.
"""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from aliasproof.campaigns.publish.python_issue import confirm_python
from aliasproof.campaigns.publish.reproducer import render
from aliasproof.checks.check import check
from aliasproof.ir.python_program import PythonProgram
from aliasproof.judge.examination import examine
from aliasproof.judge.python_case import PythonCase
from aliasproof.judge.trial import Case
from aliasproof.oracles.verdict import Violation
from aliasproof.targets.registry import target as target_named
from tests.campaigns.made_findings import finding_of
from tests.scripts_here import confirm_here
from tests.short_programs import program_of, view

LATER = """
v0 = aten.uniform_.default(x0)
v1 = aten.rand_like.default(x1)
v2 = aten.randint_like.default(x1, 100)
return (v2,)
"""
PYTHON = PythonProgram("""import torch


def program(x):
    torch.rand(3)
    return torch.randint_like(x, 100)


def calls(program):
    out = program(torch.ones(5))
    return locals()
""")


def draws_later(x: Tensor) -> Tensor:
    torch.rand(3)
    return torch.randint_like(x, 100)


@pytest.mark.parametrize("target", ["aot-eager", "aot"])
def test_a_program_holds(target: str) -> None:
    case = Case.of(program_of(LATER, view(2), view(3)))
    assert examine(case, target_named(target)).violations == []


def test_a_function_holds_also_as_called() -> None:
    found = check(draws_later, (torch.ones(5),), ["aot-eager"], grad=True)
    assert not any(result.violations for result in found.results.values())
    assert check(draws_later, (torch.ones(5),), ["aot-eager"]).exit_status() == 0


def test_a_python_program_holds_and_so_does_its_script() -> None:
    assert examine(PythonCase(PYTHON), target_named("aot-eager")).violations == []
    finding = finding_of(PYTHON, "aot-eager", "values", "wrong value", "out")
    assert not confirm_python(finding).shown
    without = PythonProgram(PYTHON.source.replace("torch.rand(3)", "torch.ones(3)"))
    assert confirm_python(replace(finding, program=without)).ending == "exits 0"


def test_the_script_of_a_program_draws_as_eager(tmp_path: Path) -> None:
    path, target = tmp_path / "reproducer.py", target_named("aot-eager")
    violation = Violation("values", "wrong value", "output 0")
    path.write_text(render(program_of(LATER, view(2), view(3)), target, violation, exact=True))
    confirmation = confirm_here(path)
    assert (confirmation.shown, confirmation.ending) == (False, "exits 0"), confirmation.output
