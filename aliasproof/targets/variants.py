"""Variants of targets: `TARGET:variant[:variant...]`, such as `fx-reinplace:decompose:symbolic`.

A variant compiles or calls a target differently and promises the same, except for the clauses that
it adds. Each target lists the variants that it takes.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch._inductor import config

from aliasproof.ir.errors import UserError, did_you_mean
from aliasproof.ir.execution import ProgramFunction
from aliasproof.ir.ordinary_syntax import ordinary_source
from aliasproof.oracles.contract import Contract, Promise, Waiver, draws_nothing
from aliasproof.plugins import CompilerPlugin, plugins
from aliasproof.targets import (
    buffers,
    control_flow,
    gradients,
    second_calls,
)
from aliasproof.targets.clauses import DATA_DEPENDENT_SHAPE, MIXED_BASES, NEEDS_NUMBERS
from aliasproof.targets.target import NOTHING, Build, Function, PlainBuild, Variant
from aliasproof.targets.tracing import Tracing

# --- settings -------------------------------------------------------------------------------------
#
# Settings of `torch._inductor.config` in the name of a target: `inductor:memory_planning=True`.


# Promises that a setting adds. A setting keeps the other promises of the default.
MADE: Mapping[str, Promise] = {
    "emulate_precision_casts=True": Promise.ROUNDING,
}
OTHER_NUMBERS = (
    "random operators draw other numbers than in eager, from the same distribution, unless"
    " fallback_random is set (torch/_inductor/config.py)"
)
# Promises that a setting removes.
WAIVED: Mapping[str, tuple[Waiver, ...]] = {
    "fallback_random=False": (
        Waiver(Promise.VALUES, OTHER_NUMBERS, unless=draws_nothing),
        Waiver(Promise.INPUTS, OTHER_NUMBERS, unless=draws_nothing),
    ),
    "keep_output_stride=False": (
        Waiver(Promise.STRIDE, "outputs keep eager's strides only with keep_output_stride"),
    ),
}


# Settings that start passes by name, and the prefix of torch's lists of these passes.
PASSES_BY_NAME: Mapping[str, str] = {
    "pre_grad_fusion_options": "PRE_GRAD",
    "post_grad_fusion_options": "POST_GRAD",
}


def _passes_by_name(name: str, written: str) -> dict[str, object]:
    """The value of the setting for passes such as 'split_cat_pass+batch_relu', or for 'all'."""
    from torch._inductor.fx_passes import group_batch_fusion, split_cat  # noqa: PLC0415

    prefix = PASSES_BY_NAME[name]
    fusions: Iterable[str] = getattr(group_batch_fusion, f"{prefix}_FUSIONS")
    known = [*getattr(split_cat, f"{prefix}_PATTERNS"), *fusions]
    chosen = known if written == "all" else written.split("+")
    for part in chosen:
        if part not in known:
            raise UserError(f"'{name}' starts no pass '{part}'{did_you_mean(part, known)}")
    return {part: {} for part in chosen}


def variant_of_setting(text: str) -> Variant:
    """The variant with a setting. Raises `UserError` if Inductor has no such setting or value."""
    name, _, written = text.partition("=")
    known = config.get_config_copy()
    if name not in known:
        raise UserError(f"torch._inductor.config has no '{name}'{did_you_mean(name, known)}")
    try:
        value = ast.literal_eval(written)
    except (ValueError, SyntaxError):
        value = written
    default = known[name]
    if name in PASSES_BY_NAME and isinstance(value, str):
        value = _passes_by_name(name, written)
    if default is not None and type(value) is not type(default):
        expected = f"a value of type {type(default).__name__}, such as {default!r}"
        raise UserError(f"'{name}' of torch._inductor.config is {written!r}; give {expected}")

    def promises(contract: Contract) -> Contract:
        made = MADE.get(f"{name}={value}")
        kept = (waiver for waiver in contract.waivers if waiver.promise is not made)
        return replace(contract, waivers=(*kept, *WAIVED.get(f"{name}={value}", ())))

    summary = f"with {text} in torch._inductor.config"
    return Variant(text, summary, tracing=Tracing(config={name: value}), promises=promises)


DECOMPOSE = Variant(
    "decompose",
    "the trace decomposes operators as core ATen and Inductor do",
    Contract(
        waivers=(
            Waiver(
                Promise.EQUIVALENCE,
                "a decomposition computes the same by other operators"
                " (torch/_inductor/decomposition.py)",
            ),
        )
    ),
    Tracing(decompose=True),
)
SYMBOLIC = Variant(
    "symbolic",
    "traced with sizes as symbols; the run satisfies the guards of the trace",
    Contract(refusals=(DATA_DEPENDENT_SHAPE, NEEDS_NUMBERS)),
    Tracing(symbolic=True),
)
GRAD = Variant(
    "grad",
    "inputs require gradients, gradients are compared too, the backward pass is compiled",
    # Inputs that are leaves may share a storage, and are no views in autograd.
    Contract(refusals=(MIXED_BASES,)),
    build=gradients.build,
    recipe=gradients.recipe,
    conditions=gradients.conditions,
    left_out=frozenset(("bool", "uint8", "int8", "int16", "int32", "int64")),
)
HALF_GRAD = replace(
    GRAD,
    name="half-grad",
    summary="as 'grad', and about half of the storages of inputs require none",
    recipe=gradients.recipe_of_half,
    conditions=gradients.conditions_of_half,
    like="grad",
)
GRADS = (GRAD, HALF_GRAD)
CAPTURED = Variant(
    "captured",
    "the function closes over a half of its inputs, or over what it captures itself",
    Contract(preconditions=(buffers.NOT_WRITTEN,), refusals=(buffers.NOT_WRAPPED,)),
    build=buffers.build_captured,
    recipe=buffers.recipe_of_captured,
    apart={
        "symbolic": "{} exclude each other: a symbolic trace takes no real tensor that is no input"
    },
)
BUFFERS = Variant(
    "buffers",
    "half of the inputs are buffers of a module, whose `forward` is the function",
    build=buffers.build,
    recipe=buffers.recipe,
)
KEPT_BUFFERS = Variant(
    "kept-buffers",
    "half of the inputs are buffers of a module that is compiled once and called twice; the second"
    " call is compared, and the buffers after it",
    build=buffers.build_kept,
    recipe=buffers.recipe_of_kept,
    conditions=buffers.conditions,
)
SAME_INPUT = Variant(
    "same-input",
    "two inputs of equal sizes and dtypes are one tensor, passed twice, in eager too",
    build=lambda plain, function, inputs: plain(function, inputs),  # only the inputs differ
    recipe=buffers.recipe_of_same,
    conditions=buffers.conditions_of_same,
    alone=True,  # in a group of programs, only two inputs would be one
)


def _build_as_written(
    plain: PlainBuild, function: Function, inputs: Sequence[torch.Tensor]
) -> Build:
    """Compile the program's text in ordinary syntax, which makes the same ATen calls.

    Passes before AOTAutograd match functions and methods of torch, such as `torch.split(x, 2)` and
    `x.t()`, but no ATen operators. Dynamo's graph has these only where the source calls them. A
    user's function is compiled as written in any case.
    """
    if not isinstance(function, ProgramFunction):
        return plain(function, inputs)
    scope: dict[str, Any] = {"torch": torch, "aten": torch.ops.aten}
    text = ordinary_source(function.program)
    # In ordinary syntax, a program without outputs returns None.
    text += "" if function.program.outputs else "    return ()\n"
    exec(text, scope)  # noqa: S102 - our own text
    return plain(scope["program"], inputs)


AS_WRITTEN = Variant(
    "as-written",
    "Dynamo captures the program in ordinary syntax: functions of torch, methods, operators",
    build=_build_as_written,
    recipe=lambda plain: plain,  # a reproducer has the program in ordinary syntax
)
FREEZING = Variant(
    buffers.FREEZING,
    "half of the inputs are buffers of a module, and Inductor inlines them as constants",
    Contract(preconditions=(buffers.ONE_VIEW,)),
    build=buffers.build_frozen,
    recipe=buffers.recipe_of_frozen,
    apart={
        grad.name: "{} exclude each other: Inductor freezes only without gradients"
        for grad in GRADS
    },
)


def options_of(plugin: CompilerPlugin) -> tuple[Variant, ...]:
    """The options of a compiler beyond torch, as variants that its targets can take."""
    return tuple(
        Variant(name, summary, tracing=Tracing(options=frozenset({name})))
        for name, summary in plugin.options.items()
    )


SECOND_CALLS = tuple(
    Variant(
        name,
        called.summary,
        build=called.build,
        recipe=called.recipe,
        conditions=called.conditions,
        like=called.like,
        joins=frozenset(grad.name for grad in GRADS),
        inner=name == "feed-back",  # one backward pass goes through both calls
    )
    for name, called in second_calls.SECOND_CALLS.items()
)
*_CHANGES, FEED_BACK, KEPT_OUTPUTS = SECOND_CALLS
SECOND_CALL, SECOND_LAYOUT, SECOND_SIZE, SECOND_DTYPE, SECOND_VALUES, SECOND_GRAD = _CHANGES
_CARRIED = "{{}} exclude each other: what {} has the sizes of the sample"
CONTROL_FLOW = tuple(
    Variant(
        name,
        form.summary,
        build=form.build,
        recipe=form.recipe,
        conditions=form.conditions,
        apart={"symbolic": _CARRIED.format(form.carried)} if form.carried else {},
        # In a group of programs, only one part would be inside the operator.
        alone=True,
    )
    for name, form in control_flow.FORMS.items()
)
LOOPS = tuple(it for it in CONTROL_FLOW if control_flow.FORMS[it.name].carried)
# `aot_function` makes no `ShapeEnv`, which the trace of a loop needs.
WITHOUT_LOOP = tuple(it for it in CONTROL_FLOW if not control_flow.FORMS[it.name].twice)

# For targets with Dynamo: its guards choose the code for the inputs at hand, and it lifts captured
# tensors to inputs.
GUARDED_CAPTURED = replace(CAPTURED, clauses=NOTHING, build=buffers.build_captured_by_dynamo)
GUARDED_BUFFERS = replace(BUFFERS, build=buffers.build_by_dynamo)
GUARDED = (*GRADS, GUARDED_CAPTURED, GUARDED_BUFFERS, SAME_INPUT, AS_WRITTEN, *SECOND_CALLS)

# In the order in which a name lists them.
VARIANTS: Mapping[str, Variant] = {
    variant.name: variant
    for variant in (
        DECOMPOSE,
        SYMBOLIC,
        *GRADS,
        CAPTURED,
        BUFFERS,
        KEPT_BUFFERS,
        SAME_INPUT,
        AS_WRITTEN,
        *SECOND_CALLS,
        *CONTROL_FLOW,
        FREEZING,
        *(option for plugin in plugins().values() for option in options_of(plugin)),
    )
}


def by_dynamo(variant: Variant) -> Variant:
    """The variant for a target that otherwise compiles programs without Dynamo."""
    return replace(variant, tracing=replace(variant.tracing, guarded=True))


def by_name(text: str) -> Variant | None:
    """The variant of that name, or that setting of Inductor; None if there is none.

    Raises `UserError` if Inductor has no such setting or value.
    """
    return variant_of_setting(text) if "=" in text else VARIANTS.get(text)


def is_variant(name: str, of: str) -> bool:
    """Whether target `name` is `of`, maybe with more variants, so that it has the bugs of `of`."""
    base, *chosen = name.split(":")
    other, *needed = of.split(":")
    alike = {VARIANTS[own].like for own in chosen if own in VARIANTS}
    return base == other and set(needed) <= {*chosen, *alike}


def folder_name(name: str) -> str:
    """The name of a target as a part of a file name: some systems allow no colon there.

    The name of a user's target can contain a path with slashes.
    """
    return re.sub(r"[^\w.-]", "_", name.replace(":", ".")).lstrip("._")
