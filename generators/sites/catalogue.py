"""All sites of the installed torch, and a recorder of those that a program fires."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from aliasproof.generators.sites import graph_passes, patterns, tables, view_writes, wrappers
from aliasproof.generators.sites.site import Site, SiteKind

KINDS: tuple[SiteKind, ...] = (
    *patterns.KINDS,
    *graph_passes.KINDS,
    *tables.KINDS,
    *view_writes.KINDS,
    *wrappers.KINDS,
)


@functools.cache
def catalogue() -> tuple[Site, ...]:
    """Each site, by kind. No two have one name."""
    return tuple(site for kind in KINDS for site in kind.sites())


class SiteRecorder:
    """Collects the names of the sites that fire.

    Programs run one after another: `take` after each gives those of this one.
    """

    def __init__(self) -> None:
        self._fired: set[str] = set()

    def note(self, name: str) -> None:
        """A site fires."""
        self._fired.add(name)

    def take(self) -> frozenset[str]:
        """The sites that fired since the last call."""
        fired = frozenset(self._fired)
        self._fired.clear()
        return fired


@contextmanager
def recording() -> Iterator[SiteRecorder]:
    """Record the sites that fire in this block, in this process. Torch is as before afterwards."""
    recorder = SiteRecorder()
    with ExitStack() as hooks:
        for kind in KINDS:
            hooks.enter_context(kind.recorded(recorder.note))
        yield recorder
