"""`run_shard`: the result of a shard, a pure function of its description."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from unittest import mock

from torch.fx import GraphModule

from aliasproof.campaigns.failure.failure import AnyFailure, Failure
from aliasproof.campaigns.store.plan import Shard
from aliasproof.corpus.known_bug import patched
from aliasproof.eager.definedness import Undefined
from aliasproof.generators.scene import Counts
from aliasproof.generators.sites.site import SiteKind, SiteRecorder, recording_of
from aliasproof.generators.strategies import sample
from aliasproof.ir.devices import on_device
from aliasproof.ir.errors import require_sound_process
from aliasproof.ir.program import Program
from aliasproof.judge.attribution import Symptom
from aliasproof.judge.examination import Examination, examine
from aliasproof.judge.groups import Announce, examine_group
from aliasproof.judge.trial import Case, Spent, processor_seconds
from aliasproof.judge.value_search import CAMPAIGN_BUDGET
from aliasproof.targets.registry import target as target_named
from aliasproof.targets.registry import user_code
from aliasproof.targets.user_targets import YOUR_PASS, UserPass
from aliasproof.torch_parts import why_off

COUNTS = (
    "programs",
    "discarded",
    "violating",
    "documented",
    "suspicious",
    "companions",
    "not_yours",
)
OF_PYTHON = ("dies", "mistaken")
OF_PASS = ("changed", "unchanged")

LONGEST_REASON = 160  # characters


@dataclass(slots=True)
class Statistics:
    """How many programs were drawn, and how many of them ended in each way.

    `discarded` programs are undefined in eager or rejected. `rejected` counts the programs that the
    target does not take, by reason. `violating` programs violate the contract, `documented` ones
    differ from eager only as the target documents. `suspicious` programs have right results, but an
    oracle on graphs reports a violation. `companions` differ from eager only if they are compiled
    together with others. `not_yours` are wrong in a layer before the code of a user; they are not
    findings. `instructions` counts the instructions drawn. `spent` has the seconds by part, without
    reduction. `fired` counts programs by the sites of the compiler that they fired, `refused` by
    the sites that refused a match; programs that are compiled as one count as one. Of Python
    programs, `dies` counts those that end their process, maybe in eager, and `mistaken` those on
    which aliasproof itself is wrong.
    """

    programs: int = 0
    discarded: int = 0
    documented: int = 0
    violating: int = 0
    suspicious: int = 0
    companions: int = 0
    instructions: Counts = field(default_factory=Counts)
    spent: Spent = field(default_factory=Spent)
    not_yours: int = 0
    fired: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    rejected: Counter[str] = field(default_factory=Counter)
    dies: int = 0
    mistaken: int = 0

    @property
    def judged(self) -> int:
        """How many programs were compared with eager."""
        return self.programs - self.discarded

    def count(self, examination: Examination) -> None:
        self.programs += 1
        self.discarded += examination.rejected is not None
        if examination.rejected is not None and not isinstance(examination.rejected, Undefined):
            self.rejected[" ".join(str(examination.rejected).split())[:LONGEST_REASON]] += 1
        self.violating += examination.failed
        self.documented += bool(examination.documented) and not examination.failed
        self.suspicious += examination.suspicious
        self.spent.add(examination.spent)

    @property
    def wrong(self) -> int:
        """How many programs violate the contract, and not in a layer before a user's code."""
        return self.violating - self.not_yours

    @property
    def changed(self) -> int:
        """In how many compilations a user's pass changed a graph."""
        return self.fired[YOUR_PASS]

    @property
    def unchanged(self) -> int:
        """In how many compilations a user's pass left the graphs as they were."""
        return self.refused[YOUR_PASS]

    def add(self, other: Statistics) -> None:
        for name in (*COUNTS, *OF_PYTHON):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.instructions.add(other.instructions)
        self.spent.add(other.spent)
        self.fired.update(other.fired)
        self.refused.update(other.refused)
        self.rejected.update(other.rejected)

    @property
    def undefined_rate(self) -> float:
        """The share of drawn programs that are undefined in eager, between 0 and 1."""
        undefined = self.discarded - self.rejected.total()
        return undefined / self.programs if self.programs else 0.0

    @property
    def discard_rate(self) -> float:
        """The share of drawn programs that were discarded, between 0 and 1."""
        return self.discarded / self.programs if self.programs else 0.0

    def to_json(self) -> dict[str, object]:
        counts = {name: getattr(self, name) for name in (*COUNTS, *OF_PYTHON, *OF_PASS)}
        return {name: count for name, count in counts.items() if count or name in COUNTS}


@dataclass(slots=True)
class Suspicions:
    """Programs with right results on which an oracle on graphs reports a violation.

    By symptom: how many programs show it, and the shortest of them.
    """

    found: dict[Symptom, tuple[int, Program]] = field(default_factory=dict)

    def add(self, symptom: Symptom, program: Program, count: int = 1) -> None:
        """Count a symptom, and store the program if it is the shortest."""
        before, shortest = self.found.get(symptom, (0, program))
        self.found[symptom] = before + count, min(shortest, program, key=len)

    def add_all(self, other: Suspicions) -> None:
        for symptom, (count, program) in other.found.items():
            self.add(symptom, program, count)


