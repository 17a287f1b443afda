"""Reductions, scans and products."""

from __future__ import annotations

from aliasproof.generators import number_arguments as numbers
from aliasproof.generators import tensor_arguments as tensors
from aliasproof.generators.arguments import ADDMM, BADDBMM, BMM, MM, multiplies
from aliasproof.generators.operator import (
    Operator,
    at_least,
    exactly,
    line,
    lines,
    not_bool,
    of_rank,
)

REDUCTIONS: tuple[Operator, ...] = (
    line("reduction", "sum.default", not_bool),
    line("reduction", "sum.dim_IntList", not_bool, dim=numbers.dimension_in_list),
    *lines("reduction", "amax.default amin.default any.default all.default mean.default"),
    line("reduction", "mean.dim", dim=numbers.dimension_in_list, keepdim=numbers.flag),
    line("reduction", "cumsum.default", not_bool),
    *of_rank(
        at_least(1),
        *lines("reduction", "min.dim max.dim"),
        *lines("reduction", "any.dim argmax.default prod.dim_int", dim=numbers.dimension),
        *lines("reduction", "sort.stable", stable=numbers.one_of(True), dim=numbers.dimension),
    ),
    line("reduction", "matmul.default", not_bool, other=tensors.matrix_for),
    *of_rank(
        exactly(2),
        line("reduction", "mm.default", multiplies, **MM),
        line("reduction", "addmm.default", multiplies, **ADDMM),
    ),
    *of_rank(
        exactly(3),
        line("reduction", "bmm.default", multiplies, **BMM),
        line("reduction", "baddbmm.default", multiplies, **BADDBMM),
    ),
)
