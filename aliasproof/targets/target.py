"""`Target`: a system under test, with its contract and the recipe that reproducers use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch

from aliasproof.oracles.contract import Contract
from aliasproof.oracles.stage import Stage

Function: TypeAlias = Callable[..., object]
MakeInputs: TypeAlias = Callable[[], Sequence[torch.Tensor]]
# From a function, its inputs, and those of a second call if there are any.
Conditions: TypeAlias = Callable[
    [Function, MakeInputs, MakeInputs | None], tuple[Function, MakeInputs]
]


@dataclass(frozen=True, slots=True)
class Build:
    """The compiled function, and the graphs that the target passed through.

    `stages` is complete once the function has run, since some targets compile in the first call.
    `opaque` says why no oracle on graphs can judge this build; None if they can. `first_call` are
    the inputs of a call that was made before, and is not compared. If the function does not run
    under a dispatch mode, `replay` gives, after the run, one that does the same and runs there; or
    says why there is none.
    """

    function: Function
    stages: list[Stage]
    opaque: str | None = None
    first_call: Sequence[torch.Tensor] = ()
    replay: Callable[[], Function | str] | None = None

    def under_modes(self) -> Function | str:
        """The function to run under a dispatch mode; or why no oracle on graphs can judge it."""
        if self.opaque is not None:
            return self.opaque
        return self.function if self.replay is None else self.replay()


def _available() -> str | None:
    return None


@dataclass(frozen=True, slots=True)
class Target:
    """A system under test.

    `build(function, inputs)` compiles the function for these inputs. It may mutate them, since they
    are not used again. `recipe` is Python source that needs torch alone; it defines
    `compiled(program, inputs)`, which does the same as `build`. `after` is the target that this one
    builds on: a promise that `after` breaks already is not this target's fault. `layer` is a target
    that this one contains, though it calls it in another way: it is at fault if it breaks the same
    promise on the same program.

    A *variant* of a target is a target too. `varies` are the targets with one variant less. Under
    `conditions`, the function and its inputs are changed before anything runs, eager included. If
    they change a program, the recipe defines `conditions(program, inputs)` as well. `unavailable`
    says in one line why the target cannot run on this machine, and what to install; None if it can.
    `group` is how many programs a campaign compiles as one: above 1 where a compile costs much.
    `cost` is about how many times as long a program takes as in most targets.
    """

    name: str
    summary: str
    contract: Contract
    build: Callable[[Function, Sequence[torch.Tensor]], Build]
    recipe: str
    after: Target | None = None
    layer: Target | None = None
    varies: tuple[Target, ...] = ()
    conditions: Conditions | None = None
    unavailable: Callable[[], str | None] = _available
    group: int = 1
    cost: float = 1.0

    @property
    def earlier(self) -> tuple[Target, ...]:
        """The targets that are at fault if they are wrong already, layers in their order."""
        return (*self.varies, *self.layers[:-1])

    @property
    def layers(self) -> tuple[Target, ...]:
        """The targets that this one builds on, in their order, and itself."""
        return (self,) if self.after is None else (*self.after.layers, self)
