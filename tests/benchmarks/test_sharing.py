"""The benchmark `sharing` has programs that eager runs, and finds backends that are wrong."""

from __future__ import annotations

import json

import pytest
import torch

from aliasproof.ir.errors import UserError
from aliasproof.processes.outcome import Death
from benchmarks.__main__ import main
from benchmarks.sharing import sharing_table
from benchmarks.sharing.beside_eager import (
    MODES,
    SharingAnswer,
    SharingResult,
    compare,
    eager_records,
    programs,
)
from benchmarks.sharing.shared_arguments import SharingProgram, program, separate
from benchmarks.sharing.sharing_table import SharingTable, measure

pytestmark = pytest.mark.filterwarnings("ignore")  # of torch, about odd programs


@pytest.fixture(autouse=True)
def fresh_dynamo():
    yield
    torch._dynamo.reset()


# --- the programs ---------------------------------------------------------------------------------


def test_there_are_many_programs_and_eager_runs_each_of_them():
    assert len(programs()) >= 200
    for name, one in programs().items():
        assert one.name == name
        records, _ = eager_records(one, training=True)
        assert records, name


def test_two_programs_of_one_name_are_an_error():
    (name, *_) = programs()

    def target(x):
        return x

    target.__name__ = name
    with pytest.raises(ValueError, match=f"two programs are called {name}"):
        program(separate())(target)


def test_a_seed_gives_equal_calls_and_another_seed_gives_others():
    one = programs()["add_shifted_then_read"]
    first, again, other = (one.calls(seed) for seed in (0, 0, 1))
    assert torch.equal(first[0].bases[0], again[0].bases[0])
    assert [call.label for call in other] == [call.label for call in [*first[1:], first[0]]]


# --- the comparison -------------------------------------------------------------------------------


def of_inputs(input_of):
    """A backend that runs the graph on other inputs."""
    return lambda graph, sample: lambda *inputs: graph(*map(input_of, inputs))


def of_results(result_of):
    """A backend that returns other results than the graph."""
    return lambda graph, sample: lambda *inputs: tuple(map(result_of, graph(*inputs)))


def refuses(graph, sample):
    raise RuntimeError("no such graph")


PLANTED = {
    "ignores writes": of_inputs(lambda x: x.clone() if isinstance(x, torch.Tensor) else x),
    "loses gradients": of_results(torch.Tensor.detach),
    "doubles gradients": of_results(lambda x: x + (x - x.detach())),
    "copies results": of_results(torch.clone),
    "makes dense": of_results(lambda x: x.clone(memory_format=torch.contiguous_format)),
    "rounds otherwise": of_results(lambda x: x * (1 + 2**-22)),
    "refuses": refuses,
}


@pytest.mark.parametrize("name", ["write_one_read_transposed", "returns_views_of_intermediate"])
@pytest.mark.parametrize("mode", MODES)
def test_eager_is_right(name, mode):
    answer, shown = compare(programs()[name], "eager", training=mode == "training")
    assert (answer, shown) == (SharingAnswer.RIGHT, [])


@pytest.mark.parametrize(
    ("planted", "name", "mode", "answer", "shown"),
    [
        ("ignores writes", "zero_diagonal", "inference", "wrong", "argument 0: values differ"),
        ("ignores writes", "add_shifted_then_read", "inference", "wrong", "base 0: values differ"),
        ("loses gradients", "relu_in_place", "training", "wrong", "0: requires_grad False instead"),
        ("loses gradients", "assign_into_zeros", "training", "wrong", "gradient of base 0: values"),
        ("doubles gradients", "relu_in_place", "training", "wrong", "gradient of base 0: values"),
        ("doubles gradients", "assign_into_zeros", "training", "wrong", "of base 0: values differ"),
        ("copies results", "returns_views_of_intermediate", "inference", "wrong", "with none inst"),
        ("copies results", "returns_split_of_argument", "inference", "wrong", "with none instead"),
        (
            "makes dense",
            "returns_views_of_intermediate",
            "inference",
            "wrong",
            "strides (3, 1) ins",
        ),
        ("rounds otherwise", "relu_in_place", "inference", "bits", "result 0: values differ by"),
        (
            "refuses",
            "relu_in_place",
            "inference",
            "raises",
            "call 0 (whole): RuntimeError: no such",
        ),
    ],
)
def test_a_wrong_backend_shows(planted, name, mode, answer, shown):
    program_of_name, training = programs()[name], mode == "training"
    given, differences = compare(program_of_name, PLANTED[planted], training=training)
    assert given == answer
    assert any(shown in text for text in differences), differences


def test_a_call_that_eager_refuses_is_left_out():
    def refuses_position_four(x, position):
        if position == 4:
            raise ValueError("refused")
        return x + 1

    calls = programs()["attention_with_cache"].calls
    one = SharingProgram("refuses_one", refuses_position_four, calls, "x", factory=False)
    records, refused = eager_records(one, training=False)
    assert (len(records), refused) == (3, {2})
    assert compare(one, "eager", training=False)[0] == SharingAnswer.RIGHT


# --- the table ------------------------------------------------------------------------------------


def test_a_program_runs_under_both_backends_and_the_figures_are_written(tmp_path, capsys):
    main(["sharing", "--only", "row_and_column_cross", "--json", str(tmp_path / "figures.json")])
    (table,) = json.loads((tmp_path / "figures.json").read_text())["sharing"].values()
    answers = {(row["backend"], row["mode"]): row["answer"] for row in table}
    assert answers["aot_eager", "inference"] == SharingAnswer.WRONG
    assert answers["aliasproof", "inference"] == SharingAnswer.RIGHT
    assert len(answers) == 4
    assert "wrong: row_and_column_cross: call 3 (case 3), result 0" in capsys.readouterr().out


def test_the_table_counts_answers_and_lists_the_worst_first():
    backend, mode = sharing_table.BACKENDS[0], MODES[0]
    results = [
        SharingResult("a", backend, mode, "bits", ["call 0"]),
        SharingResult("b", backend, mode, "right"),
        SharingResult("c", backend, mode, "wrong", ["call 1", "call 2"]),
    ]
    (table,) = SharingTable(results).tables()
    assert table.rows[0] == (f"{backend}, {mode}", "1", "1", "1", "0")
    assert table.rows[1] == (f"{backend}, {MODES[1]}", *"0000")
    assert table.notes == [
        "",
        f"{backend}, {mode}: 2 not right",
        "  wrong: c: call 1",
        "  bits: a: call 0",
    ]


def test_a_program_that_ends_its_process_raises():
    outcome = Death("hangs", "compiled", "no end after 120 s")
    result = sharing_table._result(("a", "aot_eager", "training"), outcome)
    assert result.answer == SharingAnswer.RAISES
    assert result.differences == ["compiled: hangs (no end after 120 s)"]


def test_an_unknown_program_is_named():
    with pytest.raises(UserError, match="no program 'zero_diagonals'"):
        measure(["zero_diagonals"])
