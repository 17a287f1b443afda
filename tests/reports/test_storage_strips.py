"""Strips of memory: the bytes of each view, and the solver's witness of shared bytes."""

import pytest
import torch

from aliasproof.checks.explaining import explain
from aliasproof.oracles.verdict import Violation
from aliasproof.reports.storage_strips import (
    MOST_BYTES,
    NO_STRIPS,
    SharedByte,
    Strip,
    ViewRow,
    coverage,
    strip_text,
    strips_of_graph,
    strips_of_tensors,
)


@pytest.fixture
def strips(program):
    """`strips(body, shape)`: the strips of a program's ATen calls, by letter."""

    def drawn(body: str, *shapes: tuple[int, ...]) -> dict[str, Strip]:
        lines = explain(program(body, *shapes)).program
        return {strip.storage: strip for strip in strips_of_graph(lines)}

    return drawn


SLICED = "v0 = aten.slice.Tensor(x0, 0, 1, 3)\naten.add_.Scalar(v0, 1)\nreturn (x0,)"


def test_a_row_has_the_bytes_of_its_view_and_says_which_are_written(strips):
    rows = strips(SLICED, (4,))["A"].rows
    assert [row.spans for row in rows] == [((0, 16),), ((4, 12),), ((4, 12),)]
    assert [row.writes for row in rows] == [False, False, True]


def test_a_strided_view_has_several_runs_of_bytes(strips):
    strip = strips("v0 = aten.slice.Tensor(x0, 0, 0, 4, 2)\nreturn (v0,)", (4,))["A"]
    assert strip.rows[1].spans == ((0, 4), (8, 12))


def test_a_write_comes_with_an_element_of_each_view_that_it_changes(strips):
    (shared,) = strips(SLICED, (4,))["A"].shared
    assert (shared.first, shared.second, shared.byte) == ("v0", "x0", 4)
    assert (shared.first_index, shared.second_index) == ((0,), (1,))


def test_views_that_share_no_byte_are_no_pair(strips):
    body = """
    v0 = aten.slice.Tensor(x0, 0, 0, 4, 2)
    v1 = aten.slice.Tensor(x0, 0, 1, 4, 2)
    aten.add_.Scalar(v0, 1)
    return (v1,)
    """
    pairs = [(it.first, it.second) for it in strips(body, (4,))["A"].shared]
    assert pairs == [("v0", "x0")]


def test_a_call_that_only_changes_a_layout_writes_no_byte_and_makes_no_second_tensor(strips):
    body = "v0 = aten.view.default(x0, [2, 2])\naten.t_.default(v0)\naten.add_.Scalar(v0, 1)\n"
    strip = strips(f"{body}return (x0,)", (4,))["A"]
    assert [row.writes for row in strip.rows] == [False, False, False, True]
    assert [(it.first, it.second) for it in strip.shared] == [("v0", "x0")]


def test_storages_are_apart(strips):
    made = strips("v0 = aten.mul.Tensor(x0, x1)\nreturn (v0,)", (2,), (2,))
    assert [len(strip.rows) for strip in made.values()] == [1, 1, 1]
    assert not any(strip.aliased for strip in made.values())


def test_the_pair_of_a_violation_of_aliasing_is_at_fault():
    memory = torch.zeros(8)
    tensors = {"input 0": memory[2:], "output 0": memory[4:], "output 1": torch.ones(2)}
    violation = Violation("aliasing", "new alias", "input 0, output 0")
    first, second = strips_of_tensors(tensors, violation)
    assert first.shared == (SharedByte("input 0", "output 0", (2,), (0,), 16, at_fault=True),)
    assert (first.nbytes, second.nbytes) == (32, 8)
    (shared,) = strips_of_tensors(tensors)[0].shared
    assert not shared.at_fault


def test_a_large_view_is_one_run_from_its_first_byte_to_its_last():
    (strip,) = strips_of_tensors({"output 0": torch.zeros(MOST_BYTES)[::2]})
    ((first, end),) = strip.rows[0].spans
    assert (first, end) == (0, 4 * MOST_BYTES - 4)


def test_coverage_of_a_part_is_the_share_of_its_bytes():
    assert coverage(((0, 4), (6, 8)), 8, 4) == [1, 1, 0, 1]
    assert coverage(((0, 1),), 8, 2) == [0.25, 0]


def test_the_text_has_a_line_per_call_and_a_mark_below_each_witness(strips):
    text = strip_text(strips(SLICED, (4,)).values(), 100)
    assert text.splitlines()[0] == "storage A: 16 bytes, 1 per sign"
    bars = [line.rpartition("  ")[2] for line in text.splitlines()[1:4]]
    assert bars == ["################", "....########....", "....!!!!!!!!...."]
    mark, witness = text.splitlines()[4:]
    assert mark.index("^") == text.splitlines()[2].index("....") + 4
    assert witness == "byte 4 is in v0[0] and in x0[1]"


def test_a_large_storage_has_several_bytes_per_sign():
    row = ViewRow("v", "", "", ((0, 100), (400, 402)), writes=True)
    text = strip_text([Strip("A", 640, (row,))], 100)
    assert "10 per sign" in text
    assert f"{'!' * 10}{'.' * 30}-{'.' * 23}" in text


def test_storages_with_one_view_are_only_named(strips):
    text = strip_text(strips("v0 = aten.mul.Tensor(x0, x1)\nreturn (v0,)", (2,), (2,)).values(), 80)
    assert text == f"{NO_STRIPS}\n\none view each: A (x0), B (x1), C (v0)"
