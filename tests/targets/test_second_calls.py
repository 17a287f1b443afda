"""Second calls, also with gradients: the changes in the first one, and bugs that only they show."""

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from aliasproof.campaigns.failure.failure import Failure
from aliasproof.campaigns.failure.recognition import recognised
from aliasproof.campaigns.publish.reproducer import Compiler, Reproducer, render
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
from aliasproof.targets.second_calls import (
    CHANGES,
    SECOND_CALLS,
    backwards,
    converted,
    differentiable,
    larger,
    later,
    other_dtypes,
    other_gradients,
    other_layouts,
    other_sharing,
    other_sizes,
    other_values,
    shares,
    shortened,
    strided,
)
from aliasproof.targets.target import Build, Function
from aliasproof.targets.variants import GRADS
from tests.scripts_here import confirm_here
from tests.short_programs import known_bug, of_vectors
from tests.targets.conftest import Doubled, compiled_ends, defined_by, matrix, planted, printed


def facts(inputs: Sequence[Tensor]) -> list[object]:
    return [(x.shape, x.stride(), x.storage_offset(), x.dtype, x.requires_grad) for x in inputs]


# --- the inputs of the first call -----------------------------------------------------------------


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("shared", [False, True])
def test_the_first_inputs_differ_in_one_way(change: str, shared: bool) -> None:
    base = torch.arange(1.0, 9)
    inputs = [base[:4].view(2, 2), base[2:6].view(2, 2)] if shared else [matrix(2), matrix(2)[0, 0]]
    before = facts(inputs)
    maker = CHANGES[change].chosen(inputs)
    if shared and change == "second-size":
        assert maker is None
        return
    assert maker is not None
    first = maker(inputs)
    assert facts(inputs) == before
    assert shares(first) == (shared != (change == "second-call"))
    kept = {
        "second-call": lambda x: (x.shape, x.dtype, x.requires_grad),
        "second-layout": lambda x: (x.shape, x.dtype, x.requires_grad, x.tolist()),
        "second-size": lambda x: (x.dtype, x.requires_grad, x.dim()),
        "second-dtype": lambda x: (x.shape, x.stride(), x.storage_offset(), x.tolist()),
        "second-values": lambda x: facts([x]),
        "second-grad": lambda x: (x.shape, x.stride(), x.storage_offset(), x.tolist()),
    }[change]
    assert list(map(kept, first)) == list(map(kept, inputs))
    if change == "second-values":
        assert [x.tolist() for x in first] != [x.tolist() for x in inputs]
        return
    assert all(one != other for one, other in zip(facts(first), before, strict=True)) or (
        change in ("second-call", "second-size")  # a number has no size
    )
    assert (facts(first) != before) == (change != "second-call")


def test_what_has_nothing_to_change_is_not_called_before() -> None:
    number, flag = torch.tensor(1), torch.tensor([True])
    assert other_sizes([number]) is None
    assert other_dtypes([flag]) is None
    assert other_gradients([number, flag]) is None
    assert other_values([number, flag]) is None
    assert backwards([torch.ones(3)])[0].tolist() == [2, 2, 2]
    odd = torch.tensor([1, 2, 3], dtype=torch.int32).view(torch.int16)[1:]
    assert backwards([odd])[0].tolist() == [3, 0, 2, 0, 1][:5]
    mixed = torch.zeros(4, dtype=torch.int32)
    assert other_dtypes([mixed, mixed.view(torch.float32)]) is None
    assert other_layouts([number]) is strided
    assert other_layouts([mixed, mixed]) is later
    assert other_sharing([mixed, flag]) is later
    (alone,) = later([base := torch.arange(4.0)])
    assert (alone.storage_offset(), alone.tolist()) == (4, base.tolist())
    assert strided([number])[0].storage_offset() == 1
    assert larger([flag])[0].shape == (1,)
    assert converted([number])[0].dtype is torch.int32
    assert [x.requires_grad for x in differentiable([matrix(2), number])] == [True, False]
    program = of_vectors("v0 = aten.add.Scalar(x0, 1)\nreturn (v0,)", 0, sizes=(1,))
    found = examine(Case.of(program), target("identity:second-size"))
    assert "nothing that the first call could have otherwise" in str(found.rejected)


@pytest.mark.parametrize(
    ("layout", "grown"),
    [
        (matrix(2), ((3, 4), (4, 1), 0)),
        (matrix(2).t(), ((4, 3), (1, 4), 0)),
        (matrix(2)[:, 1:], ((3, 3), (4, 1), 1)),
        (torch.zeros(2, 8)[:, ::2], ((3, 5), (10, 2), 0)),
        (matrix(2)[:1].expand(4, 3), ((5, 4), (0, 1), 0)),
        (torch.zeros(6).unfold(0, 3, 1), ((5, 4), (1, 1), 0)),
        (torch.zeros(2, 1, 3), ((3, 1, 4), (4, 4, 1), 0)),
        (torch.zeros(0, 3), ((0, 4), (4, 1), 0)),
    ],
)
def test_larger_inputs_are_laid_out_alike(layout, grown):
    (x,) = larger([layout])
    assert (tuple(x.shape), x.stride(), x.storage_offset()) == grown
    # The bytes around the view are kept, too.
    assert x.numel() == 0 or x.untyped_storage().nbytes() >= layout.untyped_storage().nbytes()


# --- wrong compilers ------------------------------------------------------------------------------


