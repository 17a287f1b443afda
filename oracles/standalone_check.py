"""`StandaloneCheck`: what an oracle on results compares, as source text that needs torch alone."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StandaloneCheck:
    """Expressions of a reproducer (see `campaigns/publish/reproducer.py`), which is to be short.

    `facts` is what is compared of one run, and `what` says it in words. It may use the lists `args`
    (the inputs after the run) and `outputs`. `equal` compares the facts of two runs, `actual` and
    `expected`; the text TOLERANCE in it becomes the tolerance of the comparison. `helper` defines a
    function that `facts` uses.

    `by_kind` has other checks for violations whose kind starts with its first entry. There the
    texts FIRST and SECOND become the tensors at fault, such as `outputs[0]`.
    """

    what: str
    facts: str
    equal: str = "actual == expected"
    helper: str = ""
    by_kind: tuple[tuple[str, StandaloneCheck], ...] = ()

    def of_kind(self, kind: str) -> StandaloneCheck:
        """The check for a kind of violation."""
        return next((check for start, check in self.by_kind if kind.startswith(start)), self)
