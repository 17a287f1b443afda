"""Variants of targets: `TARGET:variant[:variant...]`, such as `fx-reinplace:decompose:symbolic`.

A variant compiles or calls in another way and promises the same, except for what its contract adds.
`aliasproof/targets/variant_table.py` says which variants there are, which targets have them, and
what each adds to the contract.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import torch
from torch import fx

from aliasproof.programs.errors import UserError, did_you_mean
from aliasproof.programs.execution import ProgramFunction, as_graph
from aliasproof.reference_pass.functionalize import Views
from aliasproof.targets import (
    aot,
    aot_eager,
    buffers,
    captured,
    control_flow,
    dynamo,
    export,
    freezing,
    fx_reinplace,
    gradients,
    identity,
    inductor,
    inductor_fx,
    inductor_reinplace,
    reference,
    second_calls,
    settings,
    torch_functionalize,
)
from aliasproof.targets.target import Build, Function, Target
from aliasproof.targets.tracing import PLAIN, Traced, Tracing, guarded
from aliasproof.targets.user_builds import UserTarget
from aliasproof.targets.variant_table import APART, INDUCTOR, OWN_CALLS, VARIANTS

BuildFunction: TypeAlias = Callable[[Function, Sequence[torch.Tensor]], Build]


# The user's targets that were looked up, by name.
OWN: dict[str, UserTarget] = {}

TRACED: Mapping[str, Traced] = {
    "functionalize": Traced(torch_functionalize.build, torch_functionalize.recipe),
    "fx-reinplace": Traced(fx_reinplace.build, fx_reinplace.recipe),
    "aot": Traced(aot.AOT.build, functools.partial(aot.recipe, keep_input_mutations=True)),
    "aot-epilogue": Traced(
        aot.AOT_EPILOGUE.build, functools.partial(aot.recipe, keep_input_mutations=False)
    ),
    "dynamo": Traced(dynamo.build, dynamo.recipe),
    "aot-eager": Traced(aot_eager.build, aot_eager.recipe),
    "inductor-reinplace": Traced(inductor_reinplace.build, inductor_reinplace.recipe),
    "inductor-fx": Traced(inductor_fx.build, inductor_fx.recipe),
    "inductor": Traced(inductor.build, inductor.recipe),
    "reference": Traced(
        reference.REFERENCE.build, functools.partial(reference.recipe, views="alias")
    ),
    "reference-copy": Traced(
        reference.REFERENCE_COPY.build, functools.partial(reference.recipe, views="copy")
    ),
}


def modern(base: str, chosen: Sequence[str]) -> tuple[str, list[str]]:
    """A target and its variants by today's names: some layers were variants once.

    Stored findings have the old names, and `aot-train` is a short one.
    """
    if base == "aot-train":
        return "aot", ["grad", *chosen]
    if base == "aot" and {"dynamo", "second-call"} & {*chosen}:
        return "aot-eager", [name for name in chosen if name != "dynamo"]
    return base, list(chosen)


_VIEWS: Mapping[str, Views] = {"reference": "alias", "reference-copy": "copy"}
# What these variants ask for is made by the backend of the reference pass.
BY_BACKEND: Mapping[str, Traced] = {
    name: Traced(
        functools.partial(reference.build_by_backend, views=views),
        functools.partial(reference.recipe_by_backend, views=views),
    )
    for name, views in _VIEWS.items()
}


# A graph with symbols is traced once, for one dtype and sharing of its inputs.
BY_BACKEND_ONLY = {*OWN_CALLS} - {"second-size", "kept-outputs"}


def varied(base: str, chosen: Sequence[str], plain: Mapping[str, Target]) -> Target:
    """A plain target with these variants, in any order.

    Raises `UserError` with the nearest name if there is no such variant, or if the target does not
    have it.
    """
    for variant in chosen:
        if "=" in variant:
            settings.parsed(variant)
        elif variant not in VARIANTS:
            hint = did_you_mean(variant, VARIANTS, otherwise=f"variants: {', '.join(VARIANTS)}")
            raise UserError(f"unknown variant '{variant}' of target '{base}'{hint}")
    reason = _inapplicable(base, chosen)
    if reason is not None:
        raise UserError(f"there is no target '{':'.join((base, *chosen))}': {reason}")
    return _with_variants(plain, base, frozenset(chosen))


def variants_of(base: str) -> list[str]:
    """The variants that a target has."""
    kind = _kind(base)
    return [variant.name for variant in VARIANTS.values() if kind in variant.targets]


def _kind(base: str) -> str:
    """What the tables call a target: its name, or what a user's target is."""
    return OWN[base].kind if base in OWN else base


