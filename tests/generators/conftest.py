"""A program with one call of a given op."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from aliasproof.generators.features import Features
from aliasproof.generators.inputs import draw_inputs
from aliasproof.generators.operator import Operator
from aliasproof.generators.scene import NoChoice, Pick, Scene
from aliasproof.generators.strategies import draw_call
from aliasproof.ir.program import Program

TRIES = 1000  # scenes; the rarest op fits into one of forty


@pytest.fixture
def program_with() -> Callable[[Operator], Program]:
    """Draws a program whose last instruction is a call of the operator."""
    features = Features()

    def draw(operator: Operator) -> Program:
        for seed in range(TRIES):
            pick = Pick(random.Random(seed).randint)
            scene = Scene(*draw_inputs(pick, features), seed=0)
            try:
                draw_call(pick, scene, features, operator)
            except NoChoice:
                continue
            return scene.program(())
        raise AssertionError(f"{operator.name} fits into none of {TRIES} scenes")

    return draw
