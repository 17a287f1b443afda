"""`Stage`: a graph that a target produces on the way, and its properties."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import fx


@dataclass(slots=True)
class Stage:
    """A graph of ATen calls.

    A `functional` stage must not mutate, except in an epilogue of `copy_` into its inputs. A
    `whole` stage has the interface of the function: the same inputs, mutations and results. Other
    stages are called by a wrapper that is part of the target; `inputs` are clones of what the
    wrapper passed, after it has called the stage.
    """

    name: str
    graph: fx.GraphModule
    functional: bool
    whole: bool = True
    inputs: Sequence[object] | None = None
