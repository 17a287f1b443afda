"""One call for many tensors."""

from __future__ import annotations

from generators.operator import Operator

FOREACH: tuple[Operator, ...] = ()