class Remembers:
    """A compiler without a guard: it keeps a property of the first call."""

    def __init__(self, fact: Callable[[Tensor], Any], use: Callable[[Tensor, Any], Tensor]):
        self.fact, self.use = fact, use

    def __call__(self, function: Function, inputs: Sequence[Tensor]) -> Build:
        facts: list[object] = []

        def run(*tensors: Tensor) -> list[Tensor]:
            facts.append(self.fact(tensors[0]))
            (output,) = tree_leaves(function(*tensors))
            return [self.use(output, facts[0])]

        return Build(run, [])


def own_buffer(function: Function, inputs: Sequence[Tensor]) -> Build:
    """Writes the output of each call to one buffer."""
    buffers: list[Tensor] = []

    def run(*tensors: Tensor) -> Tensor:
        (output,) = tree_leaves(function(*tensors))
        buffers.append(torch.empty_like(output))
        return buffers[0].copy_(output)

    return Build(run, [])


def without_alias(function: Function, inputs: Sequence[Tensor]) -> Build:
    """Runs on copies if the inputs of the first call share nothing."""
    shared: list[bool] = []

    def run(*tensors: Tensor) -> object:
        shared.append(shares(list(tensors)))
        if shared[0]:
            return function(*tensors)
        copies = [x.clone() for x in tensors]
        outputs = function(*copies)
        for x, copy in zip(tensors, copies, strict=True):
            x.copy_(copy)
        return outputs

    return Build(run, [])


STRIDES = Remembers(lambda x: x.stride(0), lambda y, stride: y if stride == 1 else y + 1)
SIZES = Remembers(len, lambda y, size: y if size == 4 else y + 1)
DTYPES = Remembers(lambda x: x.dtype, lambda y, dtype: y.to(dtype))
VALUES = Remembers(lambda x: bool(x[0] < x[1]), lambda y, rising: y if rising else y + 1)
NEEDS = Remembers(lambda x: x.requires_grad, lambda y, needs: y + 1 if needs else y)
WRITE_ONE_READ_OTHER = "aten.add_.Scalar(x1, 1)\nv0 = aten.mul.Scalar(x0, 1)\nreturn (v0,)"


def program_for(variant: str) -> Program:
    if variant == "second-call":
        return of_vectors(WRITE_ONE_READ_OTHER, 0, 0)
    return of_vectors("v0 = aten.mul.Tensor(x0, x0)\nreturn (v0,)", 0)


@pytest.mark.parametrize(
    ("variant", "build", "oracle"),
    [
        ("second-call", without_alias, "values"),
        ("second-layout", STRIDES, "values"),
        ("second-size", SIZES, "values"),
        ("second-dtype", DTYPES, "metadata"),
        ("second-values", VALUES, "values"),
        ("second-grad", NEEDS, "values"),
        ("kept-outputs", own_buffer, "aliasing"),
        ("feed-back", own_buffer, "values"),
    ],
)
def test_each_variant_shows_what_one_call_does_not(variant, build, oracle):
    case = Case.of(program_for(variant))
    assert not examine(case, planted(build)).violations
    found = examine(case, planted(build, variant))
    assert found.rejected is None
    assert found.symptom is not None
    assert found.symptom.target == f"wrong:{variant}"
    assert oracle in {violation.oracle for violation in found.violations}
    right = examine(case, planted(identity.build, variant))
    assert right.rejected is None
    assert not right.violations


def test_outputs_of_the_first_call_are_inputs_of_the_second() -> None:
    trial = run_trial(
        Case.of_function(lambda x, y: x * 2 + y, [matrix(2), matrix(2)]),
        target("identity:feed-back"),
    )
    expected = [(matrix(2) * 3).tolist(), (matrix(2) * 7).tolist()]
    assert [x.tolist() for x in trial.eager.outputs] == expected  # type: ignore[attr-defined]


# --- reproducers ----------------------------------------------------------------------------------


@known_bug
@pytest.mark.parametrize("storages", [(0, 0), (0, 1)])
def test_a_reproducer_has_the_first_inputs_of_its_program_alone(tmp_path, storages):
    tested = target("aot-eager:second-call")
    program = of_vectors(WRITE_ONE_READ_OTHER, *storages)
    found = examine(Case.of(program), tested, attribute=False)
    compiler = replace(Compiler.of_target(tested), near=True)  # as in findings
    script = Reproducer(program, compiler, found.violations[0], exact=True).script
    assert len(script.splitlines()) <= 46, script
    assert ("def apart(" in script) == (storages == (0, 0))
    assert ("def together(" in script) == (storages == (0, 1))
    path = tmp_path / "reproducer.py"
    path.write_text(script)
    assert confirm_here(path).shown


@pytest.mark.parametrize("variant", [*CHANGES])
@pytest.mark.parametrize("storages", [(0, 0), (0, 1)])
def test_a_shortened_recipe_makes_the_same_first_call(variant, storages):
    base = matrix(2)
    inputs = [base, base[0]] if storages == (0, 0) else [base, matrix(2)]
    if CHANGES[variant].chosen(inputs) is None:
        return
    seen: list[list[object]] = []

    def program(*tensors: Tensor) -> None:
        seen.append([facts(tensors), [x.tolist() for x in tensors], shares(list(tensors))])

    full = target(f"identity:{variant}").recipe
    for recipe in (full, shortened(full, inputs)):
        defined_by(recipe)["compiled"](program, inputs)
    assert len(shortened(full, inputs)) < len(full)
    assert seen[0] == seen[1]


# --- with gradients -------------------------------------------------------------------------------


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
    built = compiled_ends(case, lambda function, inputs: tested.build(function, inputs).function)
    by_recipe = Case(*namespace["conditions"](plain.function, plain.fresh_inputs))
    assert compiled_ends(by_recipe, namespace["compiled"]) == built
    assert isinstance(built, tuple)  # it raised no error


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
