"""Settings of `torch._inductor.config` in the name of a target: `inductor:memory_planning=True`."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from dataclasses import replace

from aliasproof.ir.errors import UserError, did_you_mean
from aliasproof.oracles.contract import Contract, Promise, Waiver, draws_nothing
from aliasproof.targets.target import Variant
from aliasproof.targets.tracing import Tracing

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


def variant(text: str) -> Variant:
    """The variant with a setting. Raises `UserError` if Inductor has no such setting or value."""
    # Imported here: most names contain no setting.
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
