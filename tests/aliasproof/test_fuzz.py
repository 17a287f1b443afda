"""`fuzz` and `hunt`: from options to a plan, and a campaign as a user starts it."""

import contextlib
import json
import os
import signal
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from aliasproof.campaigns.publish.confirmation import NOT_RUN
from aliasproof.campaigns.run.campaign import Campaign
from aliasproof.campaigns.run.shard import Statistics
from aliasproof.campaigns.store import run_folder
from aliasproof.campaigns.store.plan import Plan
from aliasproof.commands import fuzz
from aliasproof.commands.fuzz import exit_status
from aliasproof.ir.errors import UserError
from aliasproof.targets import registry
from aliasproof.targets.names import FUZZED
from aliasproof.targets.user_targets import LATER_CALLS, YOUR_PASS, of_value
from tests.campaigns.test_confirmations import REDUCED
from tests.subprocesses import aliasproof, started

MakePlan = Callable[..., Plan]


@pytest.fixture
def plan(call, monkeypatch) -> MakePlan:
    """The plan that `fuzz` makes of options, for a new run, or one with a stored plan."""

    def plan_of(
        *options: str,
        stored: Plan | None = None,
        status: int = 0,
        interrupted: bool = False,
        command: str = "fuzz",
    ) -> Plan:
        plans: list[Plan] = []

        def keep(
            plan: Plan, folder: Path, *rest: object, as_json: bool, everything: bool
        ) -> Campaign:
            plans.append(plan)
            judged = {"aot-eager": Statistics(programs=1)} if plan.language == "python" else {}
            campaign = Campaign(plan, folder, judged, findings={"aot-values-1": REDUCED})
            campaign.interrupted = interrupted
            return campaign

        monkeypatch.setattr(fuzz, "run_campaign", keep)
        monkeypatch.setattr(run_folder, "stored_plan", lambda run: stored)
        outcome = call(command, "--run", "run", *options)
        assert outcome.code == status, outcome.err
        return plans[0]

    return plan_of


def test_without_options_there_is_a_time_limit(plan):
    made = plan()
    assert (made.targets, made.seconds, made.finish) == (FUZZED, 90.0, False)


def test_a_long_campaign_draws_programs_of_both_languages(plan):
    assert plan("--seconds", "600").language == "aten"
    assert plan("--seconds", "1800").language == plan("--profile", "nightly").language == "both"
    assert plan("--seconds", "1800").targets == (*FUZZED, "aot-eager")
    assert plan("--seconds", "1800", "--target", "aot").language == "aten", "no backend"
    assert plan("--seconds", "1800", "--language", "aten").language == "aten"
    hunted = plan("--language", "python")
    assert (hunted.targets, hunted.seconds, hunted.command) == (("aot-eager",), 600.0, "hunt")


def test_a_run_goes_on_as_it_was_and_finishes_what_it_found(plan):
    stored = Plan(("aot",), 3, seconds=40.0, past_known=True, share=(2, 4), limit=5.0)
    assert plan(stored=stored) == replace(stored, finish=True)
    longer = plan("--seconds", "80", stored=stored)
    assert (longer.seconds, longer.finish) == (80.0, False)


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ("--seed 4", "seed 3, not 4"),
        ("--seed 0", "seed 3, not 0"),
        ("--target aot --target identity", "targets aot, not aot, identity"),
        ("--programs 10", "programs None, not 10"),
        ("--past-known", "past known False, not True"),
        ("--shard 1/2", "share 1, 1, not 1, 2"),
    ],
)
def test_a_run_does_not_go_on_with_other_programs(plan, options, part):
    stored = Plan(("aot",), 3, seconds=40.0)
    with pytest.raises(UserError, match=part):
        plan(*options.split(), stored=stored).require_same_programs(stored, Path("run"))


def test_the_shares_of_a_seed_are_all_its_shards(plan):
    whole = Plan(("aot", "identity"), seed=1, programs=260)
    shares = [plan("--shard", f"{i}/3", stored=whole) for i in (1, 2, 3)]
    parts = [shard for share in shares for shard in share.shards()]
    assert sorted(parts, key=str) == sorted(whole.shards(), key=str)


def test_until_a_time_of_the_day_is_at_most_a_day(plan):
    for given in ("0:00", "06:30", "23:59"):
        seconds = plan("--until", given).seconds
        assert seconds is not None
        assert 0 < seconds <= 24 * 3600


