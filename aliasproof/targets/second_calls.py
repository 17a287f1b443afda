"""Variants with a second call, for which the code that the first call compiled must be correct.

`aot_function` compiles once and checks nothing in later calls. The guards of Dynamo check what a
graph assumes about its inputs: sizes, strides, dtypes and `requires_grad` (`TENSOR_MATCH` in
torch/_dynamo/guards.py), and sharing, for which AOTAutograd requests guards (`DuplicateInputs` and
`StorageOverlap` in torch/_guards.py; `compute_overlapping_inputs` in
torch/_functorch/_aot_autograd/input_output_analysis.py). So only Dynamo promises that a second call
with other inputs is correct.

A `Change` compiles in a first call whose inputs differ in one way, and only the second call is
compared. A `CallPair` makes both calls in eager, too, and compares all their results.
"""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch

from aliasproof.eager.definedness import Watch
from aliasproof.ir.errors import InternalError, Rejected
from aliasproof.ir.values import clone_inputs
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

# --- first inputs ---------------------------------------------------------------------------------
#
# Functions that make the inputs of a first call from those of the second, by changing one property.
#
# Reproducers contain their source, so they need only torch. A function `other_...` chooses the
# property to change, and returns one of the other functions, or None.


Maker: TypeAlias = Callable[[list[torch.Tensor]], list[torch.Tensor]]


def shares(inputs: list[torch.Tensor]) -> bool:
    """Whether two of the inputs are in one storage."""
    return len({x.untyped_storage()._cdata for x in inputs}) < len(inputs)


# --- sharing --------------------------------------------------------------------------------------


