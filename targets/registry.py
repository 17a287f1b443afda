"""All targets by name. `TARGETS` has the plain ones; each may have variants."""

from __future__ import annotations

from targets import (
    aot,
    aot_eager,
    dynamo,
    export,
    fx_reinplace,
    identity,
    inductor,
    inductor_fx,
    inductor_reinplace,
    reference,
    torch_functionalize,
    variants,
)
from targets.target import Target

TARGETS: dict[str, Target] = {
    registered.name: registered
    for registered in (
        identity.TARGET,
        torch_functionalize.TARGET,
        fx_reinplace.TARGET,
        aot.AOT,
        aot.AOT_EPILOGUE,
        dynamo.TARGET,
        aot_eager.TARGET,
        export.TARGET,
        inductor_reinplace.TARGET,
        inductor_fx.TARGET,
        inductor.TARGET,
        reference.REFERENCE,
        reference.REFERENCE_COPY,
    )
}


def target(name: str) -> Target:
    """The target of that name: `TARGET` or `TARGET:variant[:variant...]`, in any order.

    Raises `UserError` with the nearest name if there is none, or if the target has no such variant.
    """
    return variants.named(name, TARGETS)
