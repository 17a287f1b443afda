"""`Stage`: a graph that a target passes through, and what is known of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import fx


@dataclass(slots=True)
class Stage:
    """A graph of ATen calls.

    A `functional` one is to hold no mutation but an epilogue of `copy_` into its inputs. A `whole`
    one takes the inputs of the function, does to them what the function does, and returns what it
    returns; others are called by a wrapper that is part of the target, and `inputs` are clones of
    what it passed, once it has.
    """

    name: str
    graph: fx.GraphModule
    functional: bool
    whole: bool = True
    inputs: Sequence[object] | None = None
