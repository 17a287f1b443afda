"""The parts of messages: the nearest known names, and values in one short line."""

from __future__ import annotations

import pytest

from aliasproof.ir.errors import did_you_mean, shown, suggestion
from aliasproof.ir.program import Ref

KNOWN = ["alpha", "alphas", "beta"]


@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [
        ("alfa", {}, "; did you mean 'alpha'?"),
        ("alfa", {"most": 2}, "; did you mean 'alpha', 'alphas'?"),
        ("alfa", {"otherwise": "write one"}, "; did you mean 'alpha'?"),
        ("zzz", {"otherwise": "write one"}, "; write one"),
        ("zzz", {}, ""),
    ],
)
def test_an_unknown_name_gets_the_nearest_or_advice(
    name: str, options: dict, expected: str
) -> None:
    assert did_you_mean(name, KNOWN, **options) == expected


def test_names_are_offered_in_the_order_given() -> None:
    assert suggestion(["b", "a"]) == "; did you mean 'b', 'a'?"
    assert suggestion([]) == ""


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (3, "3"),
        pytest.param(10**5000, "an integer of 16610 bits", id="too many digits to print"),
        (Ref("x"), "the tensor 'x'"),
        ((Ref("x"), 1), "(the tensor 'x', 1)"),
    ],
)
def test_a_value_is_shown_in_one_line(value: object, expected: str) -> None:
    assert shown(value) == expected


def test_a_long_value_is_shown_short() -> None:
    assert len(shown("x" * 1000)) <= 60
    assert len(shown([[[["x"] * 100] * 100]])) < 200
