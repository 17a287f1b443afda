"""Custom operators."""

from __future__ import annotations

from generators.operator import Operator

CUSTOM: tuple[Operator, ...] = ()
