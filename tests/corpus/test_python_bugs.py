"""Known bugs that Python programs show: each file shows its own, at its layer and not below it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from aliasproof.campaigns.failure.finding import Finding
from aliasproof.campaigns.run import gate
from aliasproof.campaigns.run.languages import is_of_bug, reduced
from aliasproof.corpus.bug_files import python_bugs
from aliasproof.corpus.known_bug import PythonBug
from aliasproof.ir.python_program import PythonProgram, traits
from aliasproof.judge.examination import Examination, examine
from aliasproof.judge.localization import part_of
from aliasproof.judge.python_case import PythonCase, layers
from aliasproof.targets.registry import target as target_named
from tests.campaigns.made_findings import finding_of

BUGS = [
    pytest.param(bug, id=bug.identifier, marks=[pytest.mark.thorough] * (bug.target == "inductor"))
    for bug in python_bugs().values()
]


# Dynamo makes instances of `torch.autograd.Function`, and torch warns of that.
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("bug", BUGS)
def test_a_bug_shows_at_its_target_and_is_explained_by_itself_alone(bug: PythonBug) -> None:
    # The layers below come first, and the first wrong one counts.
    examination = examine(PythonCase(bug.program), target_named(bug.target))
    assert (examination.symptom is not None) == (gate.release() in bug.versions)
    if examination.symptom is None:
        return
    assert examination.symptom.target == layers(bug.target)[-1]
    found = found_in(bug.program, examination)
    if bug.part:
        found = replace(found, wrong_part=part_of(bug.program, examination.symptom))
    assert names_of(found) == [bug.identifier]


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("bug", BUGS)
def test_a_bug_is_recognised_when_its_program_is_reduced(bug: PythonBug) -> None:
    if gate.release() not in bug.versions:
        pytest.skip(f"torch {gate.release()} does not have this bug")
    symptom = examine(PythonCase(bug.program), target_named(bug.target)).symptom
    assert symptom is not None
    finding = reduced(bug.program, symptom)
    assert finding is not None
    assert names_of(finding) == [bug.identifier]


def found_in(program: PythonProgram, examination: Examination) -> Finding[PythonProgram]:
    main, layer = examination.main, examination.at_fault
    assert main is not None
    assert layer is not None
    place, evidence = main.place, dict(main.evidence)
    return finding_of(program, layer.name, main.oracle, main.kind, place, evidence)


def names_of(finding: Finding[PythonProgram]) -> list[str]:
    return [name for name, bug in python_bugs().items() if is_of_bug(finding, bug)]


@pytest.mark.parametrize("bug", python_bugs().values(), ids=lambda bug: bug.identifier)
def test_a_bug_names_its_words_and_has_a_short_program(bug: PythonBug) -> None:
    assert bug.title
    assert not bug.title.endswith(".")
    assert bug.needs
    assert bug.needs <= traits(bug.program)
    assert bug.program.lines <= 20


def test_what_the_reference_inherits_is_a_violation_of_the_layer_below_it() -> None:
    bug = python_bugs()["output_by_output"]
    symptom = examine(PythonCase(bug.program), target_named("reference")).symptom
    assert symptom is not None
    assert symptom.target == "aot-eager"


def test_what_the_reference_does_right_is_no_violation() -> None:
    bug = python_bugs()["gradient_into_written_leaf"]
    assert examine(PythonCase(bug.program), target_named("reference")).main is None