@dataclass(slots=True)
class ShardResult:
    """What a shard found, and the seconds of processor time that it took.

    `recognizing` are the seconds of checking whether failures are known bugs, `searching` all
    others. `failures` ends with those of groups, whose programs are right by themselves. `mistakes`
    are errors of aliasproof itself that cost one program each.
    """

    shard: Shard
    statistics: Statistics = field(default_factory=Statistics)
    failures: list[AnyFailure] = field(default_factory=list)
    suspicions: Suspicions = field(default_factory=Suspicions)
    searching: float = 0.0
    recognizing: float = 0.0
    mistakes: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _Firing:
    """Adds the sites that programs fire, each in its first run, to the result of a shard."""

    recorder: SiteRecorder
    result: ShardResult
    announce: Announce
    _seen: set[int] = field(default_factory=set)

    def begin(self, indices: Sequence[int]) -> None:
        """Call when these programs are about to run: what fired before is not theirs."""
        self.announce(indices)
        self.recorder.take()

    def ran(self, indices: Sequence[int]) -> None:
        fired, refused = self.recorder.take()
        if self._seen.isdisjoint(indices):
            self._seen.update(indices)
            self.result.statistics.fired.update(fired)
            self.result.statistics.refused.update(refused)


def run_shard(shard: Shard, announce: Announce = lambda indices: None) -> ShardResult:
    """Draw the programs, examine each, and collect those that violate the contract.

    `announce` is called with the indices of the programs that are about to run, so that the
    scheduler can attribute the death of the worker to them. Raises `InternalError` for an error of
    aliasproof itself.
    """
    result, before = ShardResult(shard), processor_seconds()
    programs = sample(shard.features(), shard.seed, shard.count, result.statistics.instructions)
    with recording_for(shard.target) as recorder:
        firing = _Firing(recorder, result, announce)
        for group in shard.groups():
            start = time.perf_counter()
            # Draw skipped programs, too: the others must stay the same.
            drawn = {index: on_device(next(programs), shard.device) for index in group}
            result.statistics.spent.generation += time.perf_counter() - start
            running = {index: drawn[index] for index in group if index not in shard.skip}
            # Patch per group, not around the drawing: what is drawn must not depend on patches.
            with patched(shard.patches()):
                if len(group) > 1:
                    _run_group(running, firing)
                    continue
                for index, program in running.items():
                    firing.begin([index])
                    examination = examine(
                        Case.of(program),
                        target_named(shard.target),
                        search=CAMPAIGN_BUDGET,
                        ran=partial(firing.ran, [index]),
                    )
                    _add(program, examination, result)
    result.failures.sort(key=lambda failure: failure.of_group)
    result.searching = processor_seconds() - before - result.recognizing
    return result


@contextmanager
def _recorded(recorder: SiteRecorder) -> Iterator[None]:
    """Record under `YOUR_PASS` whether passes of users change their graphs."""
    run = UserPass.__call__

    def noting(user_pass: UserPass, module: GraphModule) -> GraphModule:
        before = module.code
        after = run(user_pass, module)
        if after.code != before:
            recorder.fired.add(YOUR_PASS)
            recorder.refused.discard(YOUR_PASS)
        elif YOUR_PASS not in recorder.fired:
            recorder.refused.add(YOUR_PASS)
        return after

    with mock.patch.object(UserPass, "__call__", noting):
        yield


def recording_for(name: str) -> AbstractContextManager[SiteRecorder]:
    """Record the sites that a target can fire, judged by its name: others need no hooks."""
    if why_off("sites") is not None:
        return recording_of(())
    if user_code(name) is not None or "inductor" not in name.partition(":")[0]:
        from aliasproof.generators.sites.wrappers import WITHOUT_INDUCTOR  # noqa: PLC0415 - if on

        return recording_of((*WITHOUT_INDUCTOR, SiteKind(YOUR_PASS, list, _recorded)))
    # Imported late: it needs torch's Inductor, which takes a second; other targets do not need it.
    from aliasproof.generators.sites.all_sites import recording  # noqa: PLC0415

    return recording()


def _run_group(programs: dict[int, Program], firing: _Firing) -> None:
    """Examine programs together and add what each of them shows to the result."""
    if not programs:
        return
    result, indices = firing.result, list(programs)

    def of_shard(members: Sequence[int]) -> list[int]:
        return [indices[member] for member in members]

    group = examine_group(
        [Case.of(program) for program in programs.values()],
        target_named(result.shard.target),
        search=CAMPAIGN_BUDGET,
        announce=lambda members: firing.begin(of_shard(members)),
        ran=lambda members: firing.ran(of_shard(members)),
    )
    for program, examination in zip(programs.values(), group.examinations, strict=True):
        _add(program, examination, result)
    result.statistics.spent.add(group.spent)
    result.statistics.companions += len(group.companions)
    result.failures += [
        Failure(it.symptom, it.program, result.shard.seed, of_group=True) for it in group.failures
    ]


def _add(program: Program, examination: Examination, result: ShardResult) -> None:
    """Add what one program shows to the result."""
    shard = result.shard
    if examination.shown is not None:  # with these values, it is a failure like any other
        program = examination.shown.as_program(program)
        examination = examine(Case.of(program), target_named(shard.target))
    for ended in (examination.rejected, examination.mistake):
        if ended is not None:  # the error may be one after which no program can run in this process
            require_sound_process(ended)
    result.statistics.count(examination)
    # After an error of aliasproof itself, no verdict of this shard can be trusted.
    if examination.mistake is not None:
        raise examination.mistake
    if examination.symptom is None:
        return
    yours = target_named(shard.target).yours
    if yours and not target_named(examination.symptom.target).yours:
        result.statistics.not_yours += examination.failed
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
