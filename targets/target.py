"""`Target`: a system under test, with the contract it promises and the recipe that reproducers use."""

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
    """What a target made of a function.

    `stages` is complete once the function has run (some targets build lazily).
    """

    function: Function
    stages: list[Stage]


@dataclass(frozen=True, slots=True)
class Target:
    """A system under test.

    `build(function, inputs)` compiles the function for these inputs, which it may mutate: they are
    not used again. `recipe` is Python source that needs torch alone and defines `compiled(program,
    inputs)` to the same effect. `after` is the target that this one builds on or varies: what that
    one breaks already is not this one's fault.
    """

    name: str
    summary: str
    contract: Contract
    build: Callable[[Function, Sequence[torch.Tensor]], Build]
    recipe: str
    after: Target | None = None
