"""In-place ops on matrices."""

from __future__ import annotations

from generators.operator import Operator

MATRICES: tuple[Operator, ...] = ()