def test_profiles(plan):
    ci = plan("--profile", "ci", status=1)
    assert (ci.seconds, ci.past_known) == (300.0, True)
    assert plan("--profile", "nightly", "--programs", "5").seconds is None


@pytest.mark.parametrize(("reducing", "confirming"), [(1, 0), (0, 1)])
def test_violations_that_wait_fail_as_findings_do(reducing: int, confirming: int) -> None:
    campaign = Campaign(Plan(("aot",)), Path("run"), reducing=reducing, confirming=confirming)
    assert exit_status(campaign, 25, fail_on_findings=True) == 1
    assert exit_status(campaign, 25, fail_on_findings=False) == 0


def test_a_campaign_without_a_judged_program_has_a_status_of_its_own() -> None:
    campaign = Campaign(Plan(("aot",)), Path("run"))
    assert exit_status(campaign, 0, fail_on_findings=True) == 4
    assert exit_status(campaign, 0, fail_on_findings=False) == 4
    assert exit_status(campaign, 1, fail_on_findings=True) == 0
    # A pass that changed no graph was not tested.
    campaign.statistics["mine"] = Statistics(refused=Counter({YOUR_PASS: 1}))
    assert exit_status(campaign, 1, fail_on_findings=False) == 4
    campaign.statistics["mine"].fired[YOUR_PASS] = 1
    assert exit_status(campaign, 1, fail_on_findings=False) == 0


def test_a_backend_without_a_finding_is_advised_to_compare_later_calls(monkeypatch, capsys) -> None:
    monkeypatch.setitem(registry.OWN, "mine.py:mine", of_value(lambda graph, inputs: graph))
    plan, advice = (
        Plan(("mine.py:mine",)),
        "--target mine.py:mine:second-values and mine.py:mine:kept-outputs",
    )
    fuzz.advise_later_calls(Campaign(plan, Path("run")))
    assert advice in capsys.readouterr().out
    fuzz.advise_later_calls(Campaign(plan, Path("run"), findings={"values-1": REDUCED}))
    assert capsys.readouterr().out == ""
    compared = Campaign(plan, Path("run"))
    compared.statistics |= {f"mine.py:mine:{it.name}": Statistics() for it in LATER_CALLS}
    fuzz.advise_later_calls(compared)
    assert capsys.readouterr().out == ""
    # A Python program may use its outputs after a later call.
    fuzz.advise_later_calls(Campaign(replace(plan, language="both"), Path("run")))
    assert capsys.readouterr().out == ""


def test_after_ctrl_c_the_exit_status_is_130_whatever_was_found(plan):
    plan("--fail-on-findings", status=1)
    plan("--fail-on-findings", status=130, interrupted=True)
    plan(status=130, interrupted=True)


def test_a_profile_says_how_long_a_run_goes_on(plan):
    made = plan("--profile", "dev", stored=Plan(("aot",), seconds=40.0))
    assert (made.seconds, made.finish) == (90.0, True)


# --- hunt -----------------------------------------------------------------------------------------


def test_without_a_limit_a_hunt_takes_ten_minutes(plan):
    made = plan(command="hunt")
    assert (made.command, made.targets) == ("hunt", ("aot-eager",))
    assert (made.seconds, made.programs) == (600.0, None)
    assert plan("--programs", "30", command="hunt").seconds is None
    both = plan("--programs", "30", "--seconds", "60", command="hunt")
    assert (both.programs, both.seconds) == (30, 60.0)


def test_a_hunt_continues_as_it_was(plan):
    stored = Plan(("dynamo",), 7, 40, workers=3, past_known=True, share=(1, 2), language="python")
    made = plan(stored=stored, command="hunt")
    assert made == replace(stored, finish=True, workers=Plan(()).workers)
    assert not plan("--seconds", "5", stored=stored, command="hunt").finish


# --- a campaign, as a user starts it --------------------------------------------------------------


COMMAND = ("fuzz", "--workers", "2")
# The first seed that finds something is used, so these tests survive changes of the generator.
SEEDS = range(5)


@pytest.fixture(scope="module")
def campaign(tmp_path_factory):
    """A campaign that found something: its seed, its folder, and what it printed."""
    for seed in SEEDS:
        folder = tmp_path_factory.mktemp("campaign")  # an own folder, so that it has only one run
        given = f"--target functionalize --programs 25 --seed {seed} --fail-on-findings"
        done = aliasproof(*COMMAND, *given.split(), cwd=folder, COLUMNS="100")
        if done.returncode:
            return seed, folder, done
    pytest.fail("no seed finds anything")


