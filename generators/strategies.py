"""Drawing programs: as a Hypothesis strategy, for tests that shrink, and from a seed, for campaigns."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Iterator

from hypothesis import strategies as st

from generators.arguments import Draft
from generators.features import Features
from generators.inputs import draw_inputs
from generators.operators import OPERATORS, Operator
from generators.scenarios import SCENARIOS
from generators.scene import NoChoice, Pick, Scene
from programs.program import Program, Ref

EVERYTHING = Features()
TRIES = 4  # for one instruction, before the program goes on without it


@st.composite
def programs(
    draw: Callable[[st.SearchStrategy[int]], int], features: Features = EVERYTHING
) -> Program:
    """Programs with what the features allow, each well defined in eager as far as the drawing could see.

    Shrinks towards few instructions, few and plain inputs, float32, and the plainest op of each
    group.
    """
    return draw_program(Pick(lambda low, high: draw(integers(low, high))), features)


def sample(features: Features, seed: int, count: int) -> Iterator[Program]:
    """`count` programs, the same ones for the same arguments: what `programs` draws, from a seeded uniform source.

    Campaigns draw this way and not through `@given`, which repeats itself on purpose (it mutates
    earlier examples and favours extreme numbers), costs more, and changes what a seed means from
    one version of Hypothesis to the next.
    """
    source = random.Random(seed)
    pick = Pick(source.randint)
    for _ in range(count):
        yield draw_program(pick, features)


def draw_program(pick: Pick, features: Features) -> Program:
    """One program, each choice of which is left to `pick`."""
    storages, inputs = draw_inputs(pick, features)
    scene = Scene(storages, inputs, pick.integer(0, 99))
    for _ in range(pick.integer(1, features.instructions)):
        for _ in range(TRIES):
            try:
                _draw_step(pick, scene, features)
                break
            except NoChoice:
                continue
    return scene.program(_draw_outputs(pick, scene))


@functools.cache
def integers(low: int, high: int) -> st.SearchStrategy[int]:
    """The strategy `st.integers(low, high)`, built once."""
    return st.integers(low, high)


def _draw_step(pick: Pick, scene: Scene, features: Features) -> None:
    scenarios = _hazards(features)
    if scenarios and pick.chance(25):
        pick.one(scenarios)(pick, scene, features)
    else:
        _draw_instruction(pick, scene, features)


@functools.cache
def _hazards(features: Features) -> tuple[Callable[[Pick, Scene, Features], None], ...]:
    return tuple(scenario for name, scenario in SCENARIOS.items() if name in features.scenarios)


@functools.cache
def _operators(group: str) -> tuple[Operator, ...]:
    return tuple(each for each in OPERATORS if each.group == group)


def _draw_instruction(pick: Pick, scene: Scene, features: Features) -> None:
    operator = pick.one(_operators(pick.one(features.groups)))
    draft = Draft(pick, scene, features)
    arguments = list(operator.arguments())
    if not any(name == "tensors" for name, _, _ in arguments):
        fitting = scene.newest_first(lambda each: operator.dtypes(each.dtype))
        recent = fitting[:4] if pick.chance(50) else fitting
        draft.drawn["self"] = Ref(pick.one(recent))
    for name, drawer, _ in arguments:
        draft.drawn[name] = drawer(draft)
    args, kwargs = operator.bind(draft.drawn)
    scene.call(operator.name, *args, named=True if pick.chance(15) else None, **kwargs)


def _draw_outputs(pick: Pick, scene: Scene) -> list[str]:
    """Up to four values, mostly new ones; sometimes none, when only the inputs show what happened."""
    names = scene.newest_first()
    count = pick.integer(1, 4) if not pick.chance(5) else 0
    outputs = [pick.one(names[:4] if pick.chance(60) else names) for _ in range(count)]
    return list(dict.fromkeys(outputs))
