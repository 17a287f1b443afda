"""A stage against the one before it: which instruction overwrites bytes that are read later."""

import operator
from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest
import torch

from aliasproof.oracles.clobbers import judge_stage
from aliasproof.oracles.stage import Stage
from aliasproof.oracles.stage_run import run_stage
from aliasproof.oracles.verdict import Report, Verdict
from tests.oracles.scenes import clobbers, line, stage

aten = torch.ops.aten

LATER = "overwrites a value that is read later"
INPUT = "leaves an input overwritten"


def kinds(report: Report) -> set[str]:
    return {violation.kind for violation in report.violations}


NEG = ("neg", aten.neg.default, "x")
ADD = ("add", aten.add.Scalar, "neg", 1)
ADD_ = ("add", aten.add_.Scalar, "neg", 1)
SUM = ("sum", aten.sum.default, "neg")
SUM_OF_CLONE = ("sum", aten.sum.default, "clone")
SUM_OF_CAST = ("sum", aten.sum.default, "cast")
SUM_OF_SCATTER = ("sum", aten.sum.default, "scatter")
SUM_OF_S = ("sum", aten.sum.default, "s")
SUM_OF_ADD = ("sum", aten.sum.default, "add")
ADD_PART = ("add", aten.add.Scalar, "part", 1)
ADD_PART_ = ("add", aten.add_.Scalar, "part", 1)
ADD_HIGH = ("add", aten.add.Scalar, "high", 1)
ADD_HIGH_ = ("add", aten.add_.Scalar, "high", 1)
CHECK = ("check", aten._assert_async.default, "one")
TIMES_ITEM = ("mul", aten.mul.Scalar, "y", "item")
PART = ("part", aten.slice.Tensor, "neg", 0, 3, 4)
SCATTER = ("s", aten.slice_scatter.default, "neg", "y", 0, 0, 8)
RESHAPED = ("column", aten.unsqueeze_.default, "s", 1)
FREE = ("free", torch.ops.inductor.resize_storage_bytes_.default, "neg", 0)
CAST = ("cast", aten._to_copy.default, "neg", {"dtype": torch.float64})
SCATTERED = ("scatter", aten.slice_scatter.default, "x", "part", 0, 2, 3)
BACK = ("back", aten.slice_scatter.default, "neg", "add", 0, 3, 4)
COPY = ("c", aten.copy_.default, "p", "y")
COPIED = ("clone", aten.clone.default, "neg")
FIRST_ONE = ("one", aten.slice.Tensor, "neg", 0, 0, 1)
ITEM = ("item", aten._local_scalar_dense.default, "one")
HALVES = (
    ("words", aten.view.dtype, "neg", torch.int16),
    ("high", aten.slice.Tensor, "words", 0, 1, 12, 2),
)

IN_PLACE = {aten.add.Scalar: aten.add_.Scalar, aten.neg.default: aten.neg_.default, "add": "add_"}


class Loss(NamedTuple):
    """The reader of bytes that `writer` overwrote, and the calls of both stages with their outputs.

    If the stage after has no calls of its own, the writer is in place there.
    """

    reader: str
    before: list[tuple[Any, ...]]
    returned: str
    after: Sequence[tuple[Any, ...]] = ()
    writer: str = "add"
    kind: str = LATER

    def stages(self) -> tuple[Stage, Stage]:
        in_place = [
            (name, IN_PLACE.get(op, op) if name == self.writer else op, *args)
            for name, op, *args in self.before
        ]
        return (
            stage("x y", *self.before, returned=self.returned, name="functional"),
            stage("x y", *(self.after or in_place), returned=self.returned),
        )


