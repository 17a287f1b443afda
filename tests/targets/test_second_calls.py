"""Second calls: the changes in the first one, and wrong compilers that only they show."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from aliasproof.campaigns.publish.reproducer import Compiler, Reproducer
from aliasproof.ir.program import Program
from aliasproof.judge.examination import examine
from aliasproof.judge.trial import Case, run_trial
from aliasproof.targets import identity
from aliasproof.targets.registry import target
from aliasproof.targets.second_calls import (
    CHANGES,
    converted,
    differentiable,
    larger,
    later,
    other_dtypes,
    other_gradients,
    other_layouts,
    other_sharing,
    other_sizes,
    shares,
    shortened,
    strided,
)
from aliasproof.targets.target import Build, Function
from tests.scripts_here import confirm_here
from tests.short_programs import known_bug, of_vectors
from tests.targets.conftest import defined_by, matrix, planted


def facts(inputs: Sequence[Tensor]) -> list[object]:
    return [(x.shape, x.stride(), x.storage_offset(), x.dtype, x.requires_grad) for x in inputs]


# --- the inputs of the first call -----------------------------------------------------------------


@pytest.mark.parametrize("change", [change for change in CHANGES if change != "second-call"])
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
    assert shares(first) == shared
    kept = {
        "second-layout": lambda x: (x.shape, x.dtype, x.requires_grad, x.tolist()),
        "second-size": lambda x: (x.dtype, x.requires_grad, x.dim()),
        "second-dtype": lambda x: (x.shape, x.stride(), x.storage_offset(), x.tolist()),
        "second-grad": lambda x: (x.shape, x.stride(), x.storage_offset(), x.tolist()),
    }[change]
    assert list(map(kept, first)) == list(map(kept, inputs))
    assert all(one != other for one, other in zip(facts(first), before, strict=True)) or (
        change == "second-size"  # a number has no size
    )
    assert facts(first) != before


def test_what_has_nothing_to_change_is_not_called_before() -> None:
    number, flag = torch.tensor(1), torch.tensor([True])
    assert other_sizes([number]) is None
    assert other_dtypes([flag]) is None
    assert other_gradients([number, flag]) is None
    mixed = torch.zeros(4, dtype=torch.int32)
    assert other_dtypes([mixed, mixed.view(torch.float32)]) is None
    assert other_layouts([number]) is strided
    assert other_layouts([mixed, mixed]) is later
    assert other_sharing([mixed, flag]) is later
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
GRADS = Remembers(lambda x: x.requires_grad, lambda y, needs: y + 1 if needs else y)
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
        ("second-grad", GRADS, "values"),
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
