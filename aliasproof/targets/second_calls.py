"""Variants with a second call, for which what the first call compiled must be right, too.

`aot_function` compiles once and checks nothing in later calls. What a graph assumes about its
inputs is checked by the guards of Dynamo: on sizes, strides, dtypes and `requires_grad`
(`TENSOR_MATCH` in torch/_dynamo/guards.py), and on sharing, for which AOTAutograd asks
(`DuplicateInputs` and `StorageOverlap` in torch/_guards.py; `compute_overlapping_inputs` in
torch/_functorch/_aot_autograd/input_output_analysis.py). So only through Dynamo is a second call
with other inputs promised to be right.

A `Change` compiles in a first call, whose inputs differ in one way. The second call is compared. A
`CallPair` makes both calls in eager, too, and compares all that they leave behind.
"""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch

from aliasproof.eager.definedness import Watch
from aliasproof.ir.errors import InternalError, Rejected
from aliasproof.ir.values import clone_inputs
from aliasproof.targets.first_inputs import (
    Maker,
    apart,
    converted,
    detached,
    differentiable,
    larger,
    later,
    other_dtypes,
    other_gradients,
    other_layouts,
    other_sharing,
    other_sizes,
    shares,
    strided,
    together,
)
from aliasproof.targets.gradients import requiring_gradients, with_their_gradients
from aliasproof.targets.target import (
    Build,
    Conditions,
    Function,
    MakeInputs,
    PlainBuild,
    conditions_after,
    renamed,
    source_of,
)

OPAQUE = "value hashes are of one call"


class CalledBefore:
    """A function, and the inputs of a call that comes before the one that is compared."""

    def __init__(self, function: Function, first_inputs: MakeInputs) -> None:
        self.function, self.first_inputs = function, first_inputs

    def __call__(self, *inputs: torch.Tensor) -> object:
        return self.function(*inputs)


def second_inputs_count(
    function: Function, inputs: MakeInputs, second_inputs: MakeInputs | None
) -> tuple[Function, MakeInputs]:
    """With second inputs, these are compared, and the first ones are for the call before."""
    if second_inputs is None:
        return function, inputs
    return CalledBefore(function, inputs), second_inputs


# --- a first call with other inputs ---------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Change:
    """A first call, whose inputs differ from those of the second.

    `chosen` gives the function that makes the inputs of the first call from those of the second, or
    None if there is nothing to change; it is one of `makers`. `gradients` says whether they are
    changed, and the first call is under autograd; else, inputs of both calls require the same.
    After the first call, a compiler may compile for the second one as in the variant `like`.
    """

    summary: str
    chosen: Callable[[list[torch.Tensor]], Maker | None]
    makers: tuple[Maker, ...]
    conditions: Conditions | None = None
    gradients: bool = False
    like: str | None = None

    def build(self, plain: PlainBuild, function: Function, inputs: Sequence[torch.Tensor]) -> Build:
        """Compile, and make the first call."""
        called = function.function if isinstance(function, CalledBefore) else function
        if isinstance(function, CalledBefore):
            first = list(function.first_inputs())
        else:
            maker = self.chosen(list(inputs))
            if maker is None:
                raise Rejected("the inputs have nothing that the first call could have otherwise")
            kept = maker if self.gradients else functools.partial(with_their_gradients, maker)
            first = kept(list(inputs))
        shown = clone_inputs([x.detach() for x in first])
        with self._mode():
            compiled = _called_before(plain, called, first)
        opaque = "guards choose among the graphs of several compilations"
        return Build(compiled.function, compiled.stages, opaque, shown)

    def _mode(self) -> AbstractContextManager[object]:
        return torch.enable_grad() if self.gradients else contextlib.nullcontext()

    @property
    def source(self) -> str:
        """All functions that the first inputs may need, as source."""
        return "\n\n".join(map(source_of, (shares, *self.makers, self.chosen)))

    @property
    def maker(self) -> str:
        """What makes the inputs of the first call, in a recipe."""
        return f"{self.chosen.__name__}(inputs)"

    def recipe(self, plain: str) -> str:
        """The source of `build`, from the recipe of the target without a first call."""
        first, source = f"{self.maker}(inputs)", self.source
        if "def requiring_gradients(" in plain and not self.gradients:
            first = f"with_their_gradients({self.maker}, inputs)"
            source += f"\n\n{source_of(with_their_gradients)}"
        call = f"function(*{first})"
        if self.gradients:
            call = f"with torch.enable_grad():\n        {call}"
        once, made = _compiled_once(plain, first)
        return f"""
from typing import Any

{once}
{source}

def compiled(program, inputs):
    function = {made}
    {call}
    return function
"""


def _compiled_once(plain: str, first: str) -> tuple[str, str]:
    """A recipe, and an expression for what it compiles for the first inputs.

    A recipe of one line is an expression.
    """
    line = re.fullmatch(r"def compiled\(program, inputs\):\n    return (.+)", plain.strip())
    if line is not None:
        return "", re.sub(r"\binputs\b", first, line[1])
    once = plain.strip().replace("def compiled(", "def compiled_once(")
    return f"{once}\n\n", f"compiled_once(program, {first})"


