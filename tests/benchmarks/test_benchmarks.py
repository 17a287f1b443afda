"""The benchmarks run, at tiny sizes, and their figures fit together.

How fast anything is, is not tested.
"""

import json

import pytest

from aliasproof.targets.registry import target
from benchmarks import throughput
from benchmarks.__main__ import BENCHMARKS, main
from benchmarks.tables import Table, as_json, plain

# Of torch, about odd programs. As errors they would end runs: some come once a process.
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def checked() -> throughput.Throughput:
    return throughput.measure(
        (target("identity"), target("functionalize")), shards=2, programs=10, warm_up=1
    )


def test_the_shares_of_each_target_sum_to_one(checked):
    for account in checked.accounts:
        assert set(account.shares) == {
            "generation",
            "eager",
            "target",
            "oracles",
            "graphs",
            "other",
        }
        assert sum(account.shares.values()) == pytest.approx(1)
        assert all(share >= 0 for share in account.shares.values())
        assert account.harness_share == pytest.approx(1 - account.shares["target"])


def test_every_target_gets_the_same_programs(checked):
    identity, functionalize = checked.accounts
    assert identity.programs == functionalize.programs == 20
    assert identity.discarded == functionalize.discarded
    assert identity.instructions == functionalize.instructions
    assert identity.instructions.kept > 0


def test_identity_is_for_every_program_and_breaks_none(checked):
    identity = checked.accounts[0]
    assert (identity.not_applicable, identity.violating) == (0, 0)


def test_a_result_can_be_printed_and_written(checked):
    for table in checked.tables():
        assert all(len(row) == len(table.columns) for row in table.rows)
        assert plain(table).startswith(table.title)
    figures = as_json(checked)
    assert json.loads(json.dumps(figures)) == figures


def test_the_reasons_of_dropped_draws_are_written(checked):
    instructions = as_json(checked)["accounts"][0]["instructions"]
    counts = checked.accounts[0].instructions
    assert instructions["reasons"] == {
        f"{op}: {reason}": count for (op, reason), count in counts.reasons.items()
    }
    assert instructions["reasons"]


def test_a_plain_table_lines_its_columns_up():
    table = Table("two rows", ("name", "ms"), [("a", "1.00"), ("longer", "10.00")], ["a note"])
    assert plain(table) == "two rows\nname       ms\na        1.00\nlonger  10.00\na note\n"


def test_the_named_benchmark_runs_and_writes_its_figures(monkeypatch, tmp_path, capsys, checked):
    monkeypatch.setitem(BENCHMARKS, "throughput", lambda options: checked)
    main(["throughput", "--json", str(tmp_path / "figures.json")])
    assert "identity" in capsys.readouterr().out
    figures = json.loads((tmp_path / "figures.json").read_text())
    assert set(figures) == {"machine", "throughput"}


def test_without_a_name_the_benchmarks_are_listed(capsys):
    main([])
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == [*BENCHMARKS]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["speed"], "unknown benchmark 'speed'"),
        (["throughput", "--json", "no/such/folder/f.json"], "cannot write no/such/folder/f.json"),
    ],
)
def test_bad_arguments_end_in_one_line(arguments, message, capsys):
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    assert stop.value.code == 2
    assert message in capsys.readouterr().err
