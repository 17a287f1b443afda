"""`Target`: a system under test, with its contract and the recipe that reproducers use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch

from oracles.contract import Contract
from oracles.stage import Stage

Function: TypeAlias = Callable[..., object]


@dataclass(frozen=True, slots=True)
class Build:
    """The compiled function, and the graphs that the target passed through.

    `stages` is complete once the function has run, since some targets compile in the first call.
    """

    function: Function
    stages: list[Stage]


@dataclass(frozen=True, slots=True)
class Target:
    """A system under test.

    `build(function, inputs)` compiles the function for these inputs. It may mutate them, since they
    are not used again. `recipe` is Python source that needs torch alone; it defines
    `compiled(program, inputs)`, which does the same as `build`. `after` is the target that this one
    builds on or varies: a promise that `after` breaks already is not this target's fault.
    """

    name: str
    summary: str
    contract: Contract
    build: Callable[[Function, Sequence[torch.Tensor]], Build]
    recipe: str
    after: Target | None = None
