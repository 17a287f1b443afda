"""Known bugs in Python programs: each file shows its own bug, at its layer and not below it."""

from dataclasses import replace

import pytest

from aliasproof.campaigns.failure.finding import Finding
from aliasproof.campaigns.run.gate import release
from aliasproof.campaigns.run.languages import is_of_bug
from aliasproof.corpus.bug_files import python_bugs
from aliasproof.corpus.known_bug import PythonBug
from aliasproof.ir.python_program import PythonProgram, traits
from aliasproof.judge.attribution import FailsAlike, Symptom
from aliasproof.judge.examination import examine
from aliasproof.judge.localization import part_of
from aliasproof.judge.python_case import PythonCase, layers
from aliasproof.reduction.reducer import Reducer
from aliasproof.reduction.syntax_passes import PYTHON
from aliasproof.targets.registry import target as target_named

BUGS = [
    pytest.param(bug, id=bug.identifier, marks=[pytest.mark.thorough] * (bug.target == "inductor"))
    for bug in python_bugs().values()
]


# Dynamo makes instances of `torch.autograd.Function`, and torch warns of that.
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("bug", BUGS)
def test_a_bug_shows_at_its_target_and_is_explained_by_itself_alone(bug: PythonBug) -> None:
    if release() not in bug.versions:
        assert examine(PythonCase(bug.program), target_named(bug.target)).symptom is None
        return
    found = shown(bug)
    assert [name for name, other in python_bugs().items() if is_of_bug(found, other)] == [
        bug.identifier
    ]


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("bug", BUGS)
def test_no_reduction_leaves_out_what_a_bug_is_recognised_by(bug: PythonBug) -> None:
    if release() not in bug.versions:
        pytest.skip(f"torch {release()} does not have this bug")
    found = shown(bug)
    fails = FailsAlike(Symptom(found.target, found.oracle, found.kind))
    assert fails(bug.program)

    def is_lost(program: PythonProgram) -> bool:
        return not is_of_bug(replace(found, program=program), bug) and fails(program)

    reducer = Reducer(PYTHON, bug.program, is_lost)
    assert reducer.run().source == bug.program.source


def shown(bug: PythonBug) -> Finding[PythonProgram]:
    """The finding of its target. Lower layers are right: the first wrong one is reported."""
    examination = examine(PythonCase(bug.program), target_named(bug.target))
    main, symptom = examination.main, examination.symptom
    assert main is not None
    assert symptom is not None
    assert symptom.target == layers(bug.target)[-1]
    part = part_of(bug.program, symptom) if bug.parts else ""
    return replace(Finding.of(bug.program, symptom.target, main), wrong_part=part)


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
