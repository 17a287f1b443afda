"""Variants with gradients and two calls: inputs that require gradients, and bugs that both show."""

import functools
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from aliasproof.campaigns.failure.failure import Failure
from aliasproof.campaigns.failure.recognition import recognised
from aliasproof.campaigns.publish.reproducer import Compiler, render
from aliasproof.campaigns.store.plan import Shard
from aliasproof.generators.features import swarm
from aliasproof.generators.strategies import sample
from aliasproof.ir.program import Program
from aliasproof.ir.values import input_tensors
from aliasproof.judge.attribution import Symptom
from aliasproof.judge.examination import Examination, examine
from aliasproof.judge.trial import Case, run_trial
from aliasproof.reference_pass.backend import building
from aliasproof.reference_pass.pipeline import pipeline
from aliasproof.targets import gradients, identity
from aliasproof.targets.gradients import half, requiring_gradients, with_their_gradients
from aliasproof.targets.registry import TARGETS, target
from aliasproof.targets.second_calls import CHANGES, SECOND_CALLS
from aliasproof.targets.target import Build, Function
from aliasproof.targets.variants import GRADS
from tests.scripts_here import confirm_here
from tests.short_programs import known_bug, of_vectors
from tests.targets.conftest import Doubled, defined_by, ends, matrix, planted, printed

NAMES = [f"{grad.name}:{name}" for grad in GRADS for name in SECOND_CALLS]
THREE = (torch.float32,) * 3
# f(a, b): a.add_(1); return b * w
WRITE_ONE_SCALE_OTHER = "aten.add_.Scalar(x0, 1)\nv0 = aten.mul.Tensor(x1, x2)\nreturn (v0,)"
SHARED = of_vectors(WRITE_ONE_SCALE_OTHER, 0, 0, 1, dtypes=THREE)
APART = of_vectors(WRITE_ONE_SCALE_OTHER, 0, 1, 2, dtypes=THREE)
SQUARE = of_vectors("v0 = aten.mul.Tensor(x0, x0)\nreturn (v0,)", 0)


def examined(program: Program, name: str) -> Examination:
    return examine(Case.of(program), target(name))


# --- names ----------------------------------------------------------------------------------------


def test_each_target_with_both_has_them_together() -> None:
    for plain in TARGETS.values():
        names = [variant.name for variant in plain.variants]
        for grad in (grad.name for grad in GRADS if grad.name in names):
            for second in (name for name in SECOND_CALLS if name in names):
                tested = target(f"{plain.name}:{second}:{grad}")
                assert tested.name == f"{plain.name}:{grad}:{second}"
                assert {f"{plain.name}:{grad}", f"{plain.name}:{second}"} <= {
                    fewer.name for fewer in tested.varies
                }
                assert all(target(fewer.name).name == fewer.name for fewer in tested.earlier)


def test_the_same_variants_give_the_same_conditions() -> None:
    one, two = target("aot-eager:grad:feed-back"), target("dynamo:grad:feed-back")
    assert one.conditions is two.conditions
    assert one.conditions is not target("aot-eager:half-grad:feed-back").conditions


# --- which inputs require gradients ---------------------------------------------------------------


@pytest.mark.parametrize("size", [4, 5])
def test_every_second_storage_requires_none(size: int) -> None:
    base, other, third = torch.ones(size), torch.ones(4), torch.ones(size)
    inputs = [base, other, torch.ones(2, dtype=torch.int64), base[1:], third]
    given = requiring_gradients(inputs, half(inputs))
    first = size == 4  # there are 3 * size + 5 elements
    assert [x.requires_grad for x in given] == [first, not first, False, first, first]
    assert half([base, base[1:]]) == {}


def test_about_half_of_the_inputs_require_gradients() -> None:
    count = required = 0
    for seed in range(30):
        for program in sample(swarm(seed), seed, 4):
            inputs = input_tensors(program)
            storages = {x.untyped_storage()._cdata for x in inputs if x.is_floating_point()}
            if len(storages) > 1:
                able = [x for x in requiring_gradients(inputs) if x.requires_grad]
                left = [x for x in requiring_gradients(inputs, half(inputs)) if x.requires_grad]
                assert able == [] or len(left) < len(able) or left == []
                count, required = count + len(able), required + len(left)
    assert 0.35 < required / count < 0.65


