"""`aliasproof explain`: the report on what the reference pass does to a program."""

import json
import re

import pytest
import torch

import aliasproof.checks.explaining
from aliasproof.checks.explaining import explain, step_of
from aliasproof.ir.serialization import dumps
from aliasproof.reference_pass.exceptions import Refused
from aliasproof.reference_pass.pipeline import CONDITIONS
from aliasproof.reports.node_lines import graph_text, letter
from aliasproof.reports.storage_timeline import StorageRow, StorageTimeline, bytes_text
from tests.short_programs import program_of, view

MUTATES = """
import torch

def program(x):
    y = x + 1
    y.view(2, 2).mul_(3)
    x.add_(1)
    return y

def inputs():
    return torch.arange(4.)
"""
SELECTED = "v0 = aten.select.int(x0, 0, 2)\naten.add_.Scalar(v0, 1)\nreturn (x0, v0)"
PROGRAM = program_of(SELECTED, view(4))


def lines_of(out, title):
    """The lines of one part of the output."""
    return out.split(f"── {title} ")[1].split("\n\n──")[0].splitlines()[1:]


# --- the command ----------------------------------------------------------------------------------


def test_the_program_its_graphs_and_the_decisions(call, write):
    outcome = call("explain", write(MUTATES))
    assert (outcome.code, outcome.err) == (0, "")
    assert "    y.view(2, 2).mul_(3)" in lines_of(outcome.out, "program")
    assert re.search(r"aten\.mul_\.(Scalar|Tensor)", "\n".join(lines_of(outcome.out, "ATen calls")))
    functional = lines_of(outcome.out, "functional graph")
    assert functional[0].split() == ["x", "=", "input", "float32[4]", "A"]
    assert [line for line in functional if "!" in line] == [
        line for line in functional if "copy_" in line
    ]
    assert any(
        "aten.mul_.Tensor" in line and line.endswith("B!")
        for line in lines_of(outcome.out, "reinplaced graph")
    )
    said = "\n".join(lines_of(outcome.out, "decisions"))
    assert (
        "add = aten.add.Tensor\n  not in place because\n"
        "    in place: (2) no_later_use: x shares memory" in said
    )
    assert "mul = aten.mul.Tensor\n  in place because all conditions hold" in said


def test_with_view_copies(call, write):
    outcome = call("explain", write(MUTATES), "--views", "copy")
    assert "aten.view_copy.default" in "\n".join(lines_of(outcome.out, "functional graph"))


@pytest.mark.parametrize("given", ["finding", "finding/program.json"])
def test_a_stored_program(call, tmp_path, given):
    (tmp_path / "finding").mkdir()
    (tmp_path / "finding" / "program.json").write_text(dumps(PROGRAM))
    outcome = call("explain", given)
    assert outcome.code == 0
    assert "def program(x0):" in lines_of(outcome.out, "program")
    assert "def inputs():" in lines_of(outcome.out, "program")
    (view,) = (
        line for line in lines_of(outcome.out, "ATen calls") if "aten.select.int(x0, 0, 2)" in line
    )
    assert view.endswith("float32[] offset 2  A")
    assert "aten.copy_" not in "\n".join(lines_of(outcome.out, "ATen calls"))


def test_json(call, write):
    found = call("explain", write(MUTATES), "--json").json()
    assert set(found) == {
        *("file", "views", "torch", "notes", "program", "bytes"),
        *("functional", "reinplaced", "decisions"),
    }
    about = [found[name] for name in ("file", "views", "torch")]
    assert about == ["mine.py", "alias", torch.__version__]
    assert "def program(x):" in found["program"]["source"]
    first = found["functional"][0]
    assert (first["name"], first["call"], first["writes"]) == ("x", "input", [])
    layout = {"dtype": "float32", "sizes": [4], "strides": [1], "offset": 0, "storage": "A"}
    assert first["tensors"] == [layout | {"contiguous": True}]
    for decision in found["decisions"]:
        assert set(decision) == {"node", "op", "in_place", "how", "into", "refused"}
        assert decision["in_place"] is (decision["how"] is not None)
        for refused in decision["refused"]:
            assert set(refused) == {"how", "condition", "step", "reason"}
            assert refused["condition"] in {condition.__name__ for condition in CONDITIONS}
            assert refused["step"] == step_of(refused["condition"])


