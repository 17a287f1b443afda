"""`FrequentBugs`: known bugs that a campaign has hit often enough are mended in its later shards.

They would go on to hide what else a program shows. What is mended in a shard must not depend on
the number of workers or their speed. So it is decided at fixed places of the plan: the shards of a
block have those bugs mended that were hit often in all blocks but the one before it. The block
between is under way meanwhile, so that no worker waits. Each block is as long as all before it, so
that this holds for many workers soon.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from aliasproof.corpus.known_bugs import KNOWN_BUGS

BLOCK = 40  # shards of the first block
OFTEN = 20  # hits


@dataclass(slots=True)
class FrequentBugs:
    """Counts the known bugs of the shards that were taken, in the order of the plan."""

    _taken: int = 0
    _hits: Counter[str] = field(default_factory=Counter)
    # What is mended once so many blocks were taken.
    _decided: list[tuple[str, ...]] = field(default_factory=lambda: [()])

    def hit(self, bugs: Iterable[str]) -> None:
        """Count known bugs that the shard shows which is taken now."""
        self._hits.update(bugs)

    def take(self) -> None:
        """The next shard of the plan was taken, with all its attempts."""
        self._taken += 1
        if _block(self._taken) > _block(self._taken - 1):
            often = (name for name, hits in self._hits.items() if hits >= OFTEN)
            self._decided.append(tuple(sorted(filter(_can_be_mended, often))))

    def mended(self, position: int) -> tuple[str, ...] | None:
        """What is mended in the shard at a position of the plan; None if that is open yet."""
        blocks = max(_block(position) - 1, 0)
        return self._decided[blocks] if blocks < len(self._decided) else None


def _block(position: int) -> int:
    """The block that a position is in: 40 shards, 40, 80, 160, ..."""
    return (position // BLOCK).bit_length()


def _can_be_mended(bug: str) -> bool:
    return KNOWN_BUGS[bug].mended is not None