@pytest.mark.parametrize("change", [name for name in CHANGES if name != "second-grad"])
def test_the_first_inputs_require_gradients_as_the_second(change: str) -> None:
    plain = [matrix(2), matrix(2), matrix(2), matrix(2)]
    inputs = requiring_gradients(plain, {1: "none", 2: "leaf"})
    maker = CHANGES[change].chosen(inputs)
    assert maker is not None
    first = with_their_gradients(maker, inputs)
    wanted = [(x.requires_grad, x.is_leaf) for x in inputs]
    if change == "second-call":  # in one storage, a leaf is a leaf for all
        assert [x.requires_grad for x in first] == [x.requires_grad for x in inputs]
        assert first[0].untyped_storage()._cdata == first[3].untyped_storage()._cdata
        assert first[0].untyped_storage()._cdata != first[1].untyped_storage()._cdata
    else:
        assert [(x.requires_grad, x.is_leaf) for x in first] == wanted


def test_without_gradients_before_where_some_require_them() -> None:
    inputs = requiring_gradients([matrix(2), matrix(2)])
    maker = CHANGES["second-grad"].chosen(inputs)
    assert maker is not None
    assert not any(x.requires_grad for x in maker(inputs))


# --- bugs that both variants show -----------------------------------------------------------------


NUMBERS = torch.arange(1.0, 5)


@pytest.mark.parametrize(
    ("variant", "expected"),
    [
        # Of x * x and of x afterwards: (2 * x + 1) * numbers, for each call.
        ("kept-outputs", [NUMBERS**2, (2 * NUMBERS + 1) * NUMBERS] * 2),
        # One backward pass goes through both calls. Of x**2, x**4 and x:
        ("feed-back", [NUMBERS**2, NUMBERS**4, (2 * NUMBERS + 4 * NUMBERS**3 + 1) * NUMBERS]),
    ],
)
def test_gradients_of_both_calls_are_compared(variant: str, expected: list[Tensor]) -> None:
    outputs: Any = run_trial(Case.of(SQUARE), target(f"identity:grad:{variant}")).eager.outputs
    assert [x.tolist() for x in outputs] == [x.tolist() for x in expected]


def remembers_strides(function: Function, inputs: Sequence[Tensor]) -> Build:
    """A compiler whose backward graph is right only for the strides of the first call."""
    first: list[object] = []

    def run(*tensors: Tensor) -> object:
        first.append(tensors[0].stride())
        (output,) = tree_leaves(function(*tensors))
        return [output if tensors[0].stride() == first[0] else Doubled.apply(output)]

    return Build(run, [])


def test_a_gradient_that_is_wrong_in_the_second_call_is_shown_by_both_variants_alone() -> None:
    case = Case.of(SQUARE)
    for names in ([], ["grad"], ["second-layout"]):
        assert examine(case, planted(remembers_strides, *names)).violations == []
    shown = examine(case, planted(remembers_strides, "grad", "second-layout"))
    assert [violation.describe() for violation in shown.violations] == ["wrong value (output 1)"]
    assert shown.symptom == Symptom("wrong:grad:second-layout", "values", "wrong value")
    right = examine(case, planted(identity.build, "grad", "second-layout"))
    assert right.rejected is None
    assert not right.violations


def test_second_inputs_of_the_user_require_gradients() -> None:
    seen: list[tuple[float, bool]] = []

    def function(x: Tensor) -> Tensor:
        seen.append((x[0].item(), x.requires_grad))
        return x * 2

    case = Case(function, lambda: [torch.ones(2)], lambda: [torch.full((2,), 2.0)])
    trial = run_trial(case, target("identity:grad:second-call"))
    assert trial.eager.outputs[0].tolist() == [4, 4]  # type: ignore[attr-defined]
    assert {*seen} == {(1.0, True), (2.0, True)}


# --- missing guards of torch ----------------------------------------------------------------------


