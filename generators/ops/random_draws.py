"""Ops that draw random numbers."""

from __future__ import annotations

from generators.operator import Operator

RANDOM_DRAWS: tuple[Operator, ...] = ()
