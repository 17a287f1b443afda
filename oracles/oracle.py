"""`Oracle`: its name, the promise that it decides, its inputs, and the function that judges."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from aliasproof.oracles.verdict import Report, Violation

# --- standalone check -----------------------------------------------------------------------------


Shows: TypeAlias = Callable[[Violation, str], bool]


def shows_facts(violation: Violation, output: str) -> bool:
    """Whether a script printed the evidence's facts about eager and the target."""
    return all(
        _has_line(output, label, violation.evidence.get(key))
        for label, key in (("expected: ", "eager"), ("actual:   ", "target"))
    )


def shows_change(expected: bool, actual: bool) -> Shows:
    """Checks that a script printed these two answers, for eager and for the target."""

    def shows(violation: Violation, output: str) -> bool:
        return _has_line(output, "expected: ", expected) and _has_line(output, "actual:   ", actual)

    return shows


def shows_some(violation: Violation, output: str) -> bool:
    """Whether a script printed an empty list for eager, and another list for the target."""
    return _has_line(output, "expected: ", "[]") and _has_line(output, "actual:   ", "", r"\[.+\]")


def shows_elements(violation: Violation, output: str) -> bool:
    """Whether a script printed the elements of the evidence."""
    keys = ("wrong elements", "elements", "first wrong index", "eager", "target")
    count, of, index, *values = (_pattern(violation.evidence.get(key)) for key in keys)
    found = ELEMENTS.format(count=count, of=of, index=index, expected=values[0], actual=values[1])
    return _has_line(output, "differs:  ", None, found)


# NaN equals NaN.
OTHER_ELEMENTS = "~torch.isclose(actual, expected, TOLERANCE, equal_nan=True)"
# What a script prints about two tensors that differ. Also used as a pattern, so without brackets.
ELEMENTS = "{count} of {of}, first {index}: {actual} for {expected}"


def _pattern(value: object) -> str:
    """A pattern for the text of a value. None, where two runs may differ, matches any text."""
    return ".*" if value is None else re.escape(str(value))


def _has_line(output: str, label: str, value: object, pattern: str = "") -> bool:
    line = f"^{label}{pattern or _pattern(value)}$"
    return re.search(line, output, re.MULTILINE) is not None


@dataclass(frozen=True, slots=True)
class StandaloneCheck:
    """Expressions for a reproducer (see `campaigns/publish/reproducer.py`), which must be short.

    `facts` computes what is compared, and `what` says it in words. It may use the lists `args`
    (the inputs after the run) and `outputs`. The texts FIRST and SECOND become the tensors at
    fault, such as `outputs[0]`. Facts are compared with `==`. If they are tensors, `wrong` says
    which elements of `actual` and `expected` differ, with the text TOLERANCE for the tolerance.
    `helper` defines a function that `facts` uses.

    `shows(violation, output)` says whether a script printed the evidence of a violation. `by_kind`
    has other checks, for violations whose kind starts with the first entry of a pair.
    """

    what: str
    facts: str
    wrong: str = ""
    helper: str = ""
    shows: Shows = shows_facts
    by_kind: tuple[tuple[str, StandaloneCheck], ...] = ()

    def of_kind(self, kind: str) -> StandaloneCheck:
        """The check for a kind of violation."""
        return next((check for start, check in self.by_kind if kind.startswith(start)), self)


# --- oracle ---------------------------------------------------------------------------------------


class Needs(Enum):
    """The inputs of an oracle. The comments give the arguments of its `judge`."""

    # contract, eager: Observation, target: Observation, trace
    RESULTS = "what the runs of eager and target leave behind"
    # contract, eager: ValueHashes, target: ValueHashes, trace, spelled
    SYMBOLIC_RUN = "both runs on symbolic values"
    # contract, stages: Sequence[StageRun], trace
    STAGES = "a run of each stage"


@dataclass(frozen=True, slots=True)
class Oracle:
    """One aspect in which a target is compared with eager.

    `promise` is the promise that it decides, in words. `judge` takes the arguments that `needs`
    names. Only oracles on results have a `check` for reproducers, which runs without this project,
    and a `reason`: why breaking the promise is a bug, as an issue says it.
    """

    name: str
    promise: str
    needs: Needs
    judge: Callable[..., Report]
    check: StandaloneCheck | None = None
    reason: str = ""
