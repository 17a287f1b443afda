"""Variant *grad*: inputs require gradients, and gradients are outputs.

AOTAutograd then compiles a joint graph, and splits it into a forward and a backward graph. Eager
and the target run under the same conditions. In variant *half-grad*, about half of the inputs
require no gradients. Reproducers contain the source of some functions below.
"""

from __future__ import annotations

import functools
import inspect
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from aliasproof.ir.errors import Rejected
from aliasproof.ir.execution import ProgramFunction
from aliasproof.ir.program import Program
from aliasproof.ir.regions import dense_strides
from aliasproof.targets.target import (
    Build,
    Function,
    MakeInputs,
    PlainBuild,
    conditions_after,
    renamed,
    source_of,
)


@torch.enable_grad()
def requiring_gradients(inputs: list[torch.Tensor], kinds: Any = ()) -> list[torch.Tensor]:
    """The inputs, computed from leaves: a leaf, and a view of a leaf, may not be written in place.

    Inputs on one storage are views of one clone. Those of a dtype without gradients stay. `kinds`
    has other wishes, for inputs by index: "leaf", or "none" for all inputs on that storage.
    """
    made: list[Any] = list(inputs)
    numbers = [x.untyped_storage()._cdata for x in inputs]
    given = {numbers[i]: kind for i, kind in dict(kinds).items()}
    for number in dict.fromkeys(numbers):
        if given.get(number) == "none":
            continue
        views = {i: inputs[i] for i in range(len(inputs)) if numbers[i] == number}
        x = next(iter(views.values()))
        if any(view.dtype != x.dtype for view in views.values()) or not (
            x.is_floating_point() or x.is_complex()
        ):
            continue
        if given.get(number) == "leaf":
            made = [
                views[i].detach().requires_grad_() if i in views else y for i, y in enumerate(made)
            ]
            continue
        flat: Any = x.new_empty(0)
        base = flat.set_(x.untyped_storage()).requires_grad_().clone()
        for i, view in views.items():
            whole = len(views) == 1 and view.is_contiguous() and view.numel() == len(base)
            layout = (view.shape, view.stride(), view.storage_offset())
            # Half of the real inputs are no views of anything.
            made[i] = base.reshape(view.shape).clone() if whole else base.as_strided(*layout)
    for x, y in zip(inputs, made, strict=True):
        y.__dict__.update(vars(x))  # such as that it is static to Dynamo
    return made


def half(inputs: list[torch.Tensor]) -> dict[int, str]:
    """No gradients for every second storage of inputs; their sizes say where to begin."""
    able = [x for x in inputs if x.is_floating_point() or x.is_complex()]
    numbers = list(dict.fromkeys(x.untyped_storage()._cdata for x in able))
    without = numbers[sum(x.numel() for x in inputs) % 2 :: 2] if len(numbers) > 1 else []
    return {i: "none" for i, x in enumerate(inputs) if x.untyped_storage()._cdata in without}


