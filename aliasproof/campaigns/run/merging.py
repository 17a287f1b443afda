"""`merge`: joins the stores of several runs by signature."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from aliasproof.campaigns.publish.confirmation import Confirmation
from aliasproof.campaigns.run.campaign import Campaign, suspicions_in_order
from aliasproof.campaigns.run.shard import Statistics
from aliasproof.campaigns.run.tasks import outcome_from_json
from aliasproof.campaigns.store.full_disk import explain_full_disk
from aliasproof.campaigns.store.plan import DECIDING, Plan, Shard
from aliasproof.campaigns.store.run_folder import RunFolder, open_store
from aliasproof.campaigns.store.run_lock import FINDINGS, RunLock
from aliasproof.campaigns.store.store import Store
from aliasproof.campaigns.store.store_schema import DAMAGE, DEADLY, NAME
from aliasproof.corpus.bug_files import all_bugs
from aliasproof.ir.errors import UserError, shown
from aliasproof.targets.names import BOTH

# Rows that two runs share are equal: a task has one result, and a signature one finding. What a
# reproducer or a person said about a finding is taken from the first run that has it.
_COPY = """
INSERT INTO runs (plan, torch, elapsed, spent, merged)
    SELECT plan, torch, elapsed, spent, 1 FROM other.runs o
    WHERE NOT EXISTS (SELECT 1 FROM runs r WHERE r.plan = o.plan AND r.elapsed = o.elapsed);
INSERT OR IGNORE INTO shards SELECT * FROM other.shards;
INSERT OR IGNORE INTO failures (task, number, target, oracle, kind, failure, deaths, reduction)
    SELECT task, number, target, oracle, kind, failure, deaths, reduction FROM other.failures;
INSERT INTO findings SELECT * FROM other.findings WHERE true
    ON CONFLICT DO UPDATE SET state = excluded.state, finding = excluded.finding,
    script = excluded.script, issue = excluded.issue, confirmation = excluded.confirmation,
    torch_compile = excluded.torch_compile WHERE findings.confirmation IS NULL;
