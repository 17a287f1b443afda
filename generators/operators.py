"""The ops that programs are drawn from: all tables of `generators.ops`."""

from __future__ import annotations

from generators.operator import Operator
from generators.ops.comparisons import COMPARISONS
from generators.ops.conversions import CONVERSIONS
from generators.ops.custom import CUSTOM
from generators.ops.foreach import FOREACH
from generators.ops.functional import FUNCTIONAL
from generators.ops.in_place import IN_PLACE
from generators.ops.indexed import INDEXED
from generators.ops.matrices import MATRICES
from generators.ops.metadata_changes import METADATA_CHANGES
from generators.ops.out import OUT
from generators.ops.pointwise import POINTWISE
from generators.ops.random_draws import RANDOM_DRAWS
from generators.ops.reductions import REDUCTIONS
from generators.ops.scatters import SCATTERS
from generators.ops.training import TRAINING
from generators.ops.view_ops import VIEWS

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
