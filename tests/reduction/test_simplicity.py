"""The order in which each step of a reduction must descend."""

import math
from dataclasses import replace

import pytest
import torch

from aliasproof.ir.program import Program, Ref
from aliasproof.reduction.edits import simplicity


def numbers_in(key: tuple[object, ...]) -> list[float]:
    assert all(isinstance(number, (int, float)) for number in key)
    return [float(number) for number in key]  # type: ignore[arg-type]


def test_simplicity_is_well_founded(drawn: list[Program]) -> None:
    """Tuples of one length, of numbers from zero up in half steps: no infinite descent."""
    keys = [numbers_in(simplicity(program)) for program in drawn]
    assert len({len(key) for key in keys}) == 1
    assert all(
        number >= 0 and math.isfinite(number) and (2 * number).is_integer()
        for key in keys
        for number in key
    )


def test_simplicity_does_not_depend_on_names(drawn: list[Program]) -> None:
    for program in drawn:
        assert simplicity(program.renamed()) == simplicity(program)


ODD = (
    *(float("nan"), float("inf"), float("-inf"), -(2**63), 2**64, 1e300),
    *(True, None, torch.float32, ()),
)


@pytest.mark.parametrize("argument", ODD)
def test_any_argument_is_in_the_order(program, argument) -> None:
    start = program("v0 = aten.add.Scalar(x0, 1)\nreturn (v0,)", (4,))
    odd = replace(start, instructions=(replace(start.instructions[0], args=(Ref("x0"), argument)),))
    assert all(number == number and math.isfinite(number) for number in numbers_in(simplicity(odd)))


SIMPLER = [
    (
        "fewer instructions, though longer",
        "aten.addcmul_.default(x0, x1, x1, value=9)\nreturn x0, x1",
        "aten.zero_.default(x0)\naten.zero_.default(x1)\nreturn ()",
    ),
    (
        "fewer outputs",
        "aten.zero_.default(x0)\nreturn (x0,)",
        "aten.zero_.default(x0)\nreturn x0, x1",
    ),
    ("a plainer op", "aten.zero_.default(x0)\nreturn ()", "aten.cos_.default(x0)\nreturn ()"),
    (
        "fewer arguments",
        "aten.clamp_.default(x0, 1)\nreturn ()",
        "aten.clamp_.default(x0, 1, 2)\nreturn ()",
    ),
    (
        "a smaller number",
        "aten.add_.Scalar(x0, 1)\nreturn ()",
        "aten.add_.Scalar(x0, 2)\nreturn ()",
    ),
    (
        "a positive number",
        "aten.add_.Scalar(x0, 2)\nreturn ()",
        "aten.add_.Scalar(x0, -2)\nreturn ()",
    ),
    ("an earlier input", "aten.zero_.default(x0)\nreturn ()", "aten.zero_.default(x1)\nreturn ()"),
]


@pytest.mark.parametrize(("why", "simpler", "other"), SIMPLER)
def test_what_counts_as_simpler(program, why: str, simpler: str, other: str) -> None:
    assert simplicity(program(simpler, (4,), (4,))) < simplicity(program(other, (4,), (4,)))


def test_plainer_inputs_count_as_simpler(program) -> None:
    plain = program("aten.zero_.default(x0)\nreturn ()", (2, 2))
    view, storage = plain.inputs[0], plain.storages[0]
    for view_change, storage_change in (
        ({"sizes": (2, 3), "strides": (3, 1)}, {"length": 6}),
        ({"strides": (1, 2)}, {}),
        ({"offset": 1}, {"length": 5}),
        ({}, {"length": 5}),
        ({"dtype": torch.float64}, {"dtype": torch.float64}),
    ):
        fancier = replace(
            plain,
            inputs=(replace(view, **view_change),),
            storages=(replace(storage, **storage_change),),
        )
        assert simplicity(plain) < simplicity(fancier)
    assert simplicity(plain) < simplicity(replace(plain, seed=1))
