"""All targets by name."""

from __future__ import annotations

from programs.errors import UserError, did_you_mean
from targets import aot, fx_reinplace, identity, reference, torch_functionalize
from targets.target import Target

TARGETS: dict[str, Target] = {
    registered.name: registered
    for registered in (
        identity.TARGET,
        torch_functionalize.TARGET,
        fx_reinplace.TARGET,
        aot.AOT,
        aot.AOT_EPILOGUE,
        reference.REFERENCE,
        reference.REFERENCE_COPY,
    )
}


def target(name: str) -> Target:
    """The target of that name. Raises `UserError` with the nearest name if there is none."""
    if name in TARGETS:
        return TARGETS[name]
    hint = did_you_mean(name, TARGETS, otherwise=f"targets: {', '.join(TARGETS)}")
    raise UserError(f"unknown target '{name}'{hint}")
