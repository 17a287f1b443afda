"""`aliasproof explain --plan`: where each result is, the peaks, and storages in time."""

import json

import pytest
import torch

from aliasproof.checks.explaining import explain
from aliasproof.reports.storage_timeline import StorageRow, StorageTimeline, bytes_text

PROGRAM = """
import torch

def program(a, b):
    c = a * 2
    d = b + 1
    return torch.cat([c - d, c / 3])

def inputs():
    return torch.ones(4), torch.ones(4)
"""


def planned(function, *inputs):
    found = explain(function, inputs, plan=True)
    assert found.plan is not None
    return found.plan


def located(function, *inputs):
    return {each.node: each.location for each in planned(function, *inputs).locations}


def lines_of(out, title):
    return out.split(f"── {title} ")[1].split("\n\n──")[0].splitlines()[1:]


# --- the command ----------------------------------------------------------------------------------


def test_the_planned_graph_is_in_place_of_the_reinplaced_one(call, write):
    outcome = call("explain", write(PROGRAM), "--plan")
    assert (outcome.code, outcome.err) == (0, "")
    headings = [line for line in outcome.out.splitlines() if line.startswith("── ")]
    assert [heading.strip("─ ") for heading in headings] == [
        "program",
        "ATen calls",
        "bytes of the ATen calls",
        "functional graph",
        "planned graph",
        "results",
        "memory",
        "timeline of the functional graph",
        "timeline of the planned graph",
    ]
    assert any("aten.sub.out(" in line for line in lines_of(outcome.out, "planned graph"))
    memory = [line.split() for line in lines_of(outcome.out, "memory")]
    assert memory[0] == ["graph", "peak", "bytes", "allocations"]
    peaks = {name: (int(peak), int(allocations)) for name, peak, allocations in memory[1:]}
    assert peaks["functional"] == (64 + 32 - 32, 5)
    assert peaks["planned"] < peaks["reinplaced"] <= peaks["functional"]


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_a_timeline_is_one_screen_wide(call, write, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    outcome = call("explain", write(PROGRAM), "--plan")
    for title in ("timeline of the functional graph", "timeline of the planned graph"):
        drawn = lines_of(outcome.out, title)
        assert max(map(len, drawn)) <= columns
        assert all(line.isascii() for line in drawn)


def test_json(call, write):
    found = json.loads(call("explain", write(PROGRAM), "--plan", "--json").out)
    assert "planned" in found
    assert "reinplaced" not in found
    assert set(found["plan"]) == {"results", "memory", "timeline"}
    assert set(found["plan"]["memory"]["planned"]) == {"peak", "allocations"}
    (first, *_) = found["plan"]["results"]
    assert set(first) == {"node", "op", "new", "location", "refused"}
    assert set(found["plan"]["timeline"]["rows"][0]) == {
        "storage",
        "nbytes",
        "first",
        "last",
        "kept",
        "results",
        "unknown",
    }


# --- where results are ----------------------------------------------------------------------------


def test_in_new_memory_with_the_condition_that_bars_operands():
    plan = planned(lambda a: a * 2, torch.ones(4))
    (result,) = plan.locations
    assert result.new
    assert str(result).startswith(
        "mul = aten.mul.Tensor\n  in new memory: storage B\n  because\n"
        "    in place: (1b) not_an_input: "
    )


def test_in_an_operand():
    def program(a, b):
        c, d = a * 2, b + 1
        return c - d, c / 3

    found = located(program, torch.ones(4), torch.ones(4))
    assert found["sub"] == "in place of its operand add: storage D"
    assert found["div"] == "in place of its operand mul: storage C"


def test_in_the_buffer_of_a_concatenation():
    found = located(lambda a, b: torch.cat([a.exp(), b.sin()]), torch.ones(4), torch.ones(4))
    assert found["exp"] == found["sin"] == "in the buffer of cat: storage C"
    assert found["cat"] == "in the buffer of its parts: storage C"


def test_a_buffer_in_a_buffer():
    def program(a, b):
        inner = torch.cat([a * 2, b * 3])
        return torch.cat([inner, b + 1])

    found = located(program, torch.ones(4), torch.ones(4))
    assert found["mul"] == found["cat"] == found["add"] == "in the buffer of cat_1: storage C"
    assert found["cat_1"] == "in the buffer of its parts: storage C"


def test_a_view_in_place_of_a_copy():
    def program(a):
        b = a * 2
        return torch.select_copy(b, 0, 1).sum() + b.sum()

    found = located(program, torch.ones(4, 4))
    assert found["select_copy"] == "not copied, but a view, select: storage B"


def test_in_memory_that_is_not_read_any_more():
    def program(a):
        b = a.exp().sum(0)
        c = torch.mm(b[None], a)
        return (c.sin() @ a).sum()

    locations = located(program, torch.ones(8, 8)).values()
    assert any("which is not read any more" in location for location in locations)


def test_in_an_input():
    def program(a, b):
        b.copy_(a.sin() * a.cos())

    found = located(program, torch.ones(4), torch.ones(4))
    assert "in the input that it is copied to in the end: storage B" in found.values()


def test_a_write_into_an_input_is_in_place_of_it():
    found = located(lambda a: a.add_(1), torch.ones(4))
    assert found == {"add": "in place of its operand a: storage A"}


def test_in_a_view_that_is_erased():
    def program(a, b):
        b.index_fill_(0, torch.arange(1), 3)

    base = torch.zeros(6)
    found = located(program, base[:4], base)
    assert found["index_fill"] == "in place of its operand b: storage A"
    assert found["as_strided_scatter"] == "where it is already, in as_strided: storage A"


def test_in_place_with_its_cast():
    found = located(lambda a: (a * 2).ge_(1), torch.ones(4))
    assert found["ge"] == found["_to_copy"] == "in place of its operand mul: storage B"


def test_lists():
    def program(a, b):
        return torch._foreach_exp(torch._foreach_add([a, b], 1))

    found = located(program, torch.ones(4), torch.ones(2))
    assert found["_foreach_add"] == "in new memory: storages C, D"


# --- timelines ------------------------------------------------------------------------------------


def row(first, last, *results, kept=False, nbytes=8, storage="A"):
    return StorageRow(storage, nbytes, first, last, kept, results)


def test_a_size_that_depends_on_data():
    rows = planned(lambda x: (x[x > 0].exp(), x[:0] * 2), torch.ones(3)).planned.rows
    assert [row.size for row in rows] == ["3", "?", "0"]


def test_results_in_turn():
    timeline = StorageTimeline((row(0, 1, (0, "mul"), (1, "add"), kept=True),), (8, 8))
    assert timeline.drawn(100).splitlines() == [
        "      bytes",
        "A         8  |mul----------|add--------->",
        "live         8             8",
    ]


def test_many_calls_have_less_than_a_column_each():
    rows = tuple(row(at, at + 1, (at, f"call_{at}")) for at in range(1000))
    live = (8, *[16] * 999)
    drawn = StorageTimeline(rows, live).drawn(80).splitlines()
    assert max(map(len, drawn)) <= 80
    assert drawn[-1] == "... and 960 smaller storages"
    assert drawn[-2].split()[1] == "9" * len(drawn[-2].split()[1])


def test_the_largest_storages_are_shown():
    rows = tuple(row(0, 0, (0, "x"), nbytes=size, storage=f"S{size}") for size in range(1, 51))
    drawn = StorageTimeline(rows, (sum(range(51)),)).drawn(80)
    assert "S50" in drawn
    assert "S5 " not in drawn


def test_peak_and_allocations():
    timeline = StorageTimeline((row(0, 0), row(0, 0, nbytes=0), row(0, 0, nbytes=None)), (8, 24))
    assert (timeline.peak, timeline.allocations) == (24, 1)
    assert StorageTimeline((), ()).peak == 0


def test_nothing_to_draw():
    found = explain(lambda a: a[1:], [torch.ones(3)], plan=True).parts
    assert found["results"] == "No call has a result in memory of its own."
    assert found["timeline of the planned graph"] == (
        "Nothing is allocated, and no input is written."
    )


def test_sizes():
    sizes = (0, 9_999, 10_240, 10**6, 5 * 1024**3)
    assert [*map(bytes_text, sizes)] == ["0", "9999", "10.0K", "977K", "5.0G"]