@torch.no_grad()
def with_their_gradients(make: Any, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    """What a function makes of the inputs, requiring gradients as they do."""
    leaves = {i: "leaf" if x.requires_grad else "none" for i, x in enumerate(inputs) if x.is_leaf}
    return requiring_gradients(make(inputs), leaves)


class WithGradients:
    """A function that also returns the gradients of the leaves that its inputs come from.

    The end of the backward pass is fixed: numbers for each output, and for each input afterwards.
    """

    def __init__(self, function: Any) -> None:
        self.function = function

    def __call__(self, *inputs: Any) -> list[Any]:
        leaves = list(dict.fromkeys(self.leaf(x) for x in inputs if x.requires_grad))
        with torch.enable_grad():
            outputs = self.function(*inputs)
            outputs = [outputs] if isinstance(outputs, torch.Tensor) else list(outputs or ())
            ends = [x for x in (*outputs, *inputs) if getattr(x, "requires_grad", False)]
            # Autograd takes no gradient for a view that was made without gradients.
            ends = [x for x in ends if not (x.is_leaf and x._is_view())]
            numbers = [torch.arange(x.numel()).remainder(5).add(1).reshape(x.shape) for x in ends]
            given = [number.to(x) for number, x in zip(numbers, ends, strict=True)]
        if ends and leaves:
            gradients = torch.autograd.grad(ends, leaves, given, materialize_grads=True)
            outputs += [gradient.clone() for gradient in gradients]
        return outputs

    def leaf(self, x: Any) -> Any:
        if x.is_leaf:
            return x
        node = x.grad_fn
        while node.next_functions:
            node = node.next_functions[0][0]
        return node.variable


def conditions(
    function: Function,
    inputs: MakeInputs,
    second_inputs: MakeInputs | None,
    *,
    wishes: Callable[[list[torch.Tensor]], dict[int, str]] = lambda inputs: {},
) -> tuple[Function, MakeInputs]:
    """The function with gradients, and inputs that require them, except as `wishes` says."""
    called = inspect.unwrap(function)  # variant *feed-back* wraps it
    # A user's function that returns gradients as outputs already.
    if getattr(called, "gradients", False):
        raise Rejected("the function runs autograd itself; check it without the variant")

    kinds = kinds_of(called)

    def made() -> list[torch.Tensor]:
        program = called.program if isinstance(called, ProgramFunction) else None
        # Autograd records an in-place `_foreach_` call.
        if program is not None and any(
            call.grad and call.op.startswith("aten._foreach_") and call.mutates()
            for call in program.instructions
        ):
            raise Rejected(
                "under a dispatch mode, torch gives wrong gradients of a `_foreach_` call that"
                " writes a view, so eager cannot be observed"
            )
        plain = list(inputs())
        tensors = requiring_gradients(plain, {**wishes(plain), **kinds})
        if not any(tensor.requires_grad for tensor in tensors):
            raise Rejected("no input can require gradients")
        return tensors

    return WithGradients(function), made


conditions_of_half = functools.partial(conditions, wishes=half)


def kinds_of(function: Function) -> dict[int, str]:
    """By index, how inputs require gradients that are not computed from a leaf."""
    if isinstance(function, ProgramFunction):
        views, storages = function.program.inputs, function.program.storages
        kinds = {index: storages[view.storage].gradient for index, view in enumerate(views)}
        return {index: kind for index, kind in kinds.items() if kind != "computed"}
    # Constants such as the buffers of a user's module: eager writes them under autograd.
    constants: frozenset[int] = getattr(function, "constants", frozenset())
    return dict.fromkeys(sorted(constants), "none")


def build(plain: PlainBuild, function: Function, inputs: Sequence[torch.Tensor]) -> Build:
    """Compile the function that `WithGradients` wraps; the backward pass starts outside of it."""
    assert isinstance(function, WithGradients)
    with torch.enable_grad():  # some targets compile at once
        compiled = plain(function.function, inputs)
    return Build(
        WithGradients(compiled.function), compiled.stages, "value hashes have no gradients"
    )


def recipe(plain: str, call: str = "requiring_gradients(inputs())") -> str:
    """The source of `build` and `conditions`, from the recipe of the target without gradients.

    `call` is how a script makes inputs that require gradients.
    """
    return f"""
from typing import Any

{renamed(plain, "without_gradients")}


{source_of(requiring_gradients)}


{source_of(WithGradients)}

{conditions_after(plain, f"WithGradients(program), lambda: {call}")}


def compiled(program, inputs):
    return WithGradients(without_gradients(program.function, inputs))
"""


def recipe_of_half(plain: str) -> str:
    """As `recipe`, but about half of the inputs require no gradients."""
    return f"{source_of(half)}\n{recipe(plain, _HALF)}"


_HALF = "requiring_gradients(inputs(), half(inputs()))"


def for_program(
    recipe: str, program: Program, inputs: list[torch.Tensor]
) -> tuple[str, list[torch.Tensor]]:
    """A recipe in which inputs require gradients as the program says; and inputs that do so."""
    if "def requiring_gradients(" not in recipe:
        return recipe, inputs
    kinds = {**(half(inputs) if _HALF in recipe else {}), **kinds_of(ProgramFunction(program))}
    wishes = f", {kinds}" if kinds else ""
    call = f"lambda: requiring_gradients(inputs(){wishes})"
    recipe = re.sub(r"lambda: requiring_gradients\(inputs\(\).*", call, recipe)
    recipe = recipe.replace(source_of(half), "")
    return _as_short(recipe, program, kinds, wishes), requiring_gradients(inputs, kinds)


# Expressions for inputs of which no two share a storage. A leaf may not be written in place, so a
# `computed` input is none; its leaf is flat, as in `requiring_gradients`.
_SHORT = {
    "none": "NAME",
    "leaf": "NAME.requires_grad_()",
    "computed": "NAME.flatten().requires_grad_().reshape(NAME.shape).clone()",
}


def _as_short(recipe: str, program: Program, kinds: Mapping[int, str], wishes: str) -> str:
    """A recipe with a short `requiring_gradients`, as a user would write it, for simple inputs."""
    shared = len({view.storage for view in program.inputs}) < len(program.inputs)
    if shared or recipe.count("requiring_gradients(") > 2:
        return recipe
    names, made = [f"x{index}" for index in range(len(program.inputs))], []
    for index, view in enumerate(program.inputs):
        able = view.dtype.is_floating_point or view.dtype.is_complex
        kind = kinds.get(index, "computed") if able else "none"
        storage = program.storages[view.storage]
        dense = view.strides == dense_strides(view.sizes) and view.offset == 0
        # All elements of the storage, in their order.
        whole = dense and view.dtype == storage.dtype and math.prod(view.sizes) == storage.length
        if kind == "computed" and (view.static or not whole):
            return recipe
        made.append(_SHORT[kind].replace("NAME", names[index]))
    given = ", ".join(names) if len(names) > 1 else f"({names[0]},)"
    function = (
        f"def requiring_gradients(inputs):\n    {given} = inputs\n    return [{', '.join(made)}]"
    )
    recipe = recipe.replace(source_of(requiring_gradients), function)
    return recipe.replace(f"(inputs(){wishes})", "(inputs())")
