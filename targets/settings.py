"""Settings of `torch._inductor.config` in the name of a target: `inductor:memory_planning=True`."""

from __future__ import annotations

import ast

from programs.errors import UserError, did_you_mean

TARGETS = ("inductor-fx", "inductor")


def parsed(text: str) -> tuple[str, object]:
    """The setting and its value. Raises `UserError` if Inductor has no such setting or value."""
    # Imported here: most names have no settings.
    from torch._inductor import config  # noqa: PLC0415

    name, _, written = text.partition("=")
    known = config.get_config_copy()
    if name not in known:
        raise UserError(f"torch._inductor.config has no '{name}'{did_you_mean(name, known)}")
    try:
        value = ast.literal_eval(written)
    except (ValueError, SyntaxError):
        value = written
    default = known[name]
    if default is not None and type(value) is not type(default):
        expected = f"a value of type {type(default).__name__}, such as {default!r}"
        raise UserError(f"'{name}' of torch._inductor.config is {written!r}; give {expected}")
    return name, value
