"""All targets by name. `TARGETS` has the plain ones; each may have variants.

A user's own pass, backend or `Target` is a target, too (`aliasproof/targets/user_names.py`).
"""

from __future__ import annotations

import json
import pkgutil
from collections.abc import Callable, Sequence
from typing import TypeAlias

import torch

from aliasproof import torch_parts
from aliasproof.ir.errors import UserError, did_you_mean
from aliasproof.plugins import BROKEN, plugins
from aliasproof.targets import names, user_names, user_targets, variants
from aliasproof.targets.target import NOTHING, Build, Function, Target, Variant
from aliasproof.targets.tracing import Tracing
from aliasproof.targets.user_names import CodeName
from aliasproof.targets.user_targets import BackendSource
from aliasproof.targets.variants import VARIANTS

torch_parts.require(torch_parts.EVERYTHING)


def _of_torch(name: str) -> Target:
    """A target of torch. If torch lacks a part that it needs, a target that says so replaces it."""
    reason = torch_parts.why_off(f"target {name}")
    if reason is None:
        found: Target = pkgutil.resolve_name(f"aliasproof.targets.{names.OF_TORCH[name]}")
        return found
    return Target(name, reason, NOTHING, _never_built, "", lacking=lambda: reason)


def _never_built(*_: object) -> Build:
    raise AssertionError("a target that is off is never built")


TARGETS: dict[str, Target] = {name: _of_torch(name) for name in names.OF_TORCH}


def _add_targets_of_plugins() -> None:
    """Add the targets of compilers beyond torch. One that cannot be loaded is `BROKEN`."""
    for plugin in plugins().values():
        for name, place in plugin.targets.items():
            try:
                off = torch_parts.why_off(f"target {plugin.name}") if not plugin.missing() else None
                if off is not None:
                    raise UserError(off)
                found = pkgutil.resolve_name(f"{plugin.package}.{place}")
                if not isinstance(found, Target) or found.name != name or name in TARGETS:
                    raise UserError("expected a Target of this name, which no other target has")
            except Exception as error:  # noqa: BLE001 - of another package
                BROKEN[name] = f"{plugin.package}.{place}: {type(error).__name__}: {error}"
            else:
                TARGETS[name] = found


_add_targets_of_plugins()

# The user's targets that were looked up, by name.
OWN: dict[str, Target] = {}


def target(name: str) -> Target:
    """The target of that name: `TARGET` or `TARGET:variant[:variant...]`, in any order.

    `TARGET` is a registered target, an entry point, or a user's code that was granted. Raises
    `UserError` with the nearest name if there is none, or if the target has no such variant.
    """
    base, chosen = _parts(name)
    plain = plain_target(base)
    asked = []
    for text in chosen:
        variant = variants.by_name(text)
        if variant is None:
            known = [own.name for own in plain.variants] if plain.yours else [*VARIANTS]
            hint = did_you_mean(text, known, otherwise=f"variants: {', '.join(known) or 'none'}")
            raise UserError(f"unknown variant '{text}' of target '{plain.name}'{hint}")
        asked.append(variant)
    reasons = (_not_taken(variant, plain) for variant in asked)
    reason = next((why for why in reasons if why is not None), None) or plain.excluded(asked)
    if reason is not None:
        raise UserError(f"there is no target '{':'.join((base, *chosen))}': {reason}")
    return plain.with_(*asked)


def plain_target(base: str) -> Target:
    """The target of that name without variants. A user's target must have been looked up before."""
    return OWN[base] if base in OWN else TARGETS[base]


def _not_taken(variant: Variant, target: Target) -> str | None:
    """Why a target does not have a variant; None if it has it."""
    if target.own(variant) is not None:
        return None
    if variant.tracing.config:
        having = ", ".join(other.name for other in TARGETS.values() if other.has_settings)
        return f"'{target.name}' has no settings; {having} have"
    own = ", ".join(own.name for own in target.variants)
    has = f"it has {own}" if own else "it has none"
    others = ", ".join(taken_by(variant))
    return (
        f"'{target.name}' has no variant '{variant.name}' ({has}; {others} have '{variant.name}')"
    )


def taken_by(variant: Variant) -> list[str]:
    """The targets that have a variant, and the kinds of user code whose targets have it."""
    takers = {name: target.variants for name, target in TARGETS.items()} | user_targets.KINDS
    return [name for name, own in takers.items() if variant.name in {taken.name for taken in own}]


def _parts(name: str) -> tuple[str, list[str]]:
    """The name of a plain target, and the variants. A user's target is imported on first use."""
    base, *chosen = name.split(":")
    if base in TARGETS or base in OWN:
        return base, chosen
    code = user_code(name)
    if code is not None:
        chosen = chosen[1:]
        user_names.require_grant(code)
    else:
        code = user_names.of_entry_point(base)
    if code is None:
        raise names.unknown(base)
    if code.name not in OWN:
        OWN[code.name] = user_targets.of_code(code)
    return code.name, chosen


def backend_source(name: str) -> BackendSource:
    """The source of the `torch.compile` backend that does the same as a target.

    Raises `UserError` if the target has no such backend, or is a user's code that is not granted or
    is neither a pass nor a backend.
    """
    code = user_code(name)
    if code is not None:
        user_names.require_grant(code)
        return user_targets.source_of_backend(code)
    backend = target(name).backend
    if backend is None:
        raise UserError(f"target '{name}' is no backend of torch.compile, so no script can show it")
    return BackendSource("", json.dumps(backend))


def user_code(name: str) -> CodeName | None:
    """The user's code that a name denotes; None for a registered target or an entry point."""
    code, (base, *rest) = user_names.code_name(name), name.split(":")
    # Fast path: a campaign looks up its target for each program.
    if code is None or code.name in OWN:
        return code
    # `aott:grad` is a misspelt target with a variant, not a module with a function.
    of_variant = rest[0] in VARIANTS and not {*"./"} & {*base}
    known = base in TARGETS or base in OWN or user_names.of_entry_point(base) is not None
    return None if of_variant or known else code


def is_name(name: str) -> bool:
    """Whether a name is that of a registered target, an entry point, or a user's code."""
    base, _, _ = name.partition(":")
    known = base in TARGETS or user_names.of_entry_point(base) is not None
    return known or user_names.code_name(name) is not None


def is_importable(name: str) -> bool:
    """Whether `target` may look up a name: a user's code must have been granted."""
    code = user_code(name)
    return code is None or user_names.is_granted(code)


def is_own(name: str) -> bool:
    """Whether a target is a user's."""
    return _parts(name)[0] in OWN


# --- symbolic sizes -------------------------------------------------------------------------------
#
# For each target that takes the variant *symbolic*, a build with symbolic sizes.
#
# A build takes the function and fake tensors with symbolic sizes, which it may mutate. It leaves
# its guards in the `ShapeEnv` of these fakes. The function that it returns accepts fake and real
# tensors of all sizes that satisfy the guards.


SymbolicBuild: TypeAlias = Callable[[Function, Sequence[torch.Tensor]], Function]


def symbolic_build(name: str) -> SymbolicBuild | None:
    """The build of a target; None if it has none, and then `prove` returns unknown.

    The name may end in `:symbolic`, which makes no difference.
    """
    base = name.removesuffix(":symbolic")
    plain = OWN.get(base) or TARGETS.get(base)
    if plain is None or plain.own(variants.SYMBOLIC) is None:
        return (lambda function, fakes: function) if base == "identity" else None
    build: Callable[..., Build] = plain.build
    return lambda function, fakes: build(function, fakes, Tracing(symbolic=True)).function