def _called_before(plain: PlainBuild, function: Function, first: Sequence[torch.Tensor]) -> Build:
    """Compile for the first call, and make it.

    Raises `Rejected` if it fails, or is undefined in eager.
    """
    eager = _clones(first)
    watch = Watch(eager)
    try:
        try:
            with watch:
                function(*eager)
        except Exception as error:
            watch.require_defined(error)
            raise
        watch.require_defined(None)
        compiled = plain(function, _clones(first))
        compiled.function(*first)
    except Rejected as reason:
        raise Rejected(f"the first call is undefined in eager: {reason}") from reason
    except InternalError:
        raise
    # Only the second call is compared: the target without it shows what is wrong with one call.
    except Exception as error:
        raise Rejected(f"the first call raises {type(error).__name__}: {error}") from error
    return compiled


def _clones(inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    return with_their_gradients(lambda given: clone_inputs(detached(given)), list(inputs))


def shortened(recipe: str, inputs: Sequence[torch.Tensor]) -> str:
    """A recipe that makes the first inputs for these inputs only."""
    for change in CHANGES.values():
        if change.source in recipe and (maker := change.chosen(list(inputs))) is not None:
            source = source_of(maker)
            recipe = recipe.replace(change.source, source)
            recipe = recipe.replace(change.maker, maker.__name__)
            if "Any" not in source:
                recipe = recipe.replace("from typing import Any\n", "", 1)
    return recipe


# --- two calls that are compared ------------------------------------------------------------------


class CalledTwice:
    """A function that is called twice, with inputs of its own each time. All outputs are kept."""

    def __init__(self, function: Any) -> None:
        self.function = function

    def __call__(self, *inputs: Any) -> list[Any]:
        half = len(inputs) // 2
        return [*self.call(inputs[:half]), *self.call(inputs[half:])]

    def call(self, inputs: Any) -> list[Any]:
        outputs = self.function(*inputs)
        return [outputs] if isinstance(outputs, torch.Tensor) else list(outputs or ())


class FedBack:
    """A function that is called twice. Outputs of the first call are inputs of the second.

    Where no output fits, an input is what the first call left of it.
    """

    def __init__(self, function: Any) -> None:
        self.function = self.__wrapped__ = function

    def __call__(self, *inputs: Any) -> list[Any]:
        first = self.call(inputs)
        left, second = [x for x in first if isinstance(x, torch.Tensor)], []
        for x in inputs:
            fits = [i for i, y in enumerate(left) if (y.shape, y.dtype) == (x.shape, x.dtype)]
            second.append(left.pop(fits[0]) if fits else x)
        return [*first, *self.call(second)]

    def call(self, inputs: Any) -> list[Any]:
        outputs = self.function(*inputs)
        return [outputs] if isinstance(outputs, torch.Tensor) else list(outputs or ())


def both_inputs(
    function: Function, inputs: MakeInputs, second_inputs: MakeInputs | None
) -> tuple[Function, MakeInputs]:
    """Two calls with equal inputs."""
    return CalledTwice(function), lambda: [*inputs(), *inputs()]


def outputs_as_inputs(
    function: Function, inputs: MakeInputs, second_inputs: MakeInputs | None
) -> tuple[Function, MakeInputs]:
    """Two calls, the second one with what the first returned."""
    return FedBack(function), inputs


@dataclass(frozen=True, slots=True)
class CallPair:
    """Two calls by a class that is printed into recipes; `made` is what it takes, as source."""

    summary: str
    caller: type[CalledTwice | FedBack]
    conditions: Conditions
    made: str
    like: str | None = None

    def build(self, plain: PlainBuild, function: Function, inputs: Sequence[torch.Tensor]) -> Build:
        """Compile the function that is called twice."""
        assert isinstance(function, self.caller)
        twice = self.caller is CalledTwice
        compiled = plain(function.function, inputs[: len(inputs) // 2] if twice else inputs)
        return Build(self.caller(compiled.function), compiled.stages, OPAQUE)

    def recipe(self, plain: str) -> str:
        """The source of `build` and `conditions`, from the recipe of the target with one call."""
        part = "inputs[: len(inputs) // 2]" if self.caller is CalledTwice else "inputs"
        caller: Any = self.caller
        name = caller.__name__
        return f"""
from typing import Any

{renamed(plain, "compiled_once")}


{source_of(caller)}

{conditions_after(plain, f"{name}(program), {self.made}")}


def compiled(program, inputs):
    return {name}(compiled_once(program.function, {part}))
"""


# --- the variants ---------------------------------------------------------------------------------

CHANGES = {
    "second-call": Change(
        "called before with inputs of other sharing; the second call counts",
        other_sharing,
        (apart, together, later),
        second_inputs_count,
    ),
    "second-layout": Change(
        "called before with inputs of other strides or offsets; the second call counts",
        other_layouts,
        (strided, later),
    ),
    "second-size": Change(
        "called before with larger inputs; the second call counts",
        other_sizes,
        (larger,),
        like="symbolic",  # sizes that differed are symbols
    ),
    "second-dtype": Change(
        "called before with inputs of another dtype; the second call counts",
        other_dtypes,
        (converted,),
    ),
    "second-grad": Change(
        "called before under autograd with inputs that require gradients (none beside 'grad');"
        " the second call counts",
        other_gradients,
        (differentiable, requiring_gradients, detached),
        gradients=True,
    ),
}
PAIRS = {
    "feed-back": CallPair(
        "called twice, the second time with the outputs of the first; all outputs are compared",
        FedBack,
        outputs_as_inputs,
        "inputs",
    ),
    "kept-outputs": CallPair(
        "called twice with equal inputs; the outputs of both calls are compared after the second",
        CalledTwice,
        both_inputs,
        "lambda: (*inputs(), *inputs())",
    ),
}
SECOND_CALLS: dict[str, Change | CallPair] = {**CHANGES, **PAIRS}
