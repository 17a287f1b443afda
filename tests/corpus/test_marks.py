"""A mark matches only its bug, and no other fault in the same op or target."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from unittest import mock

import pytest
import torch

from aliasproof.campaigns.failure.recognition import by_mark, recognised
from aliasproof.corpus.bug_files import known_bugs
from aliasproof.corpus.known_bug import patched
from aliasproof.ir.program import Input, Program
from aliasproof.judge.attribution import Symptom
from aliasproof.judge.examination import examine
from aliasproof.judge.trial import Case
from aliasproof.targets.registry import target
from tests.short_programs import known_bug, program_of, programs_in, view

# Bugs whose marks check the numbers of a program: `plain` programs do not show them.
OF_NUMBERS = """
    atan2-of-nan executorch-sign-of-nan integer-powers-in-double integers-reduced-in-double
    maximum-without-nan openvino-maximum-without-nan openvino-nan-is-false openvino-saturates
    openvino-short-int64 openvino-truncates-to-int32 truncated-quotients-in-float
"""


def plain(program: Program) -> Program:
    """The program on small numbers."""
    storages = (replace(storage, values=("1",) * storage.length) for storage in program.storages)
    return replace(program, storages=tuple(storages))


@pytest.mark.parametrize("identifier", OF_NUMBERS.split())
def test_a_mark_asks_for_the_numbers_that_show_the_bug(identifier: str) -> None:
    bug = known_bugs()[identifier]
    wrong = Symptom(bug.targets[0], "values", "wrong value")
    assert by_mark(bug.program, wrong, reduced=True) == identifier
    assert by_mark(plain(bug.program), wrong, reduced=True) is None
    assert by_mark(bug.program, wrong, reduced=False) is None


OTHER_FORMS = programs_in("""
onnx-translated: wrong value: [4]
    v0 = aten.as_strided.default(x0, [2], [1])
    return (v0,)

onnx-translated: raises InvalidArgument: # while running ScatterElements node: [2] int64[1] [1]
    v0 = aten.scatter.src(x0, 0, x1, x2)
    return (v0,)

openvino-model: raises RuntimeError: #: [2, 2] int64[2, 2]
    v0 = aten.gather.default(x0, 0, x1)
    return (v0,)

executorch: dies of signal 6: [2]
    v0 = aten.amax.default(x0, [0])
    return (v0,)

openvino-model: dies of signal 11: [2]
    v0 = aten.expand.default(x0, [2, 2])
    return (v0,)
""")


@pytest.mark.parametrize("form", OTHER_FORMS)
def test_a_mark_asks_for_the_form_that_shows_the_bug(form: str) -> None:
    name, kind = form.split(": ", 1)
    oracle = "values" if kind == "wrong value" else "errors"
    assert by_mark(OTHER_FORMS[form], Symptom(name, oracle, kind), reduced=True) is None


@known_bug
@pytest.mark.parametrize(
    ("call", "index"),
    [
        ("aten.scatter_add_.default(v1, 0, x1, x1)", view(1, 1, 1, dtype=torch.int64)),
        ("aten.cumsum_.default(v1, 0)", view(1)),
    ],
    ids=["scatter_add_", "cumsum_"],
)
def test_each_write_that_returns_other_strides_has_the_mark(call: str, index: Input) -> None:
    body = f"""
    v0 = aten.view.default(x0, [2, 2, 2])
    v1 = aten.permute.default(v0, [0, 2, 1])
    {call}
    return ()
    """
    program = program_of(body, view(4, 2, dtype=torch.int64), index)
    with patched([bug for bug in known_bugs().values() if bug.patch is not None]):
        symptom = examine(Case.of(program), target("aot")).symptom
    assert symptom is not None
    assert by_mark(program, symptom, reduced=True) == "permuted-view-filled"


@pytest.mark.parametrize(
    "identifier", ["openvino-writes-lost", "openvino-clone-shares", "openvino-gap-guards"]
)
def test_a_planted_fault_is_not_taken_for_what_a_patch_removes(identifier: str) -> None:
    bug = known_bugs()[identifier]
    tested = target(bug.targets[0])
    if (missing := tested.unavailable()) is not None:
        pytest.skip(missing)
    from openvino.frontend.pytorch.torchdynamo import execute

    with mock.patch.object(execute, "openvino_execute", _one_more(execute.openvino_execute)):
        symptom = examine(Case.of(bug.program), tested).symptom
        assert symptom is not None
        assert recognised(bug.program, symptom, reduced=True).known is None


def _one_more(right: Callable[..., Any]) -> Callable[..., Any]:
    """A partition whose results are each one too large."""

    def call(*args: Any, **kwargs: Any) -> Any:
        results = right(*args, **kwargs)
        return [y + 1 for y in results] if isinstance(results, list) else results + 1

    return call
