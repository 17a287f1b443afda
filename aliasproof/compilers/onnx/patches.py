"""Patches of the ONNX exporter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aliasproof.corpus.patching import replaces_outside

_RULES = "onnxscript.rewriter.rules.common._redundant_scatter_nd"


# The pattern of `ScatterAllDynamic`, the rule beside it, checks the attribute `reduction`.
@replaces_outside(f"{_RULES}:no_op_static_scatter_nd_rule._condition_function")
def scatter_reduction_dropped(original: Callable[..., Any], context: Any, **values: Any) -> Any:
    """A ScatterND that adds is not removed."""
    assigns = context.root.attributes.get_string("reduction", "none") == "none"
    return assigns and original(context, **values)
