"""All sites of the installed torch. Importing this imports Inductor, which takes a second."""

from __future__ import annotations

import functools
from contextlib import AbstractContextManager

from aliasproof.generators.sites import graph_passes, operator_tables, patterns, wrappers
from aliasproof.generators.sites.site import Site, SiteKind, SiteRecorder, recording_of

KINDS: tuple[SiteKind, ...] = (
    *patterns.KINDS,
    *graph_passes.KINDS,
    *operator_tables.KINDS,
    *wrappers.WITHOUT_INDUCTOR,
)


@functools.cache
def all_sites() -> tuple[Site, ...]:
    """All sites, by kind. Their names are unique."""
    return tuple(site for kind in KINDS for site in kind.sites())


def recording() -> AbstractContextManager[SiteRecorder]:
    """Record all sites that fire in this block, as `recording_of` does."""
    all_sites()  # read before anything is replaced
    return recording_of(KINDS)
