"""The benchmarks run, at tiny sizes, and their figures are consistent.

Speed is not tested."""

import json

import pytest

from aliasproof.campaigns.run.fuzz import fuzz
from aliasproof.campaigns.store.plan import Plan, Shard, written_for_bugs
from aliasproof.reference_pass.planning.timeline import Footprint
from benchmarks import planning
from benchmarks.__main__ import BENCHMARKS, main
from benchmarks.rediscovery import Rediscovery
from benchmarks.tables import Table, as_json, plain

# Warnings of torch about odd programs. As errors they would end runs: some come once per process.
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def measured() -> planning.Planning:
    return planning.measure(["swap"])


def test_a_swap_needs_one_copy(measured):
    (plan,) = measured.graphs
    assert plan.footprints["plan_memory"] == Footprint(peak=64 * 64 * 4, calls=1)
    (table,) = measured.tables()
    assert table.rows == [plan.row()]


def test_a_result_can_be_printed_and_written(measured):
    (table,) = measured.tables()
    assert all(len(row) == len(table.columns) for row in table.rows)
    assert plain(table).startswith(table.title)
    figures = as_json(measured)
    assert json.loads(json.dumps(figures)) == figures


def test_a_key_of_several_parts_is_one_text():
    assert as_json({("add", "raises"): 2}) == {"add: raises": 2}


def test_a_plain_table_lines_its_columns_up():
    table = Table("two rows", ("name", "ms"), [("a", "1.00"), ("longer", "10.00")], ["a note"])
    assert plain(table) == "two rows\nname       ms\na        1.00\nlonger  10.00\na note\n"


def test_the_named_benchmark_runs_and_writes_its_figures(monkeypatch, tmp_path, capsys, measured):
    monkeypatch.setitem(BENCHMARKS, "planning", lambda options: measured)
    main(["planning", "--json", str(tmp_path / "figures.json")])
    assert "swap" in capsys.readouterr().out
    figures = json.loads((tmp_path / "figures.json").read_text())
    assert set(figures) == {"machine", "planning"}


def test_without_a_name_the_benchmarks_are_listed(capsys):
    main([])
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == [*BENCHMARKS]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["speed"], "unknown benchmark 'speed'"),
        (["planning", "--json", "no/such/folder/f.json"], "cannot write no/such/folder/f.json"),
        (["planning", "--only", "nothing"], "planning: unknown graph 'nothing'"),
        (["models", "--only", "GPT-5"], "models: unknown scene 'GPT-5'"),
    ],
)
def test_bad_arguments_end_in_one_line(arguments, message, capsys):
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    assert stop.value.code == 2
    assert message in capsys.readouterr().err


# --- rediscovery ----------------------------------------------------------------------------------


def test_a_blind_shard_plays_no_scenario_of_a_known_bug() -> None:
    seeds = range(40)
    played = {it for seed in seeds for it in Shard(seed, "aot").features().scenarios}
    blind = {it for seed in seeds for it in Shard(seed, "aot", blind=True).features().scenarios}
    assert played & written_for_bugs()
    assert blind == played - written_for_bugs()
    shards = Plan(("aot",), programs=200, blind=True).shards()
    assert all(shard.blind for shard in shards)


@pytest.mark.thorough
def test_a_blind_campaign_counts_known_bugs(tmp_path) -> None:
    plan = Plan(("fx-reinplace",), programs=50, workers=1, blind=True)
    found = Rediscovery.of(fuzz(plan, tmp_path))
    assert sum(programs for programs, _ in found.programs.values()) == 50
    assert found.met
    (table,) = found.tables()
    assert any(line.startswith(f"Met: {len(found.met)} of the ") for line in table.notes)
