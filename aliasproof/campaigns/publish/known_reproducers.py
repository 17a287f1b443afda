"""The reproducers of the known bugs, and whether a version of torch is said to have a bug."""

from __future__ import annotations

import re

from aliasproof.campaigns.publish.reproducer import render
from aliasproof.corpus.known_bug import KnownBug
from aliasproof.corpus.known_bugs import KNOWN_BUGS
from aliasproof.corpus.shown_differences import ShownDifference
from aliasproof.oracles.verdict import Violation
from aliasproof.targets.registry import target as target_named


def known_reproducer(bug: KnownBug, shown: ShownDifference) -> str:
    """A script that needs torch alone, and exits 1 while the bug is there."""
    evidence = {"type": shown.error} if shown.error else {}
    violation = Violation(shown.oracle, shown.kind, shown.place, evidence)
    target = target_named(shown.target)
    return render(bug.program, target, violation, exact=shown.exact, literal=shown.literal)


def is_said_to_be_fixed(bug: KnownBug, version: str) -> bool:
    """Whether a version of torch is one in which the bug was fixed, as its file says.

    It is, if the bug was not seen in a version that was examined, which is later than all that have
    the bug, and not later than this one. Development versions count as the release.
    """
    examined = {number_of(release) for other in KNOWN_BUGS.values() for release in other.versions}
    last = max(map(number_of, bug.versions))
    later = [number for number in examined if number > last]
    return bool(later) and number_of(version) >= min(later)


def number_of(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])
