"""All targets of torch, functions that every target must compile correctly, and results of runs."""

# `exec` takes it over: a recipe without it has no types in the annotations of its functions.
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from aliasproof.ir.printing import source
from aliasproof.ir.program import Program
from aliasproof.ir.values import clone_inputs
from aliasproof.judge.examination import Examination, examine
from aliasproof.judge.trial import Case, Trial
from aliasproof.oracles.contract import Contract
from aliasproof.oracles.errors import skeleton
from aliasproof.oracles.observation import observe
from aliasproof.oracles.stage import Stage
from aliasproof.targets.registry import TARGETS, target
from aliasproof.targets.second_calls import SECOND_CALLS
from aliasproof.targets.target import Build, Function, Target
from aliasproof.targets.variants import VARIANTS

# Compilers beyond torch have tests of their own.
OF_TORCH = {name: each for name, each in TARGETS.items() if each.needs is None}


@pytest.fixture(params=OF_TORCH.values(), ids=list(OF_TORCH))
def tested(request: pytest.FixtureRequest) -> Target:
    """Each target of torch."""
    found: Target = request.param
    return found


# Dynamo wraps errors, and AOTAutograd runs differently behind it. A package takes five seconds.
DIRECT = {
    name: each
    for name, each in OF_TORCH.items()
    if "torch.compile(" not in each.recipe and name != "aot-inductor"
}


@pytest.fixture(params=DIRECT.values(), ids=list(DIRECT))
def direct(request: pytest.FixtureRequest) -> Target:
    """Each target whose recipe does not go through Dynamo."""
    found: Target = request.param
    return found


def mutate_and_view(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    x.mul_(2)
    x[0].add_(y[1])
    return x.t(), x + y


def swap(x: Tensor, y: Tensor) -> object:
    saved = x.clone()
    x.copy_(y)
    y.copy_(saved)
    return saved


RIGHT: dict[str, Function] = {
    "nothing": lambda x, y: None,
    "an input": lambda x, y: x,
    "out=": lambda x, y: torch.add(x, 1, out=y),
    "mutate and view": mutate_and_view,
    "swap": swap,
    "a chain of views": lambda x, y: x.t()[1:].unsqueeze(0).select(2, 0).mul_(3),
}


@pytest.fixture(params=RIGHT.values(), ids=list(RIGHT))
def right(request: pytest.FixtureRequest) -> Function:
    """A function of two matrices that every target compiles correctly."""
    found: Function = request.param
    return found


def matrix(rows: int = 3) -> Tensor:
    return torch.arange(1.0, 3 * rows + 1).view(rows, 3)


def vector(count: int = 4) -> Tensor:
    return torch.arange(float(count))


def examined(program: Program, name: str) -> Examination:
    return examine(Case.of(program), target(name), attribute=False)


def trial_of(found: Examination) -> Trial:
    """The trial of an examination that was not rejected."""
    assert found.trial is not None
    return found.trial


def stages_of(trial: Trial) -> list[Stage]:
    """The graphs that the target passed through."""
    assert trial.build is not None
    return trial.build.stages


def traits(value: object) -> object:
    if not isinstance(value, Tensor):
        return value
    layout = value.dtype, value.shape, value.stride(), value.storage_offset()
    return *layout, value.untyped_storage().tolist()


def shown_traits(value: object) -> object:
    """Without the bytes around an output: a call may leave them uninitialised (`resize_`)."""
    if not isinstance(value, Tensor):
        return value
    dense = value.resolve_conj().resolve_neg().clone(memory_format=torch.contiguous_format)
    layout = value.dtype, value.shape, value.stride(), value.storage_offset()
    return *layout, dense.untyped_storage().tolist()


def ends(function: Function, inputs: Sequence[Tensor]) -> object:
    """The end state of a run, in a form that can be compared."""
    seen = observe(function, inputs)
    if seen.error is not None:
        return skeleton(seen.error)
    return list(map(shown_traits, seen.outputs)), list(map(traits, seen.inputs))


def compiled_ends(case: Case, compile_: Callable[[Function, Sequence[Tensor]], Function]) -> object:
    """The end state of a run that begins with the compilation."""

    def run(*inputs: Tensor) -> object:
        return compile_(case.function, case.fresh_inputs())(*inputs)

    return ends(run, case.fresh_inputs())


class Doubled(torch.autograd.Function):
    """A planted mistake: the gradient is twice what it should be."""

    @staticmethod
    def forward(ctx: object, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: object, *given: Tensor) -> Tensor:
        return given[0] * 2


def planted(build: Callable[..., Build], *names: str) -> Target:
    """A target with this build, in variants of second calls and gradients."""
    variants = tuple(VARIANTS[name] for name in ("grad", *SECOND_CALLS))
    plain = Target("wrong", "", Contract(), build, "def compiled(", variants=variants)
    return plain.with_(*(VARIANTS[name] for name in names))


def defined_by(text: str, **names: object) -> dict[str, Any]:
    """The names that a text defines, such as a recipe, given torch and these names."""
    namespace = {"torch": torch, **names}
    exec(text, namespace)
    return namespace


def printed(program: Program) -> Function:
    """The function exactly as the text of a reproducer defines it."""
    function: Function = defined_by(source(program), aten=torch.ops.aten)["program"]
    return function


def check_recipe_of_model(name: str) -> None:
    """Check that the recipe of a target writes its inputs and returns values as eager does."""
    inputs, expected = [matrix(), -matrix()], [matrix(), -matrix()]
    compiled = defined_by(target(name).recipe)["compiled"]
    outputs = compiled(mutate_and_view, clone_inputs(inputs))(*inputs)
    torch.testing.assert_close(list(outputs), list(mutate_and_view(*expected)), rtol=0, atol=0)
    assert torch.equal(inputs[0], expected[0])


def write_part(x: Tensor, y: Tensor) -> object:
    x[1:] = y[1:]
    return x + 1, y + 0
