"""`Scenario`: an aliasing situation that is drawn on purpose; it is one line of a table.

A scenario adds a few instructions to a scene, or raises `NoChoice` if nothing there fits. The rest
of the program is drawn around it at random. Random programs alone rarely contain one. A scenario is
a family: which tensors, which views, which writes and in which order is drawn.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from aliasproof.generators.scene import Pick, Scene

Play: TypeAlias = Callable[[Pick, Scene], None]

# What a program passes through, the first layer first.
DYNAMO = "Dynamo"
AOT_AUTOGRAD = "AOTAutograd"
FUNCTIONALIZATION = "functionalization"
REINPLACING = "reinplacing"
MEMORY_PLANNING = "memory planning"
GRAPH_PASSES = "graph passes"
CODE_GENERATION = "code generation"
LAYERS = (
    DYNAMO,
    AOT_AUTOGRAD,
    FUNCTIONALIZATION,
    REINPLACING,
    MEMORY_PLANNING,
    GRAPH_PASSES,
    CODE_GENERATION,
)


@dataclass(frozen=True, slots=True)
class Scenario:
    """One line of the table.

    `name` is also a swarm switch. `sketch` is one program of the family, in ordinary syntax.
    `layers` are those that it is meant for. `family` is where it comes from: an issue of PyTorch
    (#1), a known bug (`corpus/known`), or a rule of the compiler. Without `play`, the inputs are
    drawn differently (`aliasproof.generators.inputs`).
    """

    name: str
    sketch: str
    layers: tuple[str, ...]
    family: str
    play: Play | None
