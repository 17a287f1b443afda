"""Functions as people write them: `check` calls none of them wrong, and flags each wrong pass."""

from __future__ import annotations

import importlib.util

import pytest
import torch

from aliasproof.ir.errors import UserError
from benchmarks.people import people_functions
from benchmarks.people.people_check import (
    GivenAnswer,
    PlantedAnswer,
    PlantedAnswers,
    begin,
    given_answers,
    under_wrong_passes,
)
from benchmarks.people.people_functions import names
from benchmarks.people.people_table import PeopleTable, measure
from benchmarks.people.planted_kinds import KINDS
from benchmarks.people.planted_passes import RIGHT_PASSES

pytestmark = pytest.mark.filterwarnings("ignore")  # of torch, about odd programs

SAMPLE = ("caches.sliding_window", "optimizers.lion_step", "modules.conv_block")


@pytest.fixture(autouse=True)
def prepared():
    threads = torch.get_num_threads()
    begin()
    yield
    torch.set_num_threads(threads)
    torch._dynamo.reset()


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
    assert {answer.verdict for answer in answers} == {"holds"}
    assert len(answers) in (4, 8)  # those with gradients have another row per target
    planted = under_wrong_passes(name, ("dropped_copy", "swapped_copies", "stale_read"))
    assert planted.answers
    assert not_flagged(planted) == []


# These are in the table of the benchmark, which says why.
NOT_ASKED = {
    "autograd.gradient_penalty",
    "autograd.physics_residual",
    "language_models.relative_bias",
    "language_models.selective_scan",
    "modules.low_rank_linear",
}
MANY = 60  # functions; the benchmark has all, and the time of CI is short


@pytest.mark.parametrize("name", ["language_models.filter_logits", "modules.bounded_embedding"])
def test_what_was_missed_once_is_flagged(name: str) -> None:
    planted = under_wrong_passes(name, ("lost_precision", "skipped_second_write", "dropped_copy"))
    assert planted.answers
    assert not_flagged(planted) == []


@pytest.mark.timeout(1200)  # minutes, on a machine that others use
def test_many_functions_are_judged_and_a_wrong_pass_for_each_is_flagged_by_name():
    chosen = [name for name in names() if name not in NOT_ASKED][:MANY]
    table = measure(chosen, ("as it is, in graphs", "a wrong pass"))
    assert table.deaths == []
    assert [answer for answer in table.given if answer.verdict != "holds"] == []
    assert {answer.function for answer in table.given} == set(chosen)
    assert [one.unusable for one in table.planted if one.unusable] == []
    assert [answer for planted in table.planted for answer in not_flagged(planted)] == []
    kinds = {answer.kind for planted in table.planted for answer in planted.answers}
    assert len(kinds) >= 10
