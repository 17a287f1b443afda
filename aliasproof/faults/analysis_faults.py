"""Faults of alias analysis and liveness: which bytes a tensor covers, and which nodes read them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import fx

from aliasproof.faults.fault import Fault, instead_of, instead_of_entries
from aliasproof.reference_pass.calls.nested import nodes_in
from aliasproof.reference_pass.liveness import NOTES, Liveness, Memory, contents_read
from aliasproof.reference_pass.regions import Region


def last_element_is_not_counted(self: Region) -> int:
    """A region ends where its last element starts, so an overlap in that element is missed."""
    return int(self.start + sum((n - 1) * s for n, s in zip(self.sizes, self.strides, strict=True)))


def gaps_count_as_contents(outer: Region, inner: Region) -> bool:
    """A region with gaps counts as if it contained every byte from its first to its last."""
    return inner.empty or bool(outer.start <= inner.start and inner.end <= outer.end)


def each_view_has_its_own_liveness(self: Liveness, tensor: torch.Tensor) -> Memory:
    """Liveness is kept per tensor, not per storage, so a read through another view is missed."""
    return self.memories.setdefault(id(tensor), Memory())


def list_operands_are_not_read(node: fx.Node) -> Iterator[tuple[fx.Node, bool, bool]]:
    """Operands inside a list, such as those of cat, do not count as reads."""
    # Outputs are a list, too, but `outputs_are_not_read` is another fault.
    direct = (*node.args, *node.kwargs.values())
    yield from (read for read in _contents_read(node) if read[0] in direct)


def outputs_are_not_read(liveness: Liveness, node: fx.Node) -> None:
    """Returning a tensor does not count as a read by the caller."""
    liveness.returned.update(nodes_in(node.args))  # the read at the end is left out


def next_read_is_missed(
    self: Liveness, tensor: torch.Tensor, region: Region, after: int
) -> Iterator[Any]:
    """Off by one: a read by the very next node is missed."""
    yield from _later_reads(self, tensor, region, after + 1)


_later_reads, _contents_read = Liveness.later_reads, contents_read

FAULTS: tuple[Fault, ...] = (
    instead_of(
        "end",
        last_element_is_not_counted,
        "end of reference_pass/regions.py",
        Region,
    ),
    instead_of(
        "contains",
        gaps_count_as_contents,
        "contains of reference_pass/regions.py",
        "liveness",
    ),
    instead_of("memory", each_view_has_its_own_liveness, "pytorch/pytorch#122457", Liveness),
    instead_of(
        "contents_read",
        list_operands_are_not_read,
        "rule of liveness: operands in lists are read, too",
        "liveness",
    ),
    instead_of_entries(NOTES, outputs_are_not_read, "pytorch/pytorch#198094", "output"),
    instead_of(
        "later_reads",
        next_read_is_missed,
        "rule of liveness: a read may be at the next position",
        Liveness,
    ),
)
