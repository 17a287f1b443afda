"""The other in-place ops that compute element by element."""

from __future__ import annotations

from generators.operator import Operator

POINTWISE: tuple[Operator, ...] = ()
