"""Random programs: `programs` is a Hypothesis strategy, `sample` draws from a seed."""

from __future__ import annotations

from aliasproof.generators.features import Features
from aliasproof.generators.strategies import programs, sample

__all__ = ["Features", "programs", "sample"]
