"""Edited programs: a stored one with another call, write, alias, layout or reader.

The steps of the reducer, reversed. A stored program is played into a scene like the calls that a
rule matches, so the situations around those (`generators.rules.situations`) are edits of any
program, and the scene sees that the result is defined in eager.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TypeAlias

from aliasproof.generators.features import Features
from aliasproof.generators.gradient_regions import with_gradients
from aliasproof.generators.rules.operand_layouts import without_unused_storages
from aliasproof.generators.rules.plain_matches import USUAL
from aliasproof.generators.rules.situations import SITUATIONS, Situation, match_alone
from aliasproof.generators.rules.weaving import Weaving
from aliasproof.generators.scenario_steps import like
from aliasproof.generators.scene import Counts, NoChoice, Pick, Scene
from aliasproof.generators.strategies import (
    MOST_OUTPUTS,
    SPECIAL_SHARE,
    draw_outputs,
    draw_step,
    sample,
    specially_filled,
)
from aliasproof.programs.gluing import glue
from aliasproof.programs.program import Program

MOST_CALLS = 24  # of a program that is edited: longer ones cost more, and say less
TRIES = 6  # for a program, before it is drawn anew
EDITS = 3  # of a program at most

# Plays a program with one edit. The others are for those that need a second one.
Edit: TypeAlias = Callable[[Pick, Program, Sequence[Program], Features], Weaving]


def edited_sample(
    stored: Sequence[Program], features: Features, seed: int, count: int, counts: Counts
) -> Iterator[Program]:
    """`count` programs by edits of stored ones, the same ones for the same arguments.

    Where no edit fits, a program is drawn as `sample` draws it; `counts` counts those alone.
    """
    pick, fills = Pick(random.Random(f"edits {seed}").randint), random.Random(f"fill {seed}")
    anew = sample(features, seed, count, counts)
    for _ in range(count):
        program = edited(pick, stored, features)
        if program is None:
            yield next(anew)
        else:
            yield specially_filled(program) if fills.random() < SPECIAL_SHARE else program


def edited(pick: Pick, stored: Sequence[Program], features: Features) -> Program | None:
    """One of the programs with one edit or several; None if none of some fits."""
    for _ in range(TRIES):
        program = replace(pick.one(stored), fill="plain")
        if len(program) > MOST_CALLS:
            continue
        try:
            for _ in range(pick.integer(1, EDITS) if pick.chance(50) else 1):
                program = _edited(pick, program, stored, features)
        except NoChoice:
            continue
        return program
    return None


def _edited(pick: Pick, program: Program, stored: Sequence[Program], features: Features) -> Program:
    edit = pick.one(EDITS_OF_PROGRAMS)
    weaving = edit(pick, program, stored, features)
    scene = weaving.scene
    if scene.leaves_unwritten_memory():
        raise NoChoice
    changed = scene.program(_outputs(pick, weaving))
    changed = with_gradients(pick, scene, changed) if features.gradients else changed
    return _without_unused_inputs(changed).renamed()


def _outputs(pick: Pick, weaving: Weaving) -> list[str]:
    """What the stored program returned, and what the edit is about; sometimes anything."""
    if pick.chance(25):
        return draw_outputs(pick, weaving.scene)
    names = dict.fromkeys((*reversed(weaving.scene.wanted), *weaving.results()))
    written = [name for name in names if weaving.scene.is_written(weaving.value(name))]
    return written[:MOST_OUTPUTS]


def _without_unused_inputs(program: Program) -> Program:
    """Without inputs that nothing uses, but for those that share a storage with another."""
    used = {name for call in program.instructions for name in call.refs} | {*program.outputs}
    storages = {view.storage for view in program.inputs if view.name in used}
    kept = tuple(view for view in program.inputs if view.name in used or view.storage in storages)
    return without_unused_storages(replace(program, inputs=kept or program.inputs[:1]))


# --- edits ----------------------------------------------------------------------------------------


def _woven(situation: Situation) -> Edit:
    """A situation of rules, around the calls of a program."""

    def edit(
        pick: Pick, program: Program, others: Sequence[Program], features: Features
    ) -> Weaving:
        weaving = _weaving(pick, situation.inputs(pick, program))
        situation.weave(weaving)
        return weaving

    return edit


def inserted_calls(
    pick: Pick, program: Program, others: Sequence[Program], features: Features
) -> Weaving:
    """One more step somewhere: a call, or a scenario."""
    weaving = _weaving(pick, program)
    weaving.play(pick.integer(0, len(program)))
    draw_step(pick, weaving.scene, features)
    match_alone(weaving)
    return weaving


def spliced(pick: Pick, program: Program, others: Sequence[Program], features: Features) -> Weaving:
    """The calls of another program in between, on values of this one where they fit."""
    other = pick.one(others)
    if len(program) + len(other) > MOST_CALLS:
        raise NoChoice
    glued, at = glue((program, replace(other, fill="plain"))).program, pick.integer(0, len(program))
    own, theirs = glued.instructions[: len(program)], glued.instructions[len(program) :]
    whole = replace(glued, instructions=(*own[:at], *theirs, *own[at:]), seed=program.seed)
    weaving = _weaving(pick, whole)
    weaving.play(at)
    for view in whole.inputs[len(program.inputs) :]:
        values, wanted = weaving.scene.values, like(weaving.value(view.name))
        fitting = [name for name, value in values.items() if name != view.name and wanted(value)]
        if fitting and pick.chance(70):
            weaving.names[view.name] = pick.one(fitting)
    match_alone(weaving)
    return weaving


def _weaving(pick: Pick, program: Program) -> Weaving:
    scene = Scene(program.storages, program.inputs, program.seed, Counts())
    return Weaving(pick, scene, program)


# Both of the others take turns with all situations together.
_SITUATIONS = tuple(
    _woven(situation)
    for situation in SITUATIONS
    if situation.kind == USUAL and situation.name != "alone"
)
EDITS_OF_PROGRAMS: tuple[Edit, ...] = (*_SITUATIONS, *(inserted_calls, spliced) * 3)
