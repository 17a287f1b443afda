"""Functions as people write them: `check` calls none of them wrong, and flags each wrong pass."""

from __future__ import annotations

import importlib.util

import pytest
import torch

from aliasproof.programs.errors import UserError
from aliasproof.targets.names import CHECKED
from benchmarks.people import people_functions
from benchmarks.people.people_check import (
    GivenAnswer,
    PlantedAnswer,
    PlantedAnswers,
    begin,
    given_answers,
    under_right_passes,
    under_wrong_passes,
)
from benchmarks.people.people_functions import names
from benchmarks.people.people_table import PeopleTable, measure
from benchmarks.people.planted_kinds import KINDS
from benchmarks.people.planted_passes import RIGHT_PASSES

pytestmark = pytest.mark.filterwarnings("ignore")  # of torch, about odd programs

SAMPLE = ("caches.sliding_window", "optimizers.lion_step", "modules.conv_block")
# Why `check` is wrong about a function, or does not judge it, as it is.
NOT_YET = {
    "autograd.gradient_penalty": "torch.compile refuses double backward",
    "autograd.physics_residual": "torch.compile refuses double backward",
    "pytrees.leapfrog": "tensors of a named tuple are not those of the compiled function",
    "modules.low_rank_linear": "a parameter is replaced by a tensor that is none",
    "optimizers.sgd_with_schedule": "a parameter is replaced by a tensor that is none",
    "language_models.relative_bias": "what is undefined in eager is not used afterwards",
    "transformers.t5_loss": "what is undefined in eager is not used afterwards",
    "transformers.bert_with_padding": "hooks of a copied module return nothing",
}
# The kinds whose mistakes are found or missed by chance of the values: nobody knows which.
OPEN = {
    "language_models.filter_logits": "an element is compared with itself, and both round",
    "transforms.forward_kinematics": "a repeated write is flagged, and AOTAutograd is named",
}


@pytest.fixture(autouse=True)
def prepared():
    threads = torch.get_num_threads()
    begin()
    yield
    torch.set_num_threads(threads)
    torch._dynamo.reset()


def marked(reasons: dict[str, str]) -> list:
    """All functions; those with a reason may fail, since what they show is another's work."""
    return [
        pytest.param(name, marks=pytest.mark.xfail(reason=reasons[name], strict=False))
        if name in reasons
        else name
        for name in names()
    ]


def kinds_for(name: str, count: int = 3) -> list[str]:
    """Some kinds, others for the next function, so that all functions together have all."""
    first = names().index(name) * count
    kinds = list(KINDS)
    return [kinds[(first + number) % len(kinds)] for number in range(count)]


def not_flagged(planted: PlantedAnswers) -> list[PlantedAnswer]:
    return [answer for answer in planted.answers if not (answer.flagged and answer.named)]


def test_there_are_many_functions_and_kinds_of_wrong_passes():
    groups = {name.partition(".")[0] for name in names()}
    assert len([name for name in names() if not name.startswith("transformers.")]) >= 60
    assert len(KINDS) >= 10
    assert groups >= {"autograd", "caches", "control_flow", "custom_operators", "modules"}
    assert groups >= {"optimizers", "precision", "pytrees", "random", "transforms"}


def test_models_of_transformers_are_left_out_without_it(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert not any(name.startswith("transformers.") for name in names())
    with pytest.raises(UserError, match=r"no function 'caches\.nothing'"):
        measure(["caches.nothing"])


def test_a_world_is_fresh():
    one, other = people_functions.world(SAMPLE[0]), people_functions.world(SAMPLE[0])
    assert torch.equal(one.inputs[0], other.inputs[0])
    one.function(*one.inputs)
    assert not torch.equal(one.inputs[0], other.inputs[0])
    assert one.function is not other.function


def test_the_tables_show_what_is_wrong_and_what_is_missed():
    given = [GivenAnswer("a.f", "aot-eager", "WRONG", ["values: wrong value"])]
    right = [GivenAnswer("a.f", "here:unchanged", "holds")]
    missed = PlantedAnswer("a.f", "dropped_copy", 0, "args.0", True, "holds", False, False)
    shown = PeopleTable(given, right, [PlantedAnswers("a.f", [missed])]).tables()
    assert shown[0].rows == [("a.f", "WRONG")]
    assert "  WRONG: a.f, aot-eager: values: wrong value" in shown[0].notes
    assert shown[1].rows[0] == ("unchanged", "1", "1", "0")
    assert shown[2].rows[0] == ("dropped_copy", "1", "0", "0", "1")
    assert any("missed (holds): a.f, dropped_copy at 0" in note for note in shown[2].notes)


@pytest.mark.parametrize("name", SAMPLE)
def test_a_sample_is_judged_and_its_wrong_passes_are_flagged_by_name(name):
    answers = given_answers(name, ("aot-eager", *RIGHT_PASSES))
    assert [answer.verdict for answer in answers] == ["holds"] * 4
    planted = under_wrong_passes(name, ("dropped_copy", "swapped_copies", "stale_read"))
    assert planted.answers
    assert not_flagged(planted) == []


@pytest.mark.parametrize("name", marked(NOT_YET))
def test_no_function_is_called_wrong(name):
    answers = given_answers(name, CHECKED)
    assert [answer.lines for answer in answers if answer.verdict == "WRONG"] == []
    assert not {answer.verdict for answer in answers} & {"unjudged", "not applicable"}


@pytest.mark.parametrize("name", marked(NOT_YET))
def test_no_right_pass_is_called_wrong(name):
    answers = under_right_passes(name)
    assert [answer.lines for answer in answers if answer.verdict == "WRONG"] == []


@pytest.mark.parametrize("name", marked(NOT_YET | OPEN))
def test_wrong_passes_that_change_the_result_are_flagged_by_name(name):
    planted = under_wrong_passes(name, kinds_for(name))
    assert planted.unusable == ""
    assert not_flagged(planted) == []
