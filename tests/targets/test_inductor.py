"""Targets of Inductor: documented differences are no violations, and similar ones still are."""

from collections.abc import Callable
from dataclasses import replace
from typing import cast

import pytest
import torch
from torch import Tensor

from aliasproof.ir.lifting import lift_program
from aliasproof.judge.examination import Examination, examine
from aliasproof.judge.trial import Case, run_trial
from aliasproof.oracles.verdict import Verdict
from aliasproof.targets.registry import target
from aliasproof.targets.target import Build, Function, Target
from tests.targets.conftest import stages_of

BF16 = torch.bfloat16
PASSES = target("inductor-fx")


def wrong(name: str, changed: Callable[[Function], Function]) -> Target:
    """The target with a mistake that wraps its compiled function."""
    right = target(name)

    def build(function: Function, inputs: object) -> Build:
        return Build(changed(function), [], "planted")

    return replace(right, build=build, after=None)


def verdict(function: Function, inputs: list[Tensor], tested: Target) -> Verdict:
    return examined(function, inputs, tested).reports["values"].verdict


def equivalence(function: Function, inputs: list[Tensor]) -> Verdict:
    """The verdict on the function as a program."""
    case = Case.of(lift_program(function, inputs).program)
    return examine(case, PASSES, attribute=False).reports["equivalence"].verdict


def examined(function: Function, inputs: list[Tensor], tested: Target) -> Examination:
    return examine(Case.of_function(function, inputs), tested, attribute=False)


# --- rounding between two ops ---------------------------------------------------------------------


def chain(x: Tensor) -> Tensor:
    return x.to(torch.float16).to(BF16)


def off_by(number: float) -> Callable[[Function], Function]:
    return lambda function: lambda *inputs: cast("Tensor", function(*inputs)) + number


# Rounded to float16 first, it is halfway between two bfloat16 numbers, and goes down.
LOSES, FITS = [torch.tensor([1 + 2**-8 + 2**-13])], [torch.tensor([1.0])]
NEXT = 2**-7  # from 1 to the next bfloat16 number


def test_a_cast_that_inductor_leaves_out_is_documented() -> None:
    """The cast to float16 is removed, and so is its rounding."""
    (found,) = examined(chain, LOSES, PASSES).documented
    assert "emulate_precision_casts" in found.limitation.reason
    assert verdict(chain, FITS, PASSES) is Verdict.HOLDS
    emulated = target("inductor-fx:emulate_precision_casts=True")
    assert verdict(chain, LOSES, emulated) is Verdict.HOLDS


@pytest.mark.parametrize(
    ("name", "inputs", "number", "expected"),
    [
        ("inductor-fx", LOSES, NEXT, Verdict.DOCUMENTED),
        ("inductor-fx", LOSES, 1.0, Verdict.VIOLATED),
        ("inductor-fx", FITS, NEXT, Verdict.VIOLATED),
        ("inductor-fx:emulate_precision_casts=True", LOSES, NEXT, Verdict.VIOLATED),
        ("aot", LOSES, NEXT, Verdict.VIOLATED),
    ],
)
def test_only_what_rounding_explains_is_documented(name, inputs, number, expected):
    assert verdict(chain, inputs, wrong(name, off_by(number))) is expected


def test_an_input_may_end_with_the_digits_that_rounding_loses() -> None:
    def stored(x: Tensor) -> None:
        x.copy_(chain(x))

    def planted(function: Function) -> Function:
        return lambda x: (function(x), x.add_(NEXT))[0]

    for inputs, expected in ((LOSES, Verdict.DOCUMENTED), (FITS, Verdict.VIOLATED)):
        found = examined(stored, inputs, wrong("inductor-fx", planted))
        assert found.reports["inputs"].verdict is expected


# --- constants ------------------------------------------------------------------------------------


def test_folded_constants_are_equivalent() -> None:
    def of_constants(x: Tensor) -> Tensor:
        return x + torch.full_like(x, 2).neg().mul(3)

    assert equivalence(of_constants, [torch.arange(3.0)]) is Verdict.HOLDS


def test_a_product_with_zero_is_no_constant() -> None:
    """NaN * 0 is NaN (pytorch/pytorch#187580): on the inputs at hand, the value is right."""
    fixed = torch.__version__ >= "2.14"
    expected = Verdict.HOLDS if fixed else Verdict.VIOLATED
    assert equivalence(lambda x: torch.mul(x, 0), [torch.arange(3.0)]) is expected


# --- writes into an input that overlaps itself ----------------------------------------------------


@pytest.mark.parametrize(("strides", "label"), [((1, 1), "disputed"), ((3, 1), "")])
def test_a_wrong_write_into_an_overlapping_input_is_disputed(strides, label):
    x = torch.arange(9.0).as_strided((3, 3), strides)
    planted = wrong("inductor-fx", lambda function: lambda x: (function(x), x[0].add_(1))[0])
    first, *_ = examined(lambda x: (x[0].add_(1), None)[1], [x], planted).violations
    assert (first.oracle, first.label) == ("inputs", label)


# --- settings -------------------------------------------------------------------------------------


def test_a_setting_that_takes_a_promise_back_changes_the_contract() -> None:
    def draws(x: Tensor) -> Tensor:
        return x + torch.rand_like(x)

    planted = off_by(1)
    for name, expected in (
        ("inductor-fx", Verdict.VIOLATED),
        ("inductor-fx:fallback_random=False", Verdict.DOCUMENTED),
    ):
        assert verdict(draws, [torch.zeros(3)], wrong(name, planted)) is expected
    other = wrong("inductor-fx:fallback_random=False", planted)
    assert verdict(torch.neg, [torch.zeros(3)], other) is Verdict.VIOLATED


# --- properties that Dynamo passes on -------------------------------------------------------------


def splits(x: Tensor, y: Tensor) -> Tensor:
    view = x.view(-1)
    torch._dynamo.graph_break()
    view.add_(1)
    return y + 1


def test_a_view_and_an_input_that_overlap_are_refused() -> None:
    """After a graph break, an input of the second part is a view in autograd, and `y` is not."""
    tested = target("aot-eager")
    x = torch.zeros(4)
    assert not examined(splits, [x, x], tested).documented, "one tensor"
    (found,) = examined(splits, [x, x.view(4).detach()], tested).documented
    assert "autograd base" in found.limitation.name


def test_a_program_gets_the_inputs_that_dynamo_passes_in_its_order() -> None:
    def writes_the_second_first(x: Tensor, y: Tensor, unused: Tensor) -> Tensor:
        y.add_(1)
        return x.add_(1)

    inputs = [torch.zeros(2), torch.zeros(3), torch.zeros(4)]
    case = Case.of(lift_program(writes_the_second_first, inputs).program)
    for one in (case, Case.of_function(writes_the_second_first, inputs)):
        trial = run_trial(one, PASSES)
        (stage,) = stages_of(trial)
        given = cast("list[Tensor]", stage.inputs)
        assert [tensor.numel() for tensor in given] == [3, 2]


def test_what_a_pattern_leaves_to_code_generation_is_not_called_in_eager() -> None:
    def cat_of_slice_of_cat(x: Tensor, y: Tensor) -> Tensor:
        whole = torch.cat([x, y], 1)
        return torch.cat([whole, whole[:, 0:1]], 1)

    inputs = [torch.ones(2, 1), torch.zeros(2, 1)]
    assert verdict(cat_of_slice_of_cat, inputs, PASSES) is Verdict.HOLDS
