"""Ops that return their argument itself where nothing is to be changed."""

from __future__ import annotations

from generators.operator import Operator

CONVERSIONS: tuple[Operator, ...] = ()
