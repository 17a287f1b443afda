"""Edits of stored programs are programs: valid, defined in eager, and the same for one seed."""

from __future__ import annotations

import random

from aliasproof.generators import edited_programs
from aliasproof.generators.edited_programs import EDITS_OF_PROGRAMS, edited, edited_sample, spliced
from aliasproof.generators.features import Features, swarm
from aliasproof.generators.scene import Counts, NoChoice, Pick
from aliasproof.generators.strategies import sample
from aliasproof.programs.program import Program
from aliasproof.programs.validation import validate
from aliasproof.trials.trial import Case, run_eager

STORED = [program for seed in range(4) for program in sample(swarm(seed), seed, 4)]
EVERYTHING = Features()


def picks(seed: int) -> Pick:
    return Pick(random.Random(seed).randint)


def is_defined(program: Program) -> bool:
    validate(program)
    return run_eager(Case.of(program)).observation.error is None


def test_edited_programs_are_valid_and_defined():
    counts = Counts()
    programs = list(edited_sample(STORED, EVERYTHING, 5, 60, counts))
    assert all(map(is_defined, programs))
    assert counts.drawn == 0, "none is drawn anew"
    assert not {*programs} & {*STORED}


def test_each_edit_changes_programs():
    for edit in EDITS_OF_PROGRAMS:
        changed = 0
        for number, program in enumerate(STORED):
            try:
                weaving = edit(picks(number), program, STORED, EVERYTHING)
            except NoChoice:
                continue
            changed += weaving.scene.program(weaving.results()) != program
        assert changed > len(STORED) / 4, edit


def test_the_same_arguments_give_the_same_programs():
    one, other = (list(edited_sample(STORED, EVERYTHING, 5, 9, Counts())) for _ in range(2))
    assert one == other
    assert one != list(edited_sample(STORED, EVERYTHING, 6, 9, Counts()))
    assert one != list(edited_sample(STORED[1:], EVERYTHING, 5, 9, Counts()))


def test_a_splice_has_the_calls_of_both():
    one, other = sorted(STORED, key=len)[:2]
    weaving = spliced(picks(0), one, [other], EVERYTHING)
    ops = sorted(call.op for call in weaving.scene.instructions)
    assert ops == sorted(call.op for call in (*one.instructions, *other.instructions))


def test_where_no_edit_fits_programs_are_drawn_anew(monkeypatch):
    monkeypatch.setattr(edited_programs, "MOST_CALLS", 0)
    stored = [program for program in STORED if len(program)]
    assert edited(picks(0), stored, swarm(7)) is None
    drawn = list(edited_sample(stored, swarm(7), 7, 3, Counts()))
    assert drawn == list(sample(swarm(7), 7, 3))