LOSES: dict[str, Loss] = {
    "a later read": Loss(
        "mul = aten.mul.Tensor(neg, add)", [NEG, ADD, ("mul", aten.mul.Tensor, "neg", "add")], "mul"
    ),
    "what is returned": Loss("the caller", [NEG, ADD], "neg add"),
    "one byte of a view": Loss("sum", [NEG, PART, ADD_PART, SUM], "add sum"),
    "what is copied later": Loss("sum", [NEG, ADD, COPIED, SUM_OF_CLONE], "add sum"),
    "what is cast later": Loss("sum", [NEG, ADD, CAST, SUM_OF_CAST], "add sum"),
    "half of what is cast later": Loss(
        "sum", [NEG, *HALVES, ADD_HIGH, CAST, SUM_OF_CAST], "add sum"
    ),
    "a number that is shown later": Loss(
        "item", [NEG, FIRST_ONE, ADD, ITEM, TIMES_ITEM], "add mul"
    ),
    "what is asserted later": Loss(
        "check", [NEG, FIRST_ONE, ("add", aten.add.Scalar, "neg", 7), CHECK], "add"
    ),
    "what a method overwrites": Loss("sum", [NEG, ("add", "add", "neg", 1), SUM], "add sum"),
    "what is scattered later": Loss(
        "sum", [NEG, PART, ADD_PART, SCATTERED, SUM_OF_SCATTER], "add sum"
    ),
    "a scatter as a copy": Loss(
        "sum",
        [NEG, ("s", aten.slice_scatter.default, "neg", "y", 0, 0, 6), SUM],
        "sum",
        [NEG, ("v", aten.alias.default, "neg"), ("copy_", aten.copy_.default, "v", "y"), SUM],
        "copy_",
    ),
    "the result of an epilogue": Loss(
        "the caller",
        [NEG, ("add", aten.add.Scalar, "y", 1), ("copy_", aten.copy_.default, "y", "neg")],
        "add",
        [NEG, ("add", aten.add_.Scalar, "y", 1), ("copy_", aten.copy_.default, "y", "neg")],
        "copy_",
    ),
    "an input": Loss("the caller", [("add", aten.add.Scalar, "x", 1)], "add", kind=INPUT),
    "an input that the epilogue writes in part": Loss(
        "the caller",
        [NEG, ("p", aten.slice.Tensor, "x", 0, 0, 2), ("copy_", aten.copy_.default, "p", "y")],
        "",
        writer="neg",
        kind=INPUT,
    ),
    "with the operands swapped": Loss(
        "sum",
        [NEG, ("add", aten.add.Tensor, "y", "neg"), SUM],
        "add sum",
        [NEG, ("add", aten.add_.Tensor, "neg", "y"), SUM],
    ),
}


def two_inputs(name: str) -> list[torch.Tensor]:
    return [line(), torch.ones(2)] if "in part" in name else [line(), torch.ones(6)]


@pytest.mark.parametrize("name", LOSES)
def test_who_overwrites_what_is_read_later(name: str) -> None:
    loss = LOSES[name]
    before, tested = loss.stages()
    report = clobbers(tested, two_inputs(name), before)
    assert report.verdict is Verdict.VIOLATED
    assert kinds(report) == {loss.kind}
    assert all(f"stage reinplaced, {loss.writer} = " in found.place for found in report.violations)
    assert str(report.violations[0].evidence["read by"]).startswith(loss.reader)
    alone = clobbers(tested, two_inputs(name))  # it means just that
    assert alone.verdict in (Verdict.HOLDS, Verdict.NOT_APPLICABLE)


def test_the_evidence_names_the_bytes() -> None:
    before, tested = LOSES["one byte of a view"].stages()
    (violation,) = clobbers(tested, two_inputs(""), before).violations
    assert violation.evidence == {
        "read by": "sum_1 = aten.sum.default(neg)",
        "what is read": "self",
        "value overwritten": "element 3 of neg = aten.neg.default(x), in stage functional",
        "storage": 2,
        "bytes": [12, 13, 14, 15],
        "bytes in all": 4,
    }


def test_of_many_bytes_the_evidence_names_the_first() -> None:
    before, tested = LOSES["what is copied later"].stages()
    (violation,) = clobbers(tested, [line(1 << 16), line(1)], before).violations
    assert (violation.kind, violation.evidence["bytes"]) == (LATER, list(range(64)))
    assert violation.evidence["bytes in all"] == 4 << 16


