"""Ops that return their argument itself, or a view of it, where nothing is to be changed."""

from __future__ import annotations

from aliasproof.generators import number_arguments as numbers
from aliasproof.generators import tensor_arguments as tensors
from aliasproof.generators import view_arguments as views
from aliasproof.generators.operator import Operator, complex_, floating, line, not_bool

CONVERSIONS: tuple[Operator, ...] = (
    line("conversion", "contiguous.default"),
    line("conversion", "positive.default", not_bool),
    line("conversion", "resolve_conj.default"),
    line("conversion", "resolve_neg.default"),
    line("conversion", "conj_physical.default", complex_),
    line("conversion", "to.dtype", dtype=views.dtype_to_convert_to, copy=views.truth),
    line("conversion", "to.dtype_layout", dtype=views.dtype_to_convert_to, copy=views.truth),
    line("conversion", "to.device", device=views.own_device, dtype=views.dtype_to_convert_to),
    line("conversion", "to.other", other=views.tensor_to_convert_like),
    line("conversion", "type_as.default", other=views.tensor_to_convert_like),
    line("conversion", "_to_copy.default", dtype=views.dtype_to_convert_to),
    line("conversion", "atleast_1d.default"),
    line("conversion", "atleast_2d.default"),
    line("conversion", "atleast_3d.default"),
    # Nothing is dropped, so no random number is drawn and the operand itself is returned.
    *(
        line(
            "conversion",
            f"{name}.default",
            floating,
            input=tensors.itself,
            p=views.probability,
            train=numbers.one_of(False),
        )
        for name in ("dropout", "feature_dropout", "alpha_dropout", "feature_alpha_dropout")
    ),
)
