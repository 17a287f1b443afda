"""A hunt is a fold over stored results: killed anywhere, it continues where it stopped."""

import itertools
import json
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from aliasproof.campaigns.failure.failure import AnyFailure, Failure
from aliasproof.campaigns.failure.finding import Finding
from aliasproof.campaigns.publish import publisher
from aliasproof.campaigns.publish.confirmation import Confirmation, Run
from aliasproof.campaigns.run import executor
from aliasproof.campaigns.run.campaign import Campaign
from aliasproof.campaigns.run.executor import IsolatedReduction, Reduction
from aliasproof.campaigns.run.fuzz import fuzz
from aliasproof.campaigns.run.merging import merge
from aliasproof.campaigns.run.shard import ShardResult, Statistics
from aliasproof.campaigns.store.full_disk import DiskFull
from aliasproof.campaigns.store.plan import Plan, Shard
from aliasproof.campaigns.store.run_contents import read_triage
from aliasproof.campaigns.store.run_view import RunReader
from aliasproof.campaigns.store.store import Store
from aliasproof.ir.errors import InternalError, UserError
from aliasproof.ir.python_program import PythonProgram
from aliasproof.judge.attribution import Symptom
from aliasproof.processes.interrupts import Interrupts
from aliasproof.processes.outcome import Death, Outcome, Raised, Returned
from aliasproof.processes.pool import RemoteCall
from tests.campaigns.made_findings import finding_of
from tests.wrong_python import WRONG

PLAN = Plan(("aot-eager",), seed=3, programs=60, workers=2, language="python")
PROGRAM, ORACLES = PythonProgram(WRONG), ("values", "errors")
KILLED = Death("dies of signal 9", "target", status=-9)


class KilledError(Exception):
    """Stands for the death of the hunt's process."""


@dataclass
class FakePool:
    """Answers calls in another order than they came, without processes.

    `asked` counts the calls. The programs `deadly` kill their process; `outside` is how often a
    signal from outside kills one. The hunt is killed after a given number of answers.
    """

    most: int = 2
    outside: int = 0
    killed_after: int = 10**9
    deadly: frozenset[int] = frozenset()
    unreducible: frozenset[int] = frozenset()
    asked: Counter[str] = field(default_factory=Counter)
    waiting: list[RemoteCall] = field(default_factory=list)

    @property
    def pending(self) -> int:
        """Without isolated reductions, which have a pool of their own in a campaign."""
        return sum(type(it.arguments[0]) is not IsolatedReduction for it in self.waiting)

    def wait(self, seconds: float) -> None: ...

    def stop(self) -> None: ...

    def submit(self, call: RemoteCall) -> None:
        self.waiting.append(call)

    def outcomes(self) -> Iterator[tuple[Any, Outcome]]:
        while len(self.waiting) > 1 or (self.waiting and not next(_turns) % 3):
            self.killed_after -= 1
            if self.killed_after < 0:
                raise KilledError
            call = self.waiting.pop()  # the newest first
            yield call.key, self.outcome(call)

    def outcome(self, call: RemoteCall) -> Outcome:
        given: Any = call.arguments[0]
        isolated = isinstance(given, IsolatedReduction)
        work: Shard | AnyFailure = given.failure if isolated else given
        asked = work.numbers if isinstance(work, Shard) else work.seed
        self.asked[f"{type(work).__name__} {asked}"] += 1
        if self.outside:
            self.outside -= 1
            return KILLED
        if isinstance(work, Shard):
            ends = self.deadly & {*work.numbers} - work.skip
            return crash(*ends) if ends else Returned(judged(work))
        if work.seed in self.unreducible:
            return crash(work.seed)
        if work.seed == 3:
            return Raised(InternalError("ours"))
        return Returned(reduced(work.seed))


_turns = itertools.count()


def crash(program: int) -> Death:
    return Death("dies", "target", status=-11, programs=range(program, program + 1))


def judged(shard: Shard) -> ShardResult:
    """Every seventh program fails, from one of two causes: one raises, the other is silent."""
    counts = Statistics(programs=shard.count, dies=len(shard.skip))
    drawn = [number for number in shard.numbers if number % 7 == 3]
    counts.violating = len(drawn)
    failures: list[AnyFailure] = [
        Failure(Symptom("aot-eager", ORACLES[number % 2], f"wrong {number % 2}"), PROGRAM, number)
        for number in drawn
    ]
    return ShardResult(shard, counts, failures)


def reduced(number: int) -> Reduction:
    if number == 24:
        return Reduction(None, 0.0, documented="as the docs say")
    oracle, kind = ORACLES[number % 2], f"wrong {number % 2}"
    return Reduction(finding_of(PROGRAM, "aot-eager", oracle, kind, "base", seed=3), 0.0)


@pytest.fixture
def run(tmp_path: Path, monkeypatch) -> Callable[..., Campaign]:
    """Runs the hunt in a folder with a pool; scripts show every kind except one."""

    def shown(finding: Finding[PythonProgram], run: Run) -> Confirmation:
        return Confirmation(finding.kind != "wrong 1", f"BUG: {finding.kind}", "exits 1")

    def hunting_in(name: str, pool: FakePool, plan: Plan = PLAN, **more: Any) -> Campaign:
        monkeypatch.setattr(executor, "start_pool", lambda *given, **options: pool)
        return fuzz(plan, tmp_path / name, **more)

    monkeypatch.setattr(publisher, "confirm_python", shown)
    return hunting_in


def outcome(run: Path) -> dict[str, Any]:
    """The outcome of a run, without times and its folder."""
    said = json.loads((run / "run.json").read_text())
    for name in ("seconds", "seconds of processor time", "worker deaths"):
        said.pop(name)
    files = {str(path.relative_to(run)): path.read_text() for path in sorted(run.glob("*/*/*"))}
    return dict(json.loads(json.dumps(said | {"files": files}).replace(str(run), "")))