KEEPS: dict[str, tuple[Any, ...]] = {
    "in place at its last use": ([NEG, ADD, SUM_OF_ADD], [NEG, ADD_, SUM], ("sum", "sum")),
    "swapped": (
        [NEG, ("add", aten.add.Tensor, "y", "neg"), SUM_OF_ADD],
        [NEG, ("add", aten.add_.Tensor, "neg", "y"), SUM],
        ("sum", "sum"),
    ),
    "into the other operand": (
        [NEG, ("sub", aten.sub.Tensor, "y", "neg")],
        [NEG, ("sub", aten.sub.out, "y", "neg", {"out": "neg"})],
        ("sub", "neg"),
    ),
    "with its arguments in another order": (
        [NEG, ("add", aten.add.Scalar, "y", 1), ("sub", aten.sub.Tensor, "neg", "add")],
        [
            NEG,
            ("add", aten.add.Scalar, "y", 1),
            ("sub", aten.sub_.Tensor, {"other": "add", "self": "neg"}),
        ],
        ("sub", "sub"),
    ),
    "what is asked for its size alone": (
        [NEG, ADD, ("n", aten.sym_size.int, "neg", 0), ("mul", aten.mul.Scalar, "y", "n")],
        [NEG, ADD_, ("n", aten.sym_size.int, "neg", 0), ("mul", aten.mul.Scalar, "y", "n")],
        ("add mul", "neg mul"),
    ),
    "what is cast from bytes of several": (
        [NEG, *HALVES, ADD_HIGH_, CAST, SUM_OF_CAST],
        [NEG, *HALVES, ADD_HIGH_, CAST, SUM_OF_CAST],
        ("sum", "sum"),
    ),
    "memory that is given back": (
        [NEG, ("mul", aten.mul.Scalar, "neg", 2), ("add", aten.add.Scalar, "mul", 1)],
        [NEG, ("mul", aten.mul.Scalar, "neg", 2), FREE, ("add", aten.add_.Scalar, "mul", 1)],
        ("add", "mul"),
    ),
    "a scatter that is given another shape later": (
        [NEG, SCATTER, SUM_OF_S, ADD],
        [NEG, SCATTER, SUM_OF_S, RESHAPED, ADD_],
        ("sum add", "sum add"),
    ),
    "with its cast": (
        [
            NEG,
            ("ge", aten.ge.Scalar, "neg", 0),
            ("c", aten._to_copy.default, "ge", {"dtype": torch.float32}),
        ],
        [NEG, ("ge", aten.ge_.Scalar, "neg", 0)],
        ("c", "neg"),
    ),
    "a scatter as a copy": (
        [NEG, ("s", aten.slice_scatter.default, "neg", "y", 0, 2, 8), SUM_OF_S],
        [NEG, ("p", aten.slice.Tensor, "neg", 0, 2, 8), COPY, SUM],
        ("sum", "sum"),
    ),
    "a scatter of what is there": (
        [NEG, PART, ADD_PART, BACK, ("sum", aten.sum.default, "back")],
        [NEG, PART, ADD_PART_, SUM],
        ("sum", "sum"),
    ),
    "an input that the epilogue stores over": (
        [
            ("add", aten.add.Scalar, "x", 1),
            ("mul", aten.mul.Scalar, "add", 2),
            ("copy_", aten.copy_.default, "x", "mul"),
        ],
        [("add", aten.add_.Scalar, "x", 1), ("mul", aten.mul_.Scalar, "x", 2)],
        ("x", "x"),
    ),
    "the sizes of what is overwritten": (
        [NEG, ADD, ("z", aten.zeros_like.default, "neg"), ("f", aten.fill.Scalar, "neg", 2)],
        [NEG, ADD_, ("z", aten.zeros_like.default, "neg"), ("f", aten.fill.Scalar, "neg", 2)],
        ("add z f", "neg z f"),
    ),
    "a read whose result nobody uses": ([NEG, ADD, SUM], [NEG, ADD_, SUM], ("add", "neg")),
    "a copy dropped": (
        [NEG, COPIED, ("add", aten.add.Scalar, "clone", 1)],
        [NEG, ADD_],
        ("add", "neg"),
    ),
}


@pytest.mark.parametrize("name", KEEPS)
def test_what_may_be_overwritten(name: str) -> None:
    before, after, (meant, returned) = KEEPS[name]
    inputs = [line(8), torch.ones(6 if "scatter as" in name else 8)]
    report = clobbers(
        stage("x y", *after, returned=returned), inputs, stage("x y", *before, returned=meant)
    )
    assert report.verdict is Verdict.HOLDS


def test_an_operator_on_copies_is_the_operator_in_place() -> None:
    def on_copies(op: Any, tensor: torch.Tensor, *args: Any) -> tuple[torch.Tensor]:
        op(made := tensor.clone(), *args)
        return (made,)

    added = (
        NEG,
        ("many", on_copies, aten.add_.Scalar, "neg", 1),
        ("add", operator.getitem, "many", 0),
    )
    after = stage("x", NEG, ("many", aten.add_.Scalar, "neg", 1), SUM, returned="sum neg")
    before = stage("x", *added, SUM_OF_ADD, returned="sum add")
    assert clobbers(after, [line()], before).verdict is Verdict.HOLDS
    before = stage("x", *added, SUM, returned="sum add")
    assert kinds(clobbers(after, [line()], before)) == {LATER}


UNDECIDED: dict[str, list[tuple[Any, ...]]] = {
    "another computation": [("twice", aten.mul.Scalar, "x", 2), ("sum", aten.sum.default, "twice")],
    "another operand": [("neg", aten.neg.default, "x"), ADD, SUM],
    "another size": [
        ("neg", aten.neg.default, "x"),
        ("p", aten.slice.Tensor, "neg", 0, 1),
        ("sum", aten.sum.default, "p"),
    ],
}


@pytest.mark.parametrize("name", UNDECIDED)
def test_what_may_not_be_a_clobber_is_unknown(name: str) -> None:
    meant = stage("x y", NEG, ADD, SUM_OF_ADD, returned="sum")
    after = stage("x y", *UNDECIDED[name], ("copy_", aten.copy_.default, "y", "y"), returned="sum")
    assert clobbers(after, [line(), line()], meant).verdict is Verdict.UNKNOWN


def test_stages_with_other_inputs_cannot_be_compared() -> None:
    after = stage("x", ("add", aten.add_.Scalar, "x", 1), returned="x")
    before = run_stage(stage("x", ("add", aten.add.Scalar, "x", 1), returned="add"), [line(3)])
    report = judge_stage(run_stage(after, [line()]), before)
    assert report.reason == "the two stages do not take the same inputs"
