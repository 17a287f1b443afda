"""`run_shard`: the result of a shard, a pure function of its description."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from aliasproof.campaigns.failure.failure import Failure
from aliasproof.campaigns.run.statistics import Statistics, Suspicions
from aliasproof.campaigns.store.plan import Shard
from aliasproof.corpus.known_bugs import mended
from aliasproof.generators.strategies import sample
from aliasproof.programs.devices import on_device
from aliasproof.programs.errors import require_sound_process
from aliasproof.programs.program import Program
from aliasproof.targets.registry import target as target_named
from aliasproof.trials.examination import Examination, examine
from aliasproof.trials.groups import Announce, GroupFailure, examine_group
from aliasproof.trials.trial import Case
from aliasproof.trials.value_search import CAMPAIGN_BUDGET
from aliasproof.trials.worker import processor_seconds


@dataclass(slots=True)
class ShardResult:
    """What a shard found, and the seconds of processor time that it took.

    `recognizing` are the seconds spent on whether failures are known bugs, `searching` all others.
    `group_failures` are those of programs that are right alone.
    """

    shard: Shard
    statistics: Statistics = field(default_factory=Statistics)
    failures: list[Failure] = field(default_factory=list)
    group_failures: list[GroupFailure] = field(default_factory=list)
    suspicions: Suspicions = field(default_factory=Suspicions)
    searching: float = 0.0
    recognizing: float = 0.0


def run_shard(shard: Shard, announce: Announce = lambda indices: None) -> ShardResult:
    """Draw the programs, examine each, and collect those that violate the contract.

    `announce` is called with the indices of the programs that are about to run, so that the
    scheduler can attribute the death of the worker to them. Raises `InternalError` for an error of
    aliasproof itself.
    """
    result, before = ShardResult(shard), processor_seconds()
    programs = sample(shard.features(), shard.seed, shard.count, result.statistics.instructions)
    for group in shard.groups():
        start = time.perf_counter()
        # Those that are skipped, too: the others must stay the same.
        drawn = {index: on_device(next(programs), shard.device) for index in group}
        result.statistics.spent.generation += time.perf_counter() - start
        running = {index: drawn[index] for index in group if index not in shard.skip}
        # Entered for each group: what a program draws must not depend on mends.
        with mended(shard.mends()):
            if len(group) == 1:
                for index, program in running.items():
                    announce([index])
                    _run_program(program, result)
            elif running:
                _run_group(running, result, announce)
    result.searching = processor_seconds() - before - result.recognizing
    return result


def _run_program(program: Program, result: ShardResult) -> None:
    """Examine one program and add what it shows to the result."""
    target = target_named(result.shard.target)
    _add(program, examine(Case.of(program), target, search=CAMPAIGN_BUDGET), result)


def _run_group(programs: dict[int, Program], result: ShardResult, announce: Announce) -> None:
    """Examine programs together and add what each of them shows to the result."""
    indices = list(programs)

    def announce_members(members: Sequence[int]) -> None:
        announce([indices[member] for member in members])

    group = examine_group(
        [Case.of(program) for program in programs.values()],
        target_named(result.shard.target),
        search=CAMPAIGN_BUDGET,
        announce=announce_members,
    )
    for program, examination in zip(programs.values(), group.examinations, strict=True):
        _add(program, examination, result)
    result.statistics.spent.add(group.spent)
    result.statistics.companions += len(group.companions)
    result.group_failures += group.failures


def _add(program: Program, examination: Examination, result: ShardResult) -> None:
    """Add what one program shows to the result."""
    shard = result.shard
    if examination.shown is not None:  # with these values, it is a failure like any other
        program = examination.shown.as_program(program)
        examination = examine(Case.of(program), target_named(shard.target))
    for ended in (examination.rejected, examination.mistake):
        if ended is not None:  # it may quote an error after which no program runs in this process
            require_sound_process(ended)
    result.statistics.count(examination)
    # After an error of ours no verdict of this shard is to be trusted.
    if examination.mistake is not None:
        raise examination.mistake
    if examination.symptom is None:
        return
    yours = target_named(shard.target).yours
    if yours and not target_named(examination.symptom.target).yours:
        result.statistics.not_yours += 1
        return
    start = processor_seconds()
    if not examination.suspicious:
        failure = Failure.of(
            examination.symptom,
            program,
            shard.seed,
            past_known=shard.past_known,
            violation=next(iter(examination.violations), None),
        )
        result.failures.append(failure)
    else:
        result.suspicions.add(examination.symptom, program)
        if examination.symptom.latent:
            latent = Failure.latent(examination.symptom, program, shard.seed)
            result.failures += [] if latent is None else [latent]
    result.recognizing += processor_seconds() - start
