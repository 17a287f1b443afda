"""Findings that no campaign made."""

from collections.abc import Mapping
from typing import Any

from aliasproof.campaigns.failure.finding import Finding
from aliasproof.ir.python_program import P
from aliasproof.oracles.verdict import Violation


def finding_of(
    program: P,
    target: str,
    oracle: str,
    kind: str,
    place: str,
    evidence: Mapping[str, object] | None = None,
    **more: Any,
) -> Finding[P]:
    """A finding of a program, with a violation from its parts."""
    return Finding.of(program, target, Violation(oracle, kind, place, evidence or {}), **more)
