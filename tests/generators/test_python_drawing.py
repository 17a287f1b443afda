"""Drawn Python programs: the same ones for a seed, each form among them, all valid in eager."""

import random
import re
from collections import Counter

import pytest
import torch
from hypothesis import HealthCheck, given, settings

from aliasproof.generators.python_drawing import draw_python_program, python_programs, sample_python
from aliasproof.generators.scene import NoChoice, Pick
from aliasproof.generators.sketch import FORMS, VERSION_ERROR, Sketch
from aliasproof.ir.errors import InternalError
from aliasproof.ir.python_program import PythonProgram


def test_a_seed_and_a_number_draw_one_program():
    one = list(sample_python(5, range(6)))
    assert one == list(sample_python(5, range(6)))
    assert one[4:] == list(sample_python(5, range(4, 6)))
    assert len(set(one)) == 6


@pytest.mark.filterwarnings("ignore")  # warnings of torch about odd programs
def test_what_is_drawn_runs_in_eager_but_for_what_autograd_refuses():
    errors = []
    for program in sample_python(6, range(40)):
        try:
            with torch.enable_grad():  # a program may leave gradients off
                program.run()
        except RuntimeError as error:
            errors.append(str(error))
    assert all(VERSION_ERROR in error for error in errors)


def test_no_storage_gets_a_size_that_a_larger_tensor_does_not_fit_in():
    forms = [form for form in FORMS if form.group in ("storages", "calls")]
    texts = [
        draw_python_program(Pick(random.Random(number).randint), forms).source
        for number in range(60)
    ]
    sizes = re.findall(r"untyped_storage\(\)\.resize_\((.*)\)", "\n".join(texts))
    assert sizes
    assert not [size for size in sizes if size.isdigit() and size != "0"]


@settings(max_examples=10, suppress_health_check=list(HealthCheck), deadline=None)
@given(python_programs())
def test_hypothesis_draws_them_too(program: PythonProgram):
    assert "def program(" in program.source


SHARED = {"shared", "shared recorded", "shared leaf", "same object"}


@pytest.mark.thorough
def test_every_form_is_drawn_and_most_meet_shared_memory():
    counts: Counter[tuple[str, str]] = Counter()
    for _ in sample_python(8, range(1200), counts):
        pass
    drawn = {name for name, _ in counts}
    assert {form.name for form in FORMS} - drawn == set()
    shared = sum(count for (_, situation), count in counts.items() if situation in SHARED)
    assert shared > 0.3 * counts.total()


def test_a_process_in_which_eager_does_not_work_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise NoChoice from MemoryError("planted")

    monkeypatch.setattr(Sketch, "look", broken)
    with pytest.raises(InternalError, match="planted"):
        next(sample_python(1, [0]))
