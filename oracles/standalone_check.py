"""`StandaloneCheck`: what an oracle on results compares, as source text that needs torch alone."""

from __future__ import annotations

from dataclasses import dataclass

_PLAIN_EQUAL = """
def equal(one, other):
    return one == other
"""
_SHOWN = """

def described(found):
    return [("compared", str(found))]
"""
_NOT_SHOWN = """

def described(found):
    return []
"""


@dataclass(frozen=True, slots=True)
class StandaloneCheck:
    """Three functions of a reproducer (see `campaigns/reproducer.py`).

    `facts` defines `facts(args, outputs)`: what is compared of one run. `equal` defines
    `equal(one, other)`, which compares the facts of two runs; the text TOLERANCE in it becomes the
    tolerance of the comparison. `shown` says whether the reproducer prints the facts.
    """

    facts: str
    equal: str = _PLAIN_EQUAL
    shown: bool = True

    @property
    def source(self) -> str:
        """The three definitions, in the order in which a reproducer has them."""
        return self.facts + self.equal + (_SHOWN if self.shown else _NOT_SHOWN)
