"""The ops that programs are drawn from: a table per group of ops, one line per op."""

from __future__ import annotations

from aliasproof.generators.operator import Operator
from aliasproof.generators.ops.custom import CUSTOM
from aliasproof.generators.ops.foreach import FOREACH
from aliasproof.generators.ops.functional import (
    CONVERSIONS,
    FUNCTIONAL,
    RANDOM_DRAWS,
    REDUCTIONS,
    SCATTERS,
)
from aliasproof.generators.ops.in_place import (
    COMPARISONS,
    IN_PLACE,
    MATRICES,
    METADATA_CHANGES,
    POINTWISE,
)
from aliasproof.generators.ops.indexed import INDEXED
from aliasproof.generators.ops.out import OUT
from aliasproof.generators.ops.training import TRAINING
from aliasproof.generators.ops.view_ops import VIEWS

OPERATORS: tuple[Operator, ...] = (
    *VIEWS,
    *IN_PLACE,
    *OUT,
    *FUNCTIONAL,
    *SCATTERS,
    *INDEXED,
    *REDUCTIONS,
    *METADATA_CHANGES,
    *CONVERSIONS,
    *POINTWISE,
    *COMPARISONS,
    *MATRICES,
    *FOREACH,
    *TRAINING,
    *RANDOM_DRAWS,
    *CUSTOM,
)