def test_what_the_file_prints_is_not_a_result(call, write):
    outcome = call("explain", write(MUTATES.replace("x.add_(1)", "print('loud')")), "--json")
    assert json.loads(outcome.out)["file"] == "mine.py"
    assert "loud" in outcome.err


def test_captured_tensors_are_inputs(call, write):
    text = MUTATES.replace("def program", "weight = torch.ones(4)\ndef program")
    outcome = call("explain", write(text.replace("1\n", "weight\n", 1)))
    assert outcome.err == "note: input 1 is the captured tensor weight\n"
    assert any(
        line.split()[-4:] == ["=", "input", "float32[4]", "B"]
        for line in lines_of(outcome.out, "functional graph")
    )


CACHE = """
from dataclasses import dataclass
import torch

@dataclass
class Cache:
    k: torch.Tensor
    v: torch.Tensor
    length: int = 0

def program(q, cache, more, k, *rest):
    cache.k[:, :1] = k
    cache.v[:, :1] = more["w"]
    return q @ cache.v + rest[0]

def inputs():
    cache = Cache(torch.zeros(2, 2), torch.ones(2, 2))
    return torch.ones(2, 2), cache, {"w": torch.full((2, 1), 2.)}, torch.ones(2, 1), torch.ones(2)
"""


def test_tensors_of_an_object_are_named_by_their_paths(call, write):
    outcome = call("explain", write(CACHE))
    assert outcome.code == 0, outcome.err
    for title in ("ATen calls", "functional graph", "reinplaced graph"):
        lines = lines_of(outcome.out, title)
        assert [line.rpartition("  float32")[0].split("  ")[0] for line in lines[:6]] == [
            "q = input",
            "cache_k = input cache.k",
            "cache_v = input cache.v",
            "more_w = input more['w']",
            "k = input",
            "rest_0 = input rest[0]",
        ]
    called = "\n".join(lines_of(outcome.out, "ATen calls"))
    assert "aten.slice.Tensor(cache_k, 1, 0, 1)" in called
    assert "aten.mm.default(q, cache_v)" in called


def test_nothing_to_decide(call, write_program):
    outcome = call("explain", write_program("return x[1:]"))
    assert lines_of(outcome.out, "decisions")[0].startswith("No op could be in place")


@pytest.mark.parametrize(
    ("body", "parts"),
    [
        ("return x + torch.ones(7)", ["it cannot be traced: RuntimeError", "(line 4)"]),
        ("raise SystemExit(4)", ["program calls sys.exit(4)"]),
        ("return x if x.sum() > 0 else -x", ["the reference pass refuses it", "data-dependent"]),
    ],
    ids=["sizes", "exits", "branches"],
)
def test_what_cannot_be_explained_is_bad_input(call, write_program, body, parts):
    refusal = call("explain", write_program(body)).refusal
    assert refusal.startswith("aliasproof: mine.py: ")
    assert all(part in refusal for part in parts)


def test_the_function_that_is_named_is_explained(call, write_program):
    outcome = call("explain", write_program("return x"), "--function", "other")
    assert "mine.py defines no 'other'" in outcome.refusal


@pytest.mark.parametrize("step", ["capture", "functionalize", "reinplace"])
def test_a_program_that_is_refused_is_bad_input(call, write, monkeypatch, step):
    def refuse(*args, **options):
        raise Refused("a reason\nof two lines")

    monkeypatch.setattr(aliasproof.checks.explaining, step, refuse)
    refused = "the reference pass refuses it: a reason of two lines"
    assert call("explain", write(MUTATES)).refusal == f"aliasproof: mine.py: {refused}\n"


