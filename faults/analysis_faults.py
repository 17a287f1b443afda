"""Faults of alias analysis and liveness: which bytes a tensor covers, and who reads them until when."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import fx

from faults.fault import Fault, instead_of, instead_of_entries
from reference_pass.liveness import NOTES, Liveness, Memory
from reference_pass.nested import nodes_in
from reference_pass.regions import Region


def the_last_element_is_not_counted(self: Region) -> int:
    """A region ends where its last element starts, so one that touches it there is taken for apart."""
    return int(self.start + sum((n - 1) * s for n, s in zip(self.sizes, self.strides, strict=True)))


def an_interval_contains_what_lies_in_it(outer: Region, inner: Region) -> bool:
    """A region with gaps is taken to contain all between its first and its last byte."""
    return inner.empty or bool(outer.start <= inner.start and inner.end <= outer.end)


def each_view_is_its_own_memory(self: Liveness, tensor: torch.Tensor) -> Memory:
    """Aliases are told apart as tensors, not as storages, so a read through another view is not seen."""
    return self.memories.setdefault(id(tensor), Memory())


def lists_are_not_looked_into(argument: Any) -> list[fx.Node]:
    """Operands in lists, such as those of cat, are no reads."""
    return [argument] if isinstance(argument, fx.Node) else []


def what_is_returned_is_not_read(liveness: Liveness, node: fx.Node) -> None:
    """The caller's reads of outputs do not count."""
    liveness.returned.update(nodes_in(node.args))


def the_last_read_is_one_before(
    self: Liveness, tensor: torch.Tensor, region: Region, after: int
) -> Iterator[Any]:
    """Off by one: the call right behind is not seen to read."""
    yield from _later_reads(self, tensor, region, after + 1)


_later_reads = Liveness.later_reads
_READ = "rule of liveness: a value is read at a position if what it holds matters there"

FAULTS: tuple[Fault, ...] = (
    instead_of(
        "end",
        the_last_element_is_not_counted,
        "end of reference_pass/regions.py",
        Region,
        kind=property,
    ),
    instead_of(
        "contains",
        an_interval_contains_what_lies_in_it,
        "contains of reference_pass/regions.py",
        "liveness",
    ),
    instead_of("memory", each_view_is_its_own_memory, "pytorch/pytorch#122457", Liveness),
    instead_of(
        "nodes_in",
        lists_are_not_looked_into,
        "rule of liveness: operands in lists are read, too",
        "liveness",
    ),
    instead_of_entries(NOTES, what_is_returned_is_not_read, "pytorch/pytorch#198094", "output"),
    instead_of("later_reads", the_last_read_is_one_before, _READ, Liveness),
)
