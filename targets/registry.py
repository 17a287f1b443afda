"""All targets by name."""

from __future__ import annotations

import difflib

from programs.errors import UserError
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
    near = difflib.get_close_matches(name, TARGETS, n=1)
    hint = f"did you mean '{near[0]}'?" if near else f"targets: {', '.join(TARGETS)}"
    raise UserError(f"unknown target '{name}'; {hint}")