# --- the text -------------------------------------------------------------------------------------


def test_of_an_op_that_is_in_place_the_conditions_that_were_refused_before_are_said():
    found = explain(lambda x: torch.add(x, torch.ones(4)), [torch.ones(4)])
    assert found.parts()["decisions"].startswith(
        "add = aten.add.Tensor\n  into an operand because all conditions hold\n"
        "  refused before that\n    in place: (1b) not_an_input"
    )


def test_views_share_the_letter_of_their_base():
    found = explain(lambda x, y: (x.t()[1:], y + 1), [torch.ones(3, 2), torch.ones(2)])
    lines = {line.name: line for line in found.functional}
    stored = {name: line.storages for name, line in lines.items() if name}
    assert stored == {"x": "A", "y": "B", "t": "A", "slice_1": "A", "add": "C"}
    assert str(lines["t"].tensors[0]) == "float32[2, 3] strides [1, 2]"


def test_a_list_that_is_written_shows_each_storage():
    def program(x):
        pair = [x + 1, x + 2]
        torch._foreach_mul_(pair, 2)
        return pair

    (line,) = (
        line for line in explain(program, [torch.ones(2)]).program if "_foreach_mul_" in line.call
    )
    assert (line.storages, line.tensors) == ("B!, C!", ())


def test_arguments_that_are_defaults_are_left_out():
    found = explain(lambda x: x.view(4).add(1, alpha=1), [torch.ones(2, 2)])
    assert "alpha" not in graph_text(found.functional)
    assert "alpha=2" in graph_text(explain(lambda x: x.add(1, alpha=2), [torch.ones(2)]).functional)


def test_data_dependent_sizes():
    found = explain(lambda x: x[x > 0].add_(1), [torch.ones(3)])
    (index,) = (line for line in found.rewritten if line.name == "index")
    assert str(index.tensors[0]).startswith("float32[u")


def test_every_condition_names_its_step():
    assert all(step_of(condition.__name__) for condition in CONDITIONS)
    assert step_of("not_an_input") == "(1b)"
    assert step_of("source_is_at_destination") == "(2c), (5)"
    assert step_of("no_such_condition") is None


def test_letters():
    assert [letter(number) for number in (0, 25, 26, 27, 26 * 27)] == ["A", "Z", "AA", "AB", "AAA"]


def test_inputs_are_left_alone():
    tensor = torch.ones(4)
    explain(lambda x: x.add_(1), [tensor])
    assert tensor.tolist() == [1.0] * 4


@pytest.mark.parametrize("command", ["explain", "prove"])
@pytest.mark.parametrize(
    ("body", "note"),
    [
        ("x[2:].masked_fill_(x[:-2] > 0, 1)", None),
        ("x.expand(3, 4).t()[0].copy_(x[:3])", "undefined in eager, so a compiler may do anything"),
        ("torch._foreach_add_([x[:2], x[1:3]], 1)", "unspecified in eager, so a compiler may"),
    ],
)
def test_what_eager_does_not_define_is_said(call, write_program, command, body, note):
    outcome = call(command, write_program(f"{body}\nreturn x + 0", "torch.arange(4.)"))
    assert note in outcome.err if note else "in eager" not in outcome.err


# --- --plan: where each result is, the peaks, and storages in time --------------------------------

