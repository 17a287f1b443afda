"""The benchmark of models runs its smallest scene without transformers, and finds wrong bits."""

import importlib.util

import numpy as np
import pytest
import torch

from aliasproof.ir.errors import UserError
from benchmarks import models
from benchmarks.models import ModelCost, Models, bytes_of, measure, same_bits


def test_the_smallest_scene_has_the_bits_of_eager_on_three_sides():
    (cost,) = measure(["SGD"]).costs
    assert (cost.error, cost.bits) == ("", "eager")
    assert set(cost.first) == set(cost.step) == set(cost.peak) == set(models.SIDES)
    assert cost.peak["aliasproof"] <= cost.peak["aot_eager"]


def test_the_bytes_of_a_call_are_those_that_its_tensors_hold_at_once():
    def call():
        large = torch.empty(100)
        small = large[:10].neg()
        del large
        return small

    assert bytes_of(call) == (110 * 4, 10 * 4)


def test_what_was_there_before_a_call_does_not_count():
    """The profiler keeps the sizes of an earlier call: it attributes blocks at those addresses."""
    held: list[torch.Tensor] = []
    bytes_of(lambda: held.extend(torch.empty(132) for _ in range(50)))
    addresses = {tensor.data_ptr() for tensor in held}
    held.clear()
    held.extend(torch.empty(132) for _ in range(50))
    assert addresses & {tensor.data_ptr() for tensor in held}

    def call():
        torch.empty(100)
        held.clear()

    assert bytes_of(call) == (400, 0)


def test_bits_are_those_of_eager_or_of_aot_eager_or_they_differ():
    zero, minus_zero, one = (np.array([value], np.float32) for value in (0.0, -0.0, 1.0))

    def said(eager, aot_eager, aliasproof):
        return same_bits({"eager": [eager], "aot_eager": [aot_eager], "aliasproof": [aliasproof]})

    assert said(zero, one, zero) == "eager"
    assert said(zero, minus_zero, minus_zero) == "aot_eager"
    assert said(zero, zero, one) == "differs by 1e+00"


def test_what_is_above_the_limit_is_counted_and_a_failure_is_shown():
    def cost(scene, factor):
        figures = {"eager": 1.0, "aot_eager": 2.0, "aliasproof": 2.0 * factor}
        return ModelCost(scene, "eager", figures, figures, figures)

    shown = [cost("a", 1.0), cost("b", 1.5), ModelCost("c", error="eager: it raises")]
    (table,) = Models(shown).tables()
    assert table.rows[1] == ("b", "eager", "1.50", "1.50", "1.50")
    assert "fails: c: eager: it raises" in table.notes
    assert "first call: median 1.25, largest 1.50, 1 of 2 above 1.1" in table.notes


def test_a_model_of_transformers_needs_transformers(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"pip install '\.\[models\]'"):
        measure(["GPT-2, training"])


def test_every_optimizer_of_torch_is_a_subject_or_left_out_with_a_reason():
    names = {name.partition(",")[0] for name in models.subjects()}
    assert {"Adam", "AdamW", "SGD", "RMSprop", "Adafactor", "Muon"} <= names
    assert "LBFGS" not in names