def test_what_is_printed(campaign):
    _, folder, done = campaign
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stderr
    assert "resource_tracker" not in done.stderr, "a semaphore is left"
    assert "Fuzzing functionalize with 2 workers" in done.stderr
    run = next((folder / "runs").iterdir())
    names = [finding.name for finding in (run / "findings").iterdir()]
    assert any(f"aliasproof show runs/{run.name}/findings/{it}" in done.stdout for it in names)
    assert any(f"runs/{run.name}/findings/{it}/reproducer.py" in done.stdout for it in names)
    assert "def program(" in done.stdout
    assert done.stdout.splitlines()[-1].startswith("25 programs in ")


def test_what_is_kept(campaign):
    _, folder, done = campaign
    run = next((folder / "runs").iterdir())
    kept = {"findings", "unconfirmed", "suspicions", "run.json", "store.sqlite", "events.jsonl"}
    assert {path.name for path in run.iterdir()} <= {*kept, ".lock"}
    outcome = json.loads((run / "run.json").read_text())
    assert {entry["identifier"] for entry in outcome["findings"]} == {
        path.name for path in (run / "findings").iterdir()
    }
    for finding in (run / "findings").iterdir():
        files = {"program.json", "finding.json", "issue.md", "reproducer.py"}
        assert {path.name for path in finding.iterdir()} == files
        assert finding.name in done.stdout


def test_each_new_finding_was_run_under_torch_compile(campaign):
    _, folder, _ = campaign
    for finding in folder.glob("runs/*/findings/*"):
        data = json.loads((finding / "finding.json").read_text())
        answers, known = data["user level"], data["known"]
        # Inductor takes seconds, and a known bug needs no further evidence.
        assert set(answers) == (set() if known else {"aot_eager", "inductor"})
        assert NOT_RUN not in answers.values()
        script, issue = ((finding / name).read_text() for name in ("reproducer.py", "issue.md"))
        assert script in issue
        assert len(script.splitlines()) <= 45
        if "shows" in answers.values():
            assert "torch.compile(program, backend=" in script


def test_the_same_seed_finds_the_same(campaign, tmp_path):
    seed, folder, _ = campaign
    arguments = f"--target functionalize --programs 25 --seed {seed} --run again --json"
    done = aliasproof(*COMMAND, *arguments.split(), cwd=tmp_path)
    assert done.returncode == 0, done.stderr  # findings are no failure of the command
    again = json.loads(done.stdout)
    before = json.loads(next(folder.glob("runs/*/run.json")).read_text())
    assert again["programs"] == before["programs"]
    assert again["programs"]["functionalize"]["programs"] == 25
    what = ("identifier", "kind", "count", "original")
    assert [[entry[key] for key in what] for entry in again["findings"]] == [
        [entry[key] for key in what] for entry in before["findings"]
    ]
    for entry in again["findings"]:
        (first,) = folder.glob(f"runs/*/findings/{entry['identifier']}/program.json")
        assert (tmp_path / entry["folder"] / "program.json").read_text() == first.read_text()


def test_ctrl_c_keeps_what_was_found(campaign, tmp_path):
    seed, _, _ = campaign
    # With one worker, few findings await confirmation when the signal comes.
    arguments = f"--target functionalize --seconds 100 --seed {seed} --run run --workers 1"
    command = ("-m", "aliasproof", *COMMAND, *arguments.split())
    running = started(*command, cwd=tmp_path, COLUMNS="100")
    try:
        deadline = time.monotonic() + 90
        while (
            not list(tmp_path.glob("run/findings/*/reproducer.py")) and time.monotonic() < deadline
        ):
            time.sleep(0.1)
        kept = [path.name for path in tmp_path.glob("run/findings/*")]
        os.killpg(running.pid, signal.SIGINT)  # as a terminal does: to all processes of the command
        out, err = running.communicate(timeout=60)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(running.pid, signal.SIGKILL)
    assert running.returncode == 130, err
    assert "Traceback" not in err
    assert "resource_tracker" not in err
    assert "Interrupted. Findings so far are kept." in out
    assert kept
    assert set(kept) <= {path.name for path in tmp_path.glob("run/findings/*")}
    assert all(name in out for name in kept)
    assert json.loads((tmp_path / "run" / "run.json").read_text())["interrupted"] is True