PLANNED = """
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


def test_the_planned_graph_is_in_place_of_the_reinplaced_one(call, write):
    outcome = call("explain", write(PLANNED), "--plan")
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
    outcome = call("explain", write(PLANNED), "--plan")
    for title in ("timeline of the functional graph", "timeline of the planned graph"):
        drawn = lines_of(outcome.out, title)
        assert max(map(len, drawn)) <= columns
        assert all(line.isascii() for line in drawn)


def test_a_plan_as_json(call, write):
    found = call("explain", write(PLANNED), "--plan", "--json").json()
    assert "planned" in found
    assert "reinplaced" not in found
    assert set(found["plan"]) == {"results", "memory", "timeline"}
    assert set(found["plan"]["memory"]["planned"]) == {"peak", "allocations"}
    (first, *_) = found["plan"]["results"]
    assert set(first) == {"node", "op", "new", "location", "refused"}
    row = {"storage", "nbytes", "first", "last", "kept", "results", "unknown"}
    assert set(found["plan"]["timeline"]["rows"][0]) == row


# --- where results are ----------------------------------------------------------------------------


def test_in_new_memory_with_the_condition_that_bars_operands():
    plan = planned(lambda a: a * 2, torch.ones(4))
    (result,) = plan.locations
    assert result.new
    assert str(result).startswith(
        "mul = aten.mul.Tensor\n  in new memory: storage B\n  because\n"
        "    in place: (1b) not_an_input: "
    )


WHERE = {
    "operands": (
        lambda a, b: ((c := a * 2) - (b + 1), c / 3),
        {
            "sub": "in place of its operand add: storage D",
            "div": "in place of its operand mul: storage C",
        },
    ),
    "a concatenation": (
        lambda a, b: torch.cat([a.exp(), b.sin()]),
        {
            "exp": "in the buffer of cat: storage C",
            "sin": "in the buffer of cat: storage C",
            "cat": "in the buffer of its parts: storage C",
        },
    ),
    "a buffer in a buffer": (
        lambda a, b: torch.cat([torch.cat([a * 2, b * 3]), b + 1]),
        {
            **dict.fromkeys(("mul", "cat", "add"), "in the buffer of cat_1: storage C"),
            "cat_1": "in the buffer of its parts: storage C",
        },
    ),
    "a view in place of a copy": (
        lambda a, _: torch.select_copy(c := a.view(2, 2) * 2, 0, 1).sum() + c.sum(),
        {"select_copy": "not copied, but a view, select: storage C"},
    ),
    "an input": (
        lambda a, b: (b.copy_(a.sin() * a.cos()), None)[1],
        {"mul": "in the input that it is copied to in the end: storage B"},
    ),
    "an input that is written": (
        lambda a, _: a.add_(1),
        {"add": "in place of its operand a: storage A"},
    ),
    "in place with its cast": (
        lambda a, _: (a * 2).ge_(1),
        dict.fromkeys(("ge", "_to_copy"), "in place of its operand mul: storage C"),
    ),
    "lists": (
        lambda a, b: torch._foreach_exp(torch._foreach_add([a, b], 1)),
        {"_foreach_add": "in new memory: storages C, D"},
    ),
}


@pytest.mark.parametrize(("program", "expected"), WHERE.values(), ids=WHERE)
def test_where_a_result_is(program, expected):
    found = located(program, torch.ones(4), torch.ones(4))
    assert {node: found[node] for node in expected} == expected


def test_in_memory_that_is_not_read_any_more():
    def program(a):
        b = a.exp().sum(0)
        c = torch.mm(b[None], a)
        return (c.sin() @ a).sum()

    locations = located(program, torch.ones(8, 8)).values()
    assert any("which is not read any more" in location for location in locations)


def test_in_a_view_that_is_erased():
    def program(a, b):
        b.index_fill_(0, torch.arange(1), 3)

    base = torch.zeros(6)
    found = located(program, base[:4], base)
    assert found["index_fill"] == "in place of its operand b: storage A"
    assert found["as_strided_scatter"] == "where it is already, in as_strided: storage A"


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
    found = explain(lambda a: a[1:], [torch.ones(3)], plan=True).parts()
    assert found["results"] == "No call has a result in memory of its own."
    drawn = found["timeline of the planned graph"]
    assert drawn == "Nothing is allocated, and no input is written."


def test_sizes():
    sizes = (0, 9_999, 10_240, 10**6, 5 * 1024**3)
    assert [*map(bytes_text, sizes)] == ["0", "9999", "10.0K", "977K", "5.0G"]
