"""Targets *export* and *aot-inductor*: what the documentation bans is documented, and no more."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from aliasproof.corpus.bug_files import known_bugs
from aliasproof.ir.values import clone_inputs
from aliasproof.judge.examination import Examination, examine
from aliasproof.judge.trial import Case
from aliasproof.oracles.contract import Promise
from aliasproof.oracles.verdict import Verdict
from aliasproof.targets.registry import target
from aliasproof.targets.target import Build, Function, Target
from tests.short_programs import known_bug
from tests.targets.conftest import trial_of, vector

EXPORT, PACKAGE = target("export"), target("aot-inductor")


def examined(function: Function, inputs: Sequence[Tensor], tested: Target = EXPORT) -> Examination:
    return examine(Case.of_function(function, inputs), tested, attribute=False)


def write_and_read(x: Tensor, y: Tensor) -> Tensor:
    x.add_(1)
    return y + 1


COPIED = f"does not promise '{Promise.KEEPS_ALIASES.value}'"


@pytest.mark.parametrize(
    ("tested", "function", "inputs", "name"),
    [
        pytest.param(
            EXPORT,
            write_and_read,
            [(x := vector(6))[:4], x[2:]],
            "requires 'mutated inputs overlap no other input'",
            id="overlapping inputs, one written",
        ),
        pytest.param(
            EXPORT,
            lambda x: (x.t_(), x + 1)[1],
            [vector(6).view(2, 3)],
            "requires 'metadata of inputs stays'",
            id="metadata of an input",
        ),
        *(
            pytest.param(
                tested,
                lambda x: x.add_(1)[1:],
                [vector(6)],
                COPIED,
                id=f"a view of a mutated input, {tested.name}",
            )
            for tested in (EXPORT, PACKAGE)
        ),
    ],
)
def test_what_the_documentation_bans_is_documented(tested, function, inputs, name):
    found = examined(function, inputs, tested)
    assert found.violations == []
    assert found.documented[0].limitation.name == name


def view_of_an_input(x: Tensor) -> object:
    return x[1:], (y := x + 1)[:2], y


@pytest.mark.parametrize(
    ("tested", "function", "inputs"),
    [
        pytest.param(EXPORT, write_and_read, [(y := vector(6))[:2], y[2:]], id="side by side"),
        pytest.param(
            EXPORT, torch.add, [(z := vector(6))[:4], z[2:]], id="overlapping, read alone"
        ),
        pytest.param(EXPORT, lambda x: (x + 1).t_(), [vector(6).view(2, 3)], id="other metadata"),
        pytest.param(EXPORT, view_of_an_input, [vector(6)], id="a view of an input, export"),
        pytest.param(PACKAGE, view_of_an_input, [vector(6)], id="a view of an input, aot-inductor"),
    ],
)
def test_their_neighbours_are_right(tested, function, inputs) -> None:
    found = examined(function, inputs, tested)
    reports = trial_of(found).judgement.reports
    assert {report.verdict for report in reports.values()} == {Verdict.HOLDS}
    assert found.violations == []


def test_a_lost_view_of_an_unchanged_input_is_seen() -> None:
    def build(function: Function, inputs: Sequence[Tensor]) -> Build:
        right = EXPORT.build(function, inputs).function
        return Build(lambda *args: clone_inputs([right(*args)])[0], [], "planted")

    planted = replace(EXPORT, build=build, layer=None)
    case = Case.of_function(lambda x: x[1:], [vector(6)])
    (found,) = examine(case, planted).violations
    assert found.kind == "lost alias between input and output"


def test_captured_tensors_are_inputs_of_the_stages() -> None:
    weight = torch.ones(6)
    found = examined(lambda x: x.add_(weight), [vector(6)])
    assert found.reports["clobbers"].verdict is Verdict.HOLDS
    assert found.violations == []


@known_bug
def test_what_inductor_does_wrong_without_a_package_is_its_fault() -> None:
    found = examine(Case.of(known_bugs()["softmax-strides"].program), PACKAGE)
    assert found.symptom is not None
    assert (found.symptom.target, found.symptom.kind) == ("inductor", "wrong stride")