def apart(inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    """The same tensors, each in a storage of its own."""
    clones = [(x, x.untyped_storage().clone()) for x in inputs]
    return [x.new_empty(0).set_(s, x.storage_offset(), x.shape, x.stride()) for x, s in clones]


def together(inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    """The same tensors, those of one dtype in one storage, if all or none require gradients."""
    by_size = sorted(inputs, key=lambda x: x.untyped_storage().nbytes())
    made = {(x.dtype, x.requires_grad): x.untyped_storage().clone() for x in by_size}
    pairs = [(x, made[x.dtype, x.requires_grad]) for x in inputs]
    return [x.new_empty(0).set_(s, x.storage_offset(), x.shape, x.stride()) for x, s in pairs]


def other_sharing(inputs: list[torch.Tensor]) -> Maker | None:
    """Apart if some share a storage, else together; if none can, at another offset."""
    if shares(inputs):
        return apart
    kinds = {(x.dtype, x.requires_grad) for x in inputs}
    return together if len(kinds) < len(inputs) else later


# --- layouts --------------------------------------------------------------------------------------


def later(inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    """The same tensors, 16 bytes later in their storages."""
    made: dict[int, torch.Tensor] = {}
    for x in inputs:
        flat = x.new_empty(0, dtype=torch.uint8).set_(x.untyped_storage())
        made.setdefault(x.untyped_storage()._cdata, torch.cat([flat.new_zeros(16), flat]))
    storages = [made[x.untyped_storage()._cdata].untyped_storage() for x in inputs]
    return [
        x.new_empty(0).set_(s, x.storage_offset() + 16 // x.itemsize, x.shape, x.stride())
        for x, s in zip(inputs, storages, strict=True)
    ]


def strided(inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    """The same tensors with dims in the opposite order, and gaps between the elements."""
    spaces = [x.new_zeros([*reversed(x.shape), 2])[..., 1] for x in inputs]
    return [
        space.permute(tuple(reversed(range(x.dim())))).copy_(x)
        for space, x in zip(spaces, inputs, strict=True)
    ]


def other_layouts(inputs: list[torch.Tensor]) -> Maker | None:
    """Other strides; where storages are shared, other offsets."""
    return later if shares(inputs) else strided


# --- sizes, dtypes, gradients ---------------------------------------------------------------------


def larger(inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    """Larger tensors: each size of 2 or more grows by 1. The new elements are 0.

    Dims have the same order in memory and the same gaps, and the offset in the storage stays.
    """
    made = []
    for x in inputs:
        sizes, strides = [n + (n > 1) for n in x.shape], list(x.stride())
        reach = new_reach = 0  # what the dims of smaller stride take, in elements
        for dim in sorted(range(x.dim()), key=lambda dim: (x.stride(dim), x.size(dim))):
            if 0 < reach <= x.stride(dim):
                strides[dim] += new_reach - reach
            reach = x.stride(dim) * max(x.size(dim), 1)
            new_reach = strides[dim] * max(sizes[dim], 1)
        flat = x.new_empty(0).set_(x.untyped_storage())
        ends = [
            sum((n - 1) * step for n, step in zip(shape, steps, strict=True))
            for shape, steps in ((x.shape, x.stride()), (sizes, strides))
        ]
        flat = torch.cat([flat, flat.new_zeros(max(ends[1] - ends[0], 0))])
        made.append(flat.as_strided(sizes, strides, x.storage_offset()))
    return made


def other_sizes(inputs: list[torch.Tensor]) -> Maker | None:
    """Larger sizes, where no storage is shared."""
    grows = any(n > 1 for x in inputs for n in x.shape)
    return larger if grows and not shares(inputs) else None


def converted(inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    """The same numbers in another dtype, with the same layouts and sharing."""
    pairs = [
        (torch.float32, torch.float64),
        (torch.complex64, torch.complex128),
        (torch.int64, torch.int32),
    ]
    other = {one: two for a, b in pairs for one, two in ((a, b), (b, a))}
    made: dict[int, torch.Tensor] = {}
    for x in inputs:
        flat = x.new_empty(0).set_(x.untyped_storage())
        key = x.untyped_storage()._cdata
        made.setdefault(key, flat.to(other.get(x.dtype, x.dtype), copy=True))
    flats = [made[x.untyped_storage()._cdata] for x in inputs]
    return [
        flat.new_empty(0).set_(flat.untyped_storage(), x.storage_offset(), x.shape, x.stride())
        for x, flat in zip(inputs, flats, strict=True)
    ]


def other_dtypes(inputs: list[torch.Tensor]) -> Maker | None:
    """Another dtype, where a storage has views of one dtype."""
    dtypes = {(x.untyped_storage()._cdata, x.dtype) for x in inputs}
    one_each = len(dtypes) == len({number for number, _ in dtypes})
    changed = converted(inputs) if one_each else inputs
    differ = any(x.dtype != y.dtype for x, y in zip(inputs, changed, strict=True))
    return converted if differ else None


def backwards(inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    """The same tensors, with the elements of each storage in the opposite order.

    Where that changes nothing, numbers become larger by 1.
    """
    made: dict[int, torch.Tensor] = {}
    for x in inputs:
        flat = x.new_empty(0, dtype=torch.uint8).set_(x.untyped_storage())
        items = flat[: (n := flat.numel() // x.itemsize) * x.itemsize].view(n, x.itemsize)
        both = torch.cat([items.flip(0).flatten(), flat[items.numel() :]])
        if torch.equal(both, flat) and x.is_floating_point() and x.itemsize > 1:
            both[: items.numel()].view(x.dtype).add_(1)
        made.setdefault(x.untyped_storage()._cdata, both)
    storages = [made[x.untyped_storage()._cdata].untyped_storage() for x in inputs]
    return [
        x.new_empty(0).set_(s, x.storage_offset(), x.shape, x.stride())
        for x, s in zip(inputs, storages, strict=True)
    ]


def other_values(inputs: list[torch.Tensor]) -> Maker | None:
    """Backwards, so that indices stay in their range; None if the values stay the same."""
    for x, y in zip(inputs, backwards(inputs), strict=True):
        one, other = (x.new_empty(0, dtype=torch.uint8).set_(it.untyped_storage()) for it in (x, y))
        if not torch.equal(one, other):
            return backwards
    return None


def differentiable(inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    """The same tensors, computed from leaves that require gradients."""
    with torch.enable_grad():
        return [
            x.clone().requires_grad_(x.is_floating_point() or x.is_complex()).clone()
            for x in inputs
        ]


def detached(inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    """The same tensors without gradients."""
    return [x.detach() for x in inputs]


def other_gradients(inputs: list[torch.Tensor]) -> Maker | None:
    """With gradients, for dtypes that have them; without, if some require them."""
    if any(x.requires_grad for x in inputs):
        return detached
    if not any(x.is_floating_point() or x.is_complex() for x in inputs):
        return None
    return requiring_gradients if shares(inputs) else differentiable


# --- second calls ---------------------------------------------------------------------------------


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
    """If there are second inputs, compare these, and use the first for the call before."""
    if second_inputs is None:
        return function, inputs
    return CalledBefore(function, inputs), second_inputs


# --- a first call with other inputs ---------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Change:
    """A first call, whose inputs differ from those of the second.

    `chosen` maps the inputs of the second call to one of `makers`, which makes the inputs of the
    first call from them; or to None if there is nothing to change. If `gradients` is set, the maker
    changes `requires_grad`, and the first call runs under autograd; else, inputs of both calls
    require the same gradients. After the first call, a compiler may compile for the second one as
    in the variant `like`.
    """

    summary: str
    chosen: Callable[[list[torch.Tensor]], Maker | None]
    makers: tuple[Maker, ...]
    conditions: Conditions | None = None
    gradients: bool = False
    like: str | None = None

    def build(self, plain: PlainBuild, function: Function, inputs: Sequence[torch.Tensor]) -> Build:
        """Compile, and make the first call.

        Raises `Rejected` if the call fails or is undefined in eager.
        """
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
        with torch.enable_grad() if self.gradients else contextlib.nullcontext():
            watch = Watch(eager := _clones(first))
            try:
                try:
                    with watch:
                        called(*eager)
                except Exception as error:
                    watch.require_defined(error)
                    raise
                watch.require_defined(None)
                compiled = plain(called, _clones(first))
                compiled.function(*first)
            except Rejected as reason:
                raise Rejected(f"the first call is undefined in eager: {reason}") from reason
            except InternalError:
                raise
            # The target without the second call already tests a single call.
            except Exception as error:
                raised = getattr(error, "inner_exception", error)  # without what Dynamo adds
                what = f"{type(raised).__name__}: {raised}"
                raise Rejected(f"the first call raises {what}") from error
        opaque = "guards choose among the graphs of several compilations"
        return Build(compiled.function, compiled.stages, opaque, shown)

    @property
    def source(self) -> str:
        """All functions that the first inputs may need, as source."""
        return "\n\n".join(map(source_of, (shares, *self.makers, self.chosen)))

    @property
    def maker(self) -> str:
        """In a recipe, the expression that makes the inputs of the first call."""
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
        made = f"compiled_once(program, {first})"
        once = plain.strip().replace("def compiled(", "def compiled_once(") + "\n\n"
        line = re.fullmatch(r"def compiled\(program, inputs\):\n    return (.+)", plain.strip())
        if line is not None:  # the only statement becomes the expression
            made, once = re.sub(r"\binputs\b", first, line[1]), ""
        return f"""
from typing import Any

{once}
{source}

def compiled(program, inputs):
    function = {made}
    {call}
    return function
"""


def _clones(inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    return with_their_gradients(lambda given: clone_inputs(detached(given)), list(inputs))


def shortened(recipe: str, inputs: Sequence[torch.Tensor]) -> str:
    """A recipe with only the maker that these inputs need."""
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


@dataclass(frozen=True, slots=True)
class CallPair:
    """Two calls by a class that is printed into recipes. `made`: its inputs as source."""

    summary: str
    caller: type[CalledTwice | FedBack]
    conditions: Conditions
    made: str
    like: str | None = None

    def build(self, plain: PlainBuild, function: Function, inputs: Sequence[torch.Tensor]) -> Build:
        """Compile the function, and call the result twice."""
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
    "second-values": Change(
        "called before with inputs of other values; the second call counts",
        other_values,
        (backwards,),
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
        lambda function, inputs, second_inputs: (FedBack(function), inputs),
        "inputs",
    ),
    "kept-outputs": CallPair(
        "called twice with equal inputs; the outputs of both calls are compared after the second",
        CalledTwice,
        lambda function, inputs, second_inputs: (
            CalledTwice(function),
            lambda: [*inputs(), *inputs()],
        ),
        "lambda: (*inputs(), *inputs())",
    ),
}
SECOND_CALLS: dict[str, Change | CallPair] = {**CHANGES, **PAIRS}