INSERT OR IGNORE INTO occurrences SELECT * FROM other.occurrences;
INSERT OR IGNORE INTO triage SELECT * FROM other.triage;
INSERT OR IGNORE INTO replays SELECT * FROM other.replays;
"""


def merge(folder: Path, runs: Sequence[Path]) -> Campaign:
    """Join runs into a new folder, or into one that was merged earlier. Returns the outcome.

    All runs are read before anything is written: an unreadable row would stay in the joined store.
    Raises `UserError` if a run is damaged, in use, named twice, made with another torch, or by
    another command than the others.
    """
    _require_distinct(folder, runs)
    with contextlib.ExitStack() as stack:
        plans = [stack.enter_context(_locked_plan(run)) for run in runs]
        stack.enter_context(explain_full_disk(folder, "When there is room, merge again."))
        files = RunFolder.create(folder)
        stack.callback(RunLock.take(folder).release)
        store = Store.open(folder)
        stack.callback(store.close)
        if store.is_a_run():
            raise UserError(f"{folder} is a run itself; name a new folder for what is merged")
        before = store.plan(also_merged=True)
        plan = _joint_plan(plans if before is None else [*plans, before])
        _checked_outcome(store, plan, folder, "name a new folder")
        for run in runs:
            store.copy(run / NAME, _COPY)
        campaign = _checked_outcome(store, plan, folder, "name a new folder")
        _write(files, store, campaign)
        return campaign


def _require_distinct(folder: Path, runs: Sequence[Path]) -> None:
    paths = [run.resolve() for run in runs]
    if folder.resolve() in paths:
        raise UserError(
            f"{folder} is both the folder of the joined run and a run to join; name a new folder"
            " first: aliasproof merge DIR RUN..."
        )
    twice = next(
        (run for run, path in zip(runs, paths, strict=True) if paths.count(path) > 1), None
    )
    if twice is not None:
        raise UserError(f"{twice} is named twice; name each run once")


@contextlib.contextmanager
def _locked_plan(run: Path) -> Iterator[Plan]:
    """The plan of a run that can be read completely, locked so that no campaign changes it."""
    with open_store(run) as store:
        try:
            plan = store.plan(also_merged=True)
            store.read_all()
        except sqlite3.Error as error:
            raise UserError(f"{run / NAME} cannot be read: {error}; leave it out") from error
        assert plan is not None  # it has begun
        _checked_outcome(store, plan, run, "leave it out")
        yield plan


def _checked_outcome(store: Store, plan: Plan, folder: Path, advice: str) -> Campaign:
    """The outcome of a store. Raises `UserError` that names the store if it is damaged."""
    try:
        campaign = _outcome(store, plan, folder)
        for name in store.identifiers():  # these will be names of folders
            RunFolder(folder).path(FINDINGS, name)
        return campaign
    except (*DAMAGE, sqlite3.Error) as reason:
        error = f"{type(reason).__name__}: {reason}"
        raise UserError(f"{folder / NAME} is damaged: {error}; {advice}") from reason


def _outcome(store: Store, plan: Plan, folder: Path) -> Campaign:
    """The statistics, findings and counts of a store. `plan` says what the run was about.

    The shards of several runs follow no common plan, so decisions of the scheduler are missing.
    """
    campaign = Campaign(plan, folder, {name: Statistics() for name in plan.targets})
    for target, seed, text in store.all("SELECT target, seed, result FROM shards ORDER BY rowid"):
        shard = Shard(seed, target)
        outcome = store.checked(outcome_from_json, store.json_values(text), shard)
        campaign.add_outcome(shard, outcome)
    for target, count in store.all(DEADLY):
        campaign.add_deadly(target, count)
    rows = "SELECT deaths, reduction, s.target FROM failures LEFT JOIN shards s USING (task)"
    for deaths, text, target in store.all(rows):
        campaign.deaths += len(store.json_values(deaths))
        if text is None:
            continue
        stored = store.json_values(text)
        if "mistake" in stored:
            campaign.mistakes.append(f"a reduction: {stored['mistake']}")
            continue
        campaign.mistakes += [f"a reduction: {text}" for text in stored.get("mistakes", ())]
        campaign.spent.reducing += stored["seconds"]
        if stored.get("documented"):
            campaign.add_documented(target)
        else:
            campaign.not_reproduced += stored["reduced"] is None
    counts = store.occurrences()
    campaign.known = store.known()
    if unknown := campaign.known.keys() - all_bugs().keys():
        raise LookupError(f"known bugs that are not known here: {shown(sorted(unknown))}")
    for kept in store.findings():
        finding = replace(kept.finding, count=counts.get(kept.finding.identifier, 0))
        if finding.latent:
            campaign.latent[finding.identifier] = finding
        elif kept.confirmation is None:
            campaign.confirming += 1
        else:
            campaign.add_confirmed(finding, Confirmation(**kept.confirmation))
    campaign.elapsed, spent = store.elapsed()
    campaign.spent.confirming = spent.get("confirming", 0.0)
    campaign.spent.compiling = spent.get("compiling", 0.0)
    return campaign


def _joint_plan(plans: Sequence[Plan]) -> Plan:
    """One plan for the outcome: what all plans have in common, and the targets of all."""
    languages = {plan.language for plan in plans}
    targets = tuple(dict.fromkeys(name for plan in plans for name in plan.targets))
    alike = {"past_known": all(plan.past_known for plan in plans), "share": (1, 1)}
    alike |= {"language": languages.pop() if len(languages) == 1 else BOTH}
    assert alike.keys() <= {*DECIDING}
    return replace(plans[0], targets=targets, **alike)  # type: ignore[arg-type]


def _write(files: RunFolder, store: Store, campaign: Campaign) -> None:
    """Write the folders and `run.json`."""
    files.prepare()
    for kept in store.findings():
        finding = campaign.findings.get(kept.finding.identifier, kept.finding)
        files.write(kept.kind, finding, kept.script or None, kept.issue)  # latent ones have none
    files.write_suspicions(suspicions_in_order(campaign), store.identifiers())
    files.write_outcome(campaign.to_json())
