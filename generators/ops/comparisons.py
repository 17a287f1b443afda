"""In-place ops that compare, and logical and bitwise ones."""

from __future__ import annotations

from generators.operator import Operator

COMPARISONS: tuple[Operator, ...] = ()