def test_all_programs_are_counted_and_each_finding_is_confirmed(run, tmp_path: Path):
    found = run("run", FakePool())
    assert found.total.programs == 60
    assert found.total.documented == 1
    assert [it.kind for it in found.findings.values()] == ["wrong 0"]
    [reason] = found.unconfirmed.values()
    assert reason.startswith("wrong 1")
    assert found.repeats == 5 - 2, (
        "two of an error are reduced, the first in vain, and all silent ones"
    )
    assert found.mistakes == ["reduction of wrong 1 from shard 3: ours"]
    folder = tmp_path / "run" / "findings" / next(iter(found.findings))
    assert {it.name for it in folder.iterdir()} == {"finding.json", "issue.md", "reproducer.py"}


def deadly(killed_after: int = 10**9) -> FakePool:
    return FakePool(2, 0, killed_after, frozenset({21}), frozenset({10}))


@pytest.mark.parametrize("often", [1, 4, 9])
def test_a_hunt_that_is_killed_again_and_again_finds_the_same(run, tmp_path: Path, often: int):
    run("undisturbed", deadly())
    asked = Counter[str]()
    for _ in range(100):
        pool = deadly(killed_after=often)
        try:
            run("killed", pool)
            break
        except KilledError:
            asked += pool.asked
    assert outcome(tmp_path / "killed") == outcome(tmp_path / "undisturbed")
    [often_asked] = {asked[name] for name in asked if "range(0, 10)" in name}
    assert often_asked <= 2, "what is stored does not run again"


def test_a_deadly_program_is_told_and_the_others_of_its_call_are_judged(run):
    found = run("run", deadly())
    assert found.total.programs == 60
    assert found.total.dies == 1
    assert "program 21 of aot-eager dies of signal 11" in found.notes
    reason = "each worker that reduced it dies of signal 11"
    assert f"reduction of wrong 0 from shard 10: {reason}" in found.mistakes


def test_workers_that_are_ended_from_outside_change_nothing(run, tmp_path: Path):
    run("undisturbed", FakePool())
    run("disturbed", FakePool(outside=4))
    assert outcome(tmp_path / "disturbed") == outcome(tmp_path / "undisturbed")


def test_ctrl_c_keeps_what_was_found_and_the_hunt_goes_on(run, tmp_path: Path):
    run("undisturbed", FakePool())
    interrupts = Interrupts()

    def press(state: Campaign) -> None:
        interrupts.count += state.total.programs >= 20

    assert run("run", FakePool(), interrupts=interrupts, listener=press).interrupted
    assert json.loads((tmp_path / "run" / "run.json").read_text())["interrupted"]
    again = run("run", FakePool())
    assert again.notes == [f"going on with the run of {tmp_path / 'run'}"]
    assert outcome(tmp_path / "run") == outcome(tmp_path / "undisturbed")


def test_a_full_disk_ends_the_hunt_and_it_goes_on(run, tmp_path: Path):
    class Full(FakePool):
        def outcome(self, call: RemoteCall) -> Outcome:
            return Raised(InternalError("OSError: [Errno 28] No space left on device"))

    run("undisturbed", FakePool())
    with pytest.raises(DiskFull, match="To go on when there is room"):
        run("run", Full())
    run("run", FakePool())
    assert outcome(tmp_path / "run") == outcome(tmp_path / "undisturbed")


def test_shares_join_to_the_whole(run, tmp_path: Path):
    whole = run("whole", FakePool())
    for index in (1, 2):
        run(str(index), FakePool(), replace(PLAN, share=(index, 2)))
    joined = merge(tmp_path / "joined", [tmp_path / "1", tmp_path / "2"])
    assert joined.findings.keys() >= whole.findings.keys()
    assert joined.total.programs == 60
    assert outcome(tmp_path / "joined")["findings"]
    again = merge(tmp_path / "joined", [tmp_path / "2"])
    assert again.statistics == joined.statistics


def test_a_hunt_is_watched_and_triaged(run, tmp_path: Path):
    found = run("run", deadly())
    view = RunReader.open(tmp_path / "run").view()
    assert (view.command, view.programs) == ("hunt", {"aot-eager": 60})
    assert view.violating["aot-eager"] == 9
    store = Store.open(tmp_path / "run")
    assert {it.finding: it.state for it in read_triage(store)} == {
        next(iter(found.findings)): "reproduced",
        next(iter(found.unconfirmed)): "flaky",
    }


def test_a_run_of_another_language_or_plan_is_refused(run, tmp_path: Path):
    run("run", FakePool())
    with pytest.raises(UserError, match="has a run with language python, not aten"):
        fuzz(replace(PLAN, language="aten"), tmp_path / "run")
    with pytest.raises(UserError, match="has a run with seed 3, not 4"):
        run("run", FakePool(), replace(PLAN, seed=4))


DAMAGES = {
    "a reduction": "UPDATE failures SET reduction = '{}'",
    "a program": "UPDATE findings SET finding = json_set(finding, '$.finding.program', 'os')",
    "a script": "UPDATE findings SET script = x'00'",
    "a language": "UPDATE runs SET plan = json_set(plan, '$.language', 'c')",
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_run_is_refused(run, tmp_path: Path, damage: str):
    run("run", FakePool())
    with sqlite3.connect(tmp_path / "run" / "store.sqlite") as store:
        store.execute(damage)
    store.close()
    with pytest.raises(UserError, match=r"damaged|cannot be (used|read)"):
        merge(tmp_path / "joined", [tmp_path / "run"])
    with pytest.raises(UserError, match=r"damaged|cannot be (used|read)"):
        run("run", FakePool())
