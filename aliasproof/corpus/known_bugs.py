"""All known bugs."""

from __future__ import annotations

import contextlib
import importlib
import pkgutil
from collections.abc import Iterable, Iterator

from aliasproof.corpus import known
from aliasproof.corpus.known_bug import KnownBug


def _declarations() -> Iterator[KnownBug]:
    for module in pkgutil.iter_modules(known.__path__, f"{known.__name__}."):
        bug: KnownBug = importlib.import_module(module.name).BUG
        yield bug


# In this order they are tried. A program can show several: the first that explains it counts.
KNOWN_BUGS: dict[str, KnownBug] = {
    bug.identifier: bug for bug in sorted(_declarations(), key=lambda bug: bug.rank)
}


# Of this process. A kernel of torch can be replaced once, so a bug is mended once.
_MENDED: set[str] = set()


@contextlib.contextmanager
def mended(bugs: Iterable[KnownBug]) -> Iterator[None]:
    """Mend all of these that can be mended and are not mended already."""
    with contextlib.ExitStack() as stack:
        for bug in bugs:
            if bug.mended is not None and bug.identifier not in _MENDED:
                stack.enter_context(bug.mended())
                _MENDED.add(bug.identifier)
                stack.callback(_MENDED.remove, bug.identifier)
        yield
