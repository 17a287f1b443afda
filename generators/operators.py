"""The ops that programs are drawn from: all tables of `aliasproof.generators.ops`."""

from __future__ import annotations

from aliasproof.generators.operator import Operator
from aliasproof.generators.ops.comparisons import COMPARISONS
from aliasproof.generators.ops.conversions import CONVERSIONS
from aliasproof.generators.ops.custom import CUSTOM
from aliasproof.generators.ops.foreach import FOREACH
from aliasproof.generators.ops.functional import FUNCTIONAL
from aliasproof.generators.ops.in_place import IN_PLACE
from aliasproof.generators.ops.indexed import INDEXED
from aliasproof.generators.ops.matrices import MATRICES
from aliasproof.generators.ops.metadata_changes import METADATA_CHANGES
from aliasproof.generators.ops.out import OUT
from aliasproof.generators.ops.pointwise import POINTWISE
from aliasproof.generators.ops.random_draws import RANDOM_DRAWS
from aliasproof.generators.ops.reductions import REDUCTIONS
from aliasproof.generators.ops.scatters import SCATTERS
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
