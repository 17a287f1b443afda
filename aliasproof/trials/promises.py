"""`same_promise`: whether two violations can have one cause."""

from __future__ import annotations

from aliasproof.oracles.verdict import Violation

ON_VALUES = ("values", "inputs")  # a wrong element is in an output, in an input, or in both


def same_promise(one: Violation, other: Violation) -> bool:
    """Whether two violations are about the same matter, so that one cause can be behind both."""
    if one.oracle in ON_VALUES and other.oracle in ON_VALUES:
        return True
    return (one.oracle, one.kind) == (other.oracle, other.kind)