def is_variant(name: str, of: str) -> bool:
    """Whether a target is another one, or that one with more variants, so that it has its bugs."""
    base, *chosen = name.split(":")
    other, *needed = of.split(":")
    return base == other and set(needed) <= set(chosen)


def _inapplicable(base: str, chosen: Collection[str]) -> str | None:
    """Why a target does not have these variants together; None if it has."""
    for variant in chosen:
        if "=" in variant:
            if base not in settings.TARGETS:
                return f"'{base}' has no settings; {', '.join(settings.TARGETS)} have"
        elif _kind(base) not in VARIANTS[variant].targets:
            own = variants_of(base)
            has = f"it has {', '.join(own)}" if own else "it has none"
            others = ", ".join(VARIANTS[variant].targets)
            return f"'{base}' has no variant '{variant}' ({has}; {others} have '{variant}')"
    if base in BY_BACKEND and "symbolic" in chosen and (by := {*chosen} & BY_BACKEND_ONLY):
        return f"'{min(by)}' needs the backend, which asks Dynamo for the sizes that are symbols"
    return next(
        (
            f"'{pair[0]}' and '{pair[1]}' exclude each other: {APART[frozenset(pair)]}"
            for pair in itertools.combinations(chosen, 2)
            if frozenset(pair) in APART
        ),
        None,
    )


# --- a target with variants -----------------------------------------------------------------------


def _with_variants(plain: Mapping[str, Target], base: str, chosen: frozenset[str]) -> Target:
    if not chosen:
        return plain[base]
    target, ordered = plain[base], [name for name in VARIANTS if name in chosen]
    contract = target.contract
    for name in ordered:
        contract = VARIANTS[name].changed(contract, base)
    summaries = [target.summary, *(VARIANTS[name].summary for name in ordered)]
    given = sorted(name for name in chosen if "=" in name)
    for name in given:
        contract = settings.changed(contract, settings.parsed(name))
    summaries += [f"with {name} in torch._inductor.config" for name in given]
    ordered += given
    build, recipe = _build(base, chosen)
    # What Dynamo does with later calls, Inductor does not do by itself.
    by_guards = base == "inductor-fx" and chosen & second_calls.SECOND_CALLS.keys()
    after = _applied(plain, plain["aot-eager"] if by_guards else target.after, chosen)
    if base in BY_BACKEND and "grad" in chosen:
        # Its backend trains through AOTAutograd, and promises no more than that.
        after = _with_variants(plain, "aot", chosen & {"grad"})
        contract = after.contract
    if base in BY_BACKEND and chosen & {"buffers", "captured", "second-grad"}:
        # Only through Dynamo is a module or a closure compiled, or a function for two grad modes.
        after = _applied(plain, plain["dynamo"], chosen)
    return Target(
        name=":".join((base, *ordered)),
        summary="; ".join(summaries),
        contract=contract,
        build=build,
        recipe=recipe,
        after=after,
        # A backend of a user may contain AOTAutograd in all variants.
        layer=_applied(plain, target.layer, chosen) if base in OWN else None,
        varies=tuple(_with_variants(plain, base, fewer) for fewer in _fewer(base, ordered)),
        conditions=_conditions(chosen),
        unavailable=target.unavailable,
        # Of several programs as one, only one part would be inside of the operator.
        group=1 if chosen & control_flow.FORMS.keys() else target.group,
        cost=target.cost,
    )


