"""The allocations of a graph: how many tensors, and how many bytes at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import fx

from aliasproof.reference_pass.calls.storages import value_of
from aliasproof.reference_pass.planning.timeline import lifetimes, live_bytes


@dataclass(frozen=True, slots=True)
class Footprint:
    """The allocations of a graph.

    `calls` counts the calls with a result of at least one byte in a storage of its own. `peak` is
    the largest number of bytes that are live at once (`lifetimes`).
    """

    calls: int
    peak: int


def footprint(graph: fx.Graph, value: Callable[[fx.Node], Any] = value_of) -> Footprint:
    """The footprint of a graph with these values of its nodes; by default, its metadata."""
    lives = list(lifetimes(graph, value).values())
    calls = {life.node for life in lives if life.nbytes}
    return Footprint(len(calls), max(live_bytes(lives, len(graph.nodes)), default=0))


def has_higher_peak(compiled: fx.GraphModule) -> bool:
    """True if the captured graph, which writes where the program does, needs less memory.

    The passes remove each mutation, and do not put all of them back: not through interleaved views
    of one input, for example. The captured graph is right as it is.
    """
    captured: Footprint = compiled.meta["captured_footprint"]
    return captured.peak < footprint(compiled.graph).peak
