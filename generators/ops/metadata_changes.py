"""In-place ops that change sizes, strides, offset or storage of their argument."""

from __future__ import annotations

from generators.operator import Operator

METADATA_CHANGES: tuple[Operator, ...] = ()
