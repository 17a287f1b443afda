"""Graphs as a diff: all their lines, and the dependencies of a wrong result."""

from aliasproof.reports.graph_change import (
    calls_behind,
    changed_lines,
    graph_change,
    new_calls,
    readable_code,
)

BEFORE = """

def forward(self, x, y):
    add = torch.ops.aten.add_.Tensor(x, 1);  x = None
    mul = torch.ops.aten.mul.Tensor(y, 2)
    return (add, mul)
    """
AFTER = """
def forward(self, x, y):
    add = torch.ops.aten.add.Tensor(x, 1)
    mul = torch.ops.aten.mul.Tensor(y, 2);  y = None
    copy_ = torch.ops.aten.copy_.default(x, add);  x = copy_ = None
    return (add, mul)
    """


def test_a_diff_has_the_lines_around_a_change():
    lines = [*changed_lines("a\nb\nc\nd\ne\nf", "a\nb\nc\nd\nE\nf")]
    assert lines == ["...", " c", " d", "-e", "+E", " f"]


def test_a_change_has_all_lines_without_deletions_and_marks_nodes():
    change = graph_change(("before", "after"), BEFORE, AFTER, ["add"], "why")
    assert [(line.sign, line.text.strip()[:12], line.marked) for line in change.lines] == [
        (" ", "def forward(", False),
        ("-", "add = torch.", False),
        ("+", "add = torch.", True),
        (" ", "mul = torch.", False),
        ("+", "copy_ = torc", False),
        (" ", "return (add,", False),
    ]
    assert change.note == "why"


def test_equal_graphs_are_shown_once_and_without_a_note():
    change = graph_change(("before", "after"), BEFORE, BEFORE, (), "why")
    assert {line.sign for line in change.lines} == {" "}
    assert len(change.lines) == 4
    assert change.note == ""


def test_a_result_comes_from_the_calls_before_it():
    assert calls_behind(AFTER, "output 1") == {"mul"}
    assert calls_behind(AFTER, "input 0") == {"copy_", "add"}
    assert calls_behind(AFTER, "output 0, input 0") == {"add", "copy_"}


def test_a_place_that_a_graph_does_not_tell_is_any_result():
    assert calls_behind(AFTER, "input 1") == {"add", "mul", "copy_"}
    assert calls_behind(AFTER, "call") == {"add", "mul", "copy_"}


def test_calls_that_only_the_later_graph_has_are_new():
    assert new_calls(BEFORE, AFTER, "output 0") == ["add"]
    assert new_calls(BEFORE, AFTER, "output 1") == []


def test_deletions_are_left_out_of_code():
    assert "None" not in readable_code(AFTER)
