"""All sites of the installed torch, and a recorder of those that a program fires."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from aliasproof.generators.sites import graph_passes, operator_tables, patterns, wrappers
from aliasproof.generators.sites.site import Site, SiteKind, SiteRecorder

KINDS: tuple[SiteKind, ...] = (
    *patterns.KINDS,
    *graph_passes.KINDS,
    *operator_tables.KINDS,
    *wrappers.VIEW_WRITES,
    *wrappers.KINDS,
)


@functools.cache
def all_sites() -> tuple[Site, ...]:
    """Each site, by kind. No two have one name."""
    return tuple(site for kind in KINDS for site in kind.sites())


# What any target fires that captures by AOTAutograd. To read these runs no pass of Inductor.
WITHOUT_INDUCTOR: tuple[SiteKind, ...] = (*wrappers.VIEW_WRITES, *wrappers.KINDS)

# One per process: hooks are made for it once. To make thousands of them for each shard would cost
# more than to call them, since Python then collects garbage among all objects of torch.
_RECORDER = SiteRecorder()


@contextmanager
def recording(kinds: tuple[SiteKind, ...] = KINDS) -> Iterator[SiteRecorder]:
    """Record the sites of these kinds that fire in this block, in this process.

    Torch is as before afterwards. Such blocks must not be nested.
    """
    if kinds is KINDS:
        all_sites()  # as they are before anything is replaced
    _RECORDER.take()
    with ExitStack() as hooks:
        for kind in kinds:
            hooks.enter_context(kind.recorded(_RECORDER))
        yield _RECORDER