def _applied(
    plain: Mapping[str, Target], target: Target | None, chosen: frozenset[str]
) -> Target | None:
    """A target with these variants; None if it does not have them."""
    if target is None or _inapplicable(target.name, chosen) is not None:
        return None
    return _with_variants(plain, target.name, chosen)


def _fewer(base: str, chosen: Sequence[str]) -> list[frozenset[str]]:
    """The variants without one of them."""
    fewer = [frozenset(chosen) - {name} for name in chosen]
    # After a call with other sizes, Dynamo compiles for sizes that are symbols.
    if "second-size" in chosen and "symbolic" in variants_of(base):
        fewer.append(frozenset(chosen) - {"second-size"} | {"symbolic"})
    return list(dict.fromkeys(fewer))


def _build(base: str, chosen: frozenset[str]) -> tuple[BuildFunction, str]:
    """The build and the recipe of a target with these variants."""
    tracing = Tracing("decompose" in chosen, "symbolic" in chosen)
    config = dict(settings.parsed(name) for name in sorted(chosen) if "=" in name)
    build: BuildFunction
    if base in ("identity", "export"):
        plain = {"identity": identity.TARGET, "export": export.TARGET}[base]
        build, recipe = plain.build, plain.recipe
    else:
        by_backend = base in BY_BACKEND and chosen & {*OWN_CALLS} and "symbolic" not in chosen
        traced = BY_BACKEND[base] if by_backend else TRACED.get(base) or OWN[base].traced
        assert traced is not None
        given = {"config": config} if config else {}
        make, recipe = functools.partial(traced.build, **given), traced.recipe(tracing, **given)
        build = functools.partial(_guarded, make, tracing)
    for name in chosen & second_calls.SECOND_CALLS.keys():
        second = second_calls.SECOND_CALLS[name]
        # These compile a program without Dynamo otherwise. What AOTAutograd makes for inputs that
        # require gradients is only for such inputs: that is a guard of Dynamo.
        if base in INDUCTOR or (base in BY_BACKEND and name == "second-grad"):
            build = functools.partial(_by_dynamo, build)
        return functools.partial(second.build, build), second.recipe(recipe)
    for name in chosen & control_flow.FORMS.keys():
        form = control_flow.FORMS[name]
        # `scan` returns its results in another structure if Dynamo does not compile it.
        if base == "identity" and name != "scan":
            build = control_flow.without_dynamo
        return functools.partial(form.build, build), form.recipe(recipe)
    if "grad" in chosen:
        return functools.partial(gradients.build, build), gradients.recipe(recipe)
    if "freezing" in chosen:
        return functools.partial(freezing.build, build), freezing.recipe(recipe)
    if "captured" in chosen:
        closed = functools.partial(captured.build, build)
        return functools.partial(_by_dynamo, closed), captured.recipe(recipe)
    if "buffers" in chosen:
        with_buffers = functools.partial(buffers.build, build)
        return functools.partial(_by_dynamo, with_buffers), buffers.recipe(recipe)
    return build, recipe


def _by_dynamo(build: BuildFunction, function: Function, inputs: Any) -> Build:
    """Compile a program as a function of a user is."""
    if isinstance(function, ProgramFunction):
        function = fx.GraphModule(torch.nn.Module(), as_graph(function.program))
    return build(function, inputs)


def _guarded(
    build: Callable[..., Build], tracing: Tracing, function: Function, inputs: Any
) -> Build:
    found = build(function, inputs, tracing)
    if tracing == PLAIN or not tracing.symbolic or not found.stages:
        return found
    return replace(found, function=guarded(found.stages[0].graph, found.function))


def _conditions(chosen: frozenset[str]) -> Any:
    if "grad" in chosen:
        return gradients.conditions
    changing = {**second_calls.SECOND_CALLS, **control_flow.FORMS}
    found = chosen & changing.keys()
    return changing[next(iter(found))].conditions if found else None


def folder_name(name: str) -> str:
    """The name of a target as a part of a file name: some systems allow no colon there.

    A user's target can be in a file, whose path has slashes.
    """
    return re.sub(r"[^\w.-]", "_", name.replace(":", ".")).lstrip("._")
