"""The tables of Inductor by operator: each entry is a site, and fires when it is used.

Recording replaces entries in the table itself, since torch reads the table.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from torch._inductor import config, decomposition, lowering
from torch._inductor.fx_passes import post_grad, reinplace

from aliasproof.generators.sites.site import (
    Site,
    SiteKind,
    SiteRecorder,
    location_of,
    operator_name,
)

Entries = dict[Any, Any]


@dataclass(frozen=True, slots=True)
class OperatorTable:
    """A table by operator.

    `code` returns the function of an entry, and `noting` an equivalent entry that also calls a
    function when it is used. `dictionaries` are those that torch may read, with equal entries.
    """

    kind: str
    layer: str
    fires_when: str
    dictionaries: Callable[[], list[Entries]]
    code: Callable[[Any], Callable[..., Any]]
    noting: Callable[[Any, Callable[[], None]], Any]

    def sites(self) -> list[Site]:
        """Each entry as a site, by the name of its operator."""
        tables = self.dictionaries()
        # Tables have no stable order: one is filled as torch needs it.
        entries = {self.name_of(key): entry for table in tables for key, entry in table.items()}
        return [
            Site(name, self.kind, self.layer, *location_of(self.code(entry)), self.fires_when)
            for name, entry in sorted(entries.items())
        ]

    @contextmanager
    def recorded(self, recorder: SiteRecorder) -> Iterator[None]:
        """Record the names of entries that are used in this block."""
        tables = self.dictionaries()
        before = [dict(table) for table in tables]
        replaced = [
            {key: _noting(self, recorder, key, entry) for key, entry in table.items()}
            for table in tables
        ]
        for table, ours in zip(tables, replaced, strict=True):
            table.update(ours)
        try:
            yield
        finally:
            for table, entries, ours in zip(tables, before, replaced, strict=True):
                for key, entry in entries.items():
                    # Keep entries that torch put into the table meanwhile.
                    if table.get(key) is ours[key]:
                        table[key] = entry

    def name_of(self, key: object) -> str:
        """The name of the site of an entry."""
        return f"{self.kind}/{operator_name(key)}"


@functools.cache
def _noting(table: OperatorTable, recorder: SiteRecorder, key: Any, entry: Any) -> Any:
    """An equivalent entry that also reports its use."""
    return table.noting(entry, functools.partial(recorder.fired.add, table.name_of(key)))


def _decompositions() -> list[Entries]:
    """The tables that torch selects from, with and without its own random operators."""
    tables = []
    for fallback_random in (False, True):
        with config.patch(fallback_random=fallback_random):
            tables.append(decomposition.select_decomp_table())
    return tables


def _called(function: Callable[..., Any], used: Callable[[], None]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        used()
        return function(*args, **kwargs)

    return call


def _accepted(entry: tuple[Callable[..., bool], Any], used: Callable[[], None]) -> Any:
    condition, operand = entry

    @functools.wraps(condition)
    def asked(*args: Any, **kwargs: Any) -> bool:
        accepted = condition(*args, **kwargs)
        if accepted:
            used()
        return accepted

    return asked, operand


class _NotingRewrite(reinplace.InplaceableOp):
    """An entry that is used when its in-place operator is read, to be put into the graph."""

    def __getattribute__(self, name: str) -> Any:
        if name == "inplace_op":
            object.__getattribute__(self, "used")()
        return object.__getattribute__(self, name)


def _rewritten(entry: reinplace.InplaceableOp, used: Callable[[], None]) -> reinplace.InplaceableOp:
    noting = _NotingRewrite(entry.inplace_op, entry.mutated_arg, entry.extra_check)
    object.__setattr__(noting, "used", used)
    return noting


_TABLES = (
    OperatorTable(
        "no-op",
        "joint graph and post-grad",
        "the call's result has the metadata of its operand, and the condition holds",
        lambda: [post_grad.noop_registry],
        lambda entry: entry[0],
        _accepted,
    ),
    OperatorTable(
        "put in place",
        "post-grad",
        "nothing reads the operand's old data afterwards",
        lambda: [reinplace.inplaceable_ops, reinplace.inplaceable_foreach_ops],
        lambda entry: entry.extra_check,
        _rewritten,
    ),
    OperatorTable(
        "decomposition",
        "capture",
        "a graph that is captured calls the operator",
        _decompositions,
        lambda function: function,
        _called,
    ),
    OperatorTable(
        "lowering",
        "code generation",
        "a graph that is lowered calls the operator",
        lambda: [lowering.lowerings],
        lambda function: function,
        _called,
    ),
)
KINDS = tuple(SiteKind(table.kind, table.sites, table.recorded) for table in _TABLES)
