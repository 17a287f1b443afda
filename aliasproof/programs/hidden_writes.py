"""Operators whose schemas hide that they write, as operators with true schemas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch._ops import OpOverload

aten = torch.ops.aten

BATCH_NORMS = {
    aten.native_batch_norm.default: (
        aten._native_batch_norm_legit_no_training.default,
        aten._native_batch_norm_legit.no_stats,
        aten._native_batch_norm_legit.default,
    ),
    aten.native_batch_norm.out: (
        aten._native_batch_norm_legit_no_training.out,
        aten._native_batch_norm_legit.no_stats_out,
        aten._native_batch_norm_legit.out,
    ),
}


def batch_norm_with_true_schema(
    op: OpOverload, args: Sequence[Any], outs: Mapping[str, Any]
) -> tuple[OpOverload, Sequence[Any], dict[str, Any]]:
    """`native_batch_norm` as an op with a true schema, and its arguments.

    The schema of `native_batch_norm` does not say that it updates the running statistics.
    """
    mean, training = args[3], args[5]
    not_training, no_statistics, legit = BATCH_NORMS[op]
    if not training:
        true_op, args = not_training, [*args[:5], *args[6:]]
    elif mean is None:
        true_op, args = no_statistics, [*args[:3], *args[5:]]
    else:
        true_op = legit
    # `out=` arguments have other names in the other schema, and the same order.
    new_names, names = (
        [argument.name for argument in form._schema.arguments if argument.kwarg_only]
        for form in (true_op, op)
    )
    renamed = {new: outs[name] for new, name in zip(new_names, names, strict=True)}
    return true_op, args, renamed