@known_bug
def test_training_uses_the_graph_of_one_sharing_for_another(tmp_path: Path) -> None:
    """pytorch/pytorch#139789. A script with only torch shows it, also as users would write it."""
    tested = target("aot-eager:half-grad:second-call")
    (violation, *_) = examine(Case.of(SHARED), tested, attribute=False).violations
    assert violation.describe() == "wrong value (output 0)"
    script = tmp_path / "script.py"
    script.write_text(render(SHARED, tested, violation, exact=True))
    text = script.read_text()
    assert confirm_here(script).shown, text
    assert "lambda: requiring_gradients(inputs(), {0: 'none', 1: 'none'})" in text
    assert "with_their_gradients(apart, inputs)" in text
    assert "def half(" not in text
    by_users = Compiler.of_backend("aot_eager", tested.name, near=True)
    assert "def conditions(" in by_users.recipe
    assert "with_their_gradients(other_sharing(inputs), inputs)" in by_users.recipe


# --- recipes --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_a_recipe_with_gradients_makes_the_same_calls(name: str) -> None:
    tested = target(f"identity:{name}")
    namespace = defined_by(tested.recipe)
    program = APART if name.endswith("second-size") else SHARED
    plain = Case(printed(program), functools.partial(input_tensors, program))
    case = plain.under(tested)
    built = ends(case, lambda function, inputs: tested.build(function, inputs).function)
    by_recipe = Case(*namespace["conditions"](plain.function, plain.fresh_inputs))
    assert ends(by_recipe, namespace["compiled"]) == built
    assert isinstance(built, list)


# --- nothing excuses our own pass -----------------------------------------------------------------


def test_a_violation_of_the_reference_pass_is_not_passed_on() -> None:
    for name in ("reference", "reference-copy", "reference-planned"):
        plain = target(name)
        assert not plain.excused
        for variant in plain.variants:
            tested = target(f"{name}:{variant.name}")
            assert not tested.excused
            assert all(earlier.name.startswith(name) for earlier in tested.earlier)
            assert (tested.after, tested.layer) == (None, None)
        assert target(f"{name}:grad").contract == plain.contract


def test_no_known_bug_of_torch_excuses_the_reference_pass(program: Any) -> None:
    """The same program and symptom, for which torch is excused."""
    wrong = program("v0 = aten.expand.default(x0, [4])\naten.zero_.default(v0)\nreturn (x0,)", ())
    excused = Symptom("aot", "values", "wrong value")
    assert recognised(wrong, excused, reduced=False).known == "expand-inverse"
    ours = Symptom("reference:grad", "values", "wrong value")
    assert recognised(wrong, ours, reduced=False) == (None, False, ours)
    assert Failure.of(ours, wrong, 0, past_known=False).symptom == ours
    for past_known in (False, True):
        shard = Shard(0, "reference", past_known=past_known, patched=("expand-inverse",))
        assert shard.patches() == ()
        assert replace(shard, target="aot").patches() != ()


@pytest.mark.parametrize("name", ["reference:grad", "reference:grad:kept-outputs"])
def test_a_refusal_of_the_reference_pass_is_documented_behind_dynamo(name, monkeypatch):
    def refuses(*args: object, **options: object) -> object:
        resizes = lambda x: torch.ops.aten.linspace.out(0, 1, 5, out=x)  # noqa: E731
        return pipeline(resizes, torch.empty(0))

    monkeypatch.setattr(building, "run_passes", refuses)
    examination = examined(SQUARE, name)
    assert examination.violations == []
    names = [difference.limitation.name for difference in examination.documented]
    assert names == ["refuses 'operator whose schema hides what it writes'"]


@pytest.mark.parametrize("name", ["aot:grad", "aot:half-grad"])
def test_gradients_need_an_input_that_can_have_them(name: str) -> None:
    integers = of_vectors("v0 = aten.neg.default(x0)\nreturn (v0,)", 0, dtypes=(torch.int64,))
    assert "no input can require gradients" in str(examined(integers, name).rejected)
    assert gradients.kinds_of(lambda x: x) == {}
