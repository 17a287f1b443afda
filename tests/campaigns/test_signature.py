"""Signatures: what makes two reduced failures the same finding."""

from __future__ import annotations

from dataclasses import replace

import pytest

from campaigns.signature import Signature, signature
from trials.attribution import Symptom

WRONG_VALUE = Symptom("planted", "values", "wrong value")
SQUARE = "aten.mul.Tensor(x0, x0)"


def test_equal_ops_and_symptoms_are_one_finding(program) -> None:
    one = program(f"v0 = {SQUARE}\naten.zero_.default(v0)\nreturn (v0,)", (4,))
    other = program(f"v0 = {SQUARE}\naten.zero_.default(v0)\nreturn (x0,)", (2, 3))
    assert signature(WRONG_VALUE, one) == signature(WRONG_VALUE, other)
    assert signature(WRONG_VALUE, one).ops == ("aten.mul.Tensor", "aten.zero_.default")


SIGNATURE = Signature(WRONG_VALUE, ("aten.mul.Tensor", "aten.zero_.default"))


@pytest.mark.parametrize(
    "other",
    [
        Signature(replace(WRONG_VALUE, target="aot"), SIGNATURE.ops),
        Signature(replace(WRONG_VALUE, oracle="inputs"), SIGNATURE.ops),
        Signature(replace(WRONG_VALUE, kind="wrong size"), SIGNATURE.ops),
        Signature(WRONG_VALUE, SIGNATURE.ops[::-1]),
        Signature(WRONG_VALUE, SIGNATURE.ops[:1]),
        Signature(WRONG_VALUE, ()),
    ],
)
def test_anything_else_is_another_finding(other: Signature) -> None:
    assert other != SIGNATURE
    assert other.identifier != SIGNATURE.identifier


def test_the_identifier_is_the_same_in_every_run() -> None:
    assert SIGNATURE.identifier == "planted-values-397bf13b"
