"""Signatures: the criteria by which two reduced failures are the same finding."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from aliasproof.campaigns.failure.signature import (
    Signature,
    aliasing_kinds,
    innermost_frame,
    signature,
)
from aliasproof.judge.attribution import Symptom

WRONG_VALUE = Symptom("planted", "values", "wrong value")
RAISES = Symptom("planted", "errors", "raises RuntimeError: #")


def test_names_of_ops_and_of_the_wrong_tensor_do_not_matter(program) -> None:
    one = program("v0 = aten.select.int(x0, 0, 0)\naten.add_.Scalar(v0, 1)\nreturn (x0,)", (4,))
    other = program("v0 = aten.slice.Tensor(x0, 0, 1)\naten.mul_.Scalar(v0, 2)\nreturn ()", (2, 3))
    elsewhere = replace(WRONG_VALUE, oracle="inputs", kind="input ends wrong")
    first, second = signature(WRONG_VALUE, one), signature(elsewhere, other)
    assert first.cause == second.cause == "views by window, writes in place"
    assert first.identifier == second.identifier


@pytest.mark.parametrize(
    "body",
    [
        "v0 = aten.expand.default(x0, [2, 4])\naten.zero_.default(v0)\nreturn (x0,)",
        "v0 = aten.unfold.default(x0, 0, 1, 2)\naten.add_.Scalar(v0, 1)\nreturn (x0,)",
        "v0 = aten.view.dtype(x0, torch.int32)\naten.add_.Scalar(v0, 1)\nreturn (x0,)",
        "v0 = aten.as_strided.default(x0, [1], [1])\naten.add_.Scalar(v0, 1)\nreturn (x0,)",
        "aten.add_.Scalar(x0, 1)\nreturn (x0,)",
        "aten.add.out(x0, x0, out=x0)\nreturn (x0,)",
        "v0 = aten.select_scatter.default(x0, x0, 0, 0)\nreturn (v0,)",
        "return (x0,)",
    ],
)
def test_kinds_of_writes_and_views_matter(program, body: str) -> None:
    plain = program("v0 = aten.select.int(x0, 0, 0)\naten.add_.Scalar(v0, 1)\nreturn (x0,)", (4,))
    assert aliasing_kinds(program(body, (4,))) != aliasing_kinds(plain)


def test_a_view_of_what_is_never_written_does_not_matter(program) -> None:
    body = """
        v0 = aten.add.Scalar(x0, 0)
        v1 = aten.{view}
        v2 = aten.slice_scatter.default(v0, v1)
        return (v2,)
    """
    views = ("alias.default(v0)", "slice.Tensor(v0, 0, 0)")
    assert {aliasing_kinds(program(body.format(view=view), (4,))) for view in views} == {
        ("scatters",)
    }


def test_two_passes_are_two_findings(program) -> None:
    written = program("v0 = aten.select.int(x0, 0, 0)\naten.add_.Scalar(v0, 1)\nreturn ()", (4,))
    parts = ("", "post_grad: remove_noop_ops", "post_grad: reinplace_inplaceable_ops")
    names = {signature(WRONG_VALUE, written, wrong_part=part).identifier for part in parts}
    assert len(names) == 3


def test_a_pass_that_says_nothing_new_leaves_the_identifier(program) -> None:
    written = program("v0 = aten.select.int(x0, 0, 0)\naten.add_.Scalar(v0, 1)\nreturn ()", (4,))
    plain = signature(WRONG_VALUE, written)
    wrong_part = signature(WRONG_VALUE, written, wrong_part="AOTAutograd: functionalization")
    assert wrong_part.identifier == plain.identifier
    # The function that raised is more specific than the pass that called it.
    raised = signature(RAISES, written)
    assert signature(RAISES, written, wrong_part="scheduler").identifier == raised.identifier


SIGNATURE = Signature(WRONG_VALUE, "views by expand, writes by a store")


@pytest.mark.parametrize(
    "other",
    [
        Signature(replace(WRONG_VALUE, target="aot"), SIGNATURE.cause),
        Signature(replace(WRONG_VALUE, oracle="aliasing"), SIGNATURE.cause),
        Signature(WRONG_VALUE, "views by expand"),
        Signature(WRONG_VALUE, SIGNATURE.cause, known="expand-inverse"),
    ],
)
def test_anything_else_is_another_finding(other: Signature) -> None:
    assert other.identifier != SIGNATURE.identifier


def test_a_known_bug_has_one_identifier_whatever_shows_it() -> None:
    names = {
        Signature(symptom, cause, known="expand-inverse").identifier
        for symptom, cause in ((WRONG_VALUE, "views by expand"), (RAISES, "error in C++"))
    }
    assert names == {"known-expand-inverse"}


def test_the_identifier_is_the_same_in_every_run() -> None:
    assert SIGNATURE.identifier == "planted-values-69d13148"


def raised(function: Callable[[], object]) -> BaseException:
    with pytest.raises(RuntimeError) as caught:
        function()
    return caught.value


def test_an_error_is_told_by_the_innermost_function_of_torch_that_raised_it(program) -> None:
    def compare(rows: int) -> None:
        one, other = torch.empty(2, 3), torch.empty(rows, 5)
        torch._prims_common.check_same_shape(one, other, allow_cpu_scalar_tensors=False)

    one, other = raised(lambda: compare(7)), raised(lambda: compare(8))
    assert str(one) != str(other)
    assert innermost_frame(one) == "_prims_common/__init__.py: check_same_shape"
    empty = program("return ()")
    assert signature(RAISES, empty, one) == signature(RAISES, empty, other)


def test_an_error_from_the_dispatcher_is_told_by_its_message(program) -> None:
    error = raised(lambda: torch.ops.aten.add.Tensor(torch.ones(2), torch.ones(3)))
    assert innermost_frame(error) is None
    assert signature(RAISES, program("return ()"), error).cause == RAISES.kind
