"""`Plan`: what a campaign runs, and for how long; and its shards, the units of work."""

from __future__ import annotations

import heapq
import itertools
import os
import re
import shlex
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from aliasproof.campaigns.failure.codec import decoded
from aliasproof.corpus.bug_files import known_bugs
from aliasproof.corpus.known_bug import KnownBug
from aliasproof.generators.features import (
    RULES_OF,
    RULES_SHARE,
    Features,
    exclude_features,
    for_code_generation,
    swarm,
)
from aliasproof.generators.scenarios import SCENARIOS
from aliasproof.generators.scenarios_of_memory import CUSTOM_SCENARIOS
from aliasproof.generators.strategies import TURNS_PER_SEED, sample
from aliasproof.ir.devices import CPU, is_device_name, on_device
from aliasproof.ir.errors import UserError
from aliasproof.ir.execution import glue
from aliasproof.ir.program import Program
from aliasproof.judge.groups import can_glue
from aliasproof.judge.python_case import EAGER
from aliasproof.judge.trial import SEEDS_APART
from aliasproof.targets.names import ATEN, BOTH, HUNTED, PYTHON
from aliasproof.targets.registry import target as target_named
from aliasproof.targets.registry import user_code
from aliasproof.targets.user_targets import LATER_CALLS, is_plain_backend
from aliasproof.targets.variants import AS_WRITTEN

# --- ways -----------------------------------------------------------------------------------------
#
# In which other ways a campaign compiles: variants that reach code which a plain target never runs.
# Only training has a backward graph and tensors saved for it, only a second call meets guards and
# memory of the first, and the first version of auto-functionalization only runs with a setting.


# Of each target, one in this many shards is compiled in another way.
EVERY = 3


def _calls_custom_operators(features: Features) -> bool:
    played = {scenario.name for scenario in CUSTOM_SCENARIOS}
    return "custom" in features.groups or not played.isdisjoint(features.scenarios)


@dataclass(frozen=True, slots=True)
class Way:
    """A variant for these targets, and the programs for which it makes a difference."""

    variant: str
    targets: tuple[str, ...]
    useful: Callable[[Features], bool] = lambda features: True


# The first are what most users run, since a short campaign gets no further. Programs cannot be
# glued for variants with gradients, so generated code is tested without gradients.
WAYS = (
    Way("grad", ("aot", "inductor-fx")),
    Way("symbolic", ("aot", "inductor-fx", "fx-reinplace")),
    Way("second-layout", ("inductor-fx",)),
    Way("memory_planning=True", ("inductor",)),
    Way("second-call", ("inductor-fx",)),
    Way("half-grad", ("aot",)),
    Way("freezing", ("inductor-fx",)),
    # Where Dynamo does not merge both arguments, a tensor passed twice has a wrapper for each.
    Way("same-input", ("aot", "inductor-fx")),
    Way("kept-outputs", ("inductor",)),
    Way("cpp.simdlen=1", ("inductor",)),  # scalar code on any processor
    # A program takes eight times as long, and so do its recognition and reduction.
    Way("cond", ("inductor-fx",)),
    Way("feed-back", ("inductor-fx",)),
    # For passes on functions of torch, which only a graph of Dynamo has.
    Way("as-written:pre_grad_fusion_options=all", ("inductor-fx",)),
    Way("post_grad_fusion_options=all", ("inductor-fx",)),
    Way(
        "enable_auto_functionalized_v2=False",
        ("inductor-fx", "inductor"),
        _calls_custom_operators,
    ),
    # Last, since compiling takes six times as long as with fixed sizes.
    Way("symbolic", ("inductor",)),
)


def in_another_way(target: str, shard: int, features: Features) -> str:
    """The target of the shard with that number: one in `EVERY` has a variant, in turns.

    A target that is a variant already stays as it is. Half of the shards of a user's backend are
    written as people do: with functions and methods of torch rather than ATen operators. Of the
    others, two in three compare later calls.
    """
    if is_plain_backend(target_named(target)):
        turns = (None, *LATER_CALLS)
        variant = turns[shard // 2 % len(turns)] if shard % 2 else AS_WRITTEN
        return target if variant is None else f"{target}:{variant.name}"
    ways = [way for way in WAYS if target in way.targets and way.useful(features)]
    turn, place = divmod(shard, EVERY)
    if place < EVERY - 1 or not ways:
        return target
    return f"{target}:{ways[turn % len(ways)].variant}"


def written_for_bugs() -> frozenset[str]:
    """The scenarios whose family names a known bug, except those that only change inputs."""
    return frozenset(
        it.name
        for it in SCENARIOS
        if it.play is not None and set(re.split("[,;] *", it.family)) & set(known_bugs())
    )


def takes_python(target: str) -> bool:
    """Whether Python programs can run on a target: it must be a backend of `torch.compile`."""
    return target == EAGER or target_named(target).backend is not None


COMMANDS = {ATEN: "fuzz", PYTHON: "hunt", BOTH: "fuzz"}
PYTHON_SHARE = 4  # with both languages, one in N programs is Python; without a number, of the time
PYTHON_PER_SHARD = 10  # a Python program takes as long as many of ATen calls
PROGRAMS_PER_SHARD = TURNS_PER_SEED
FIRST_CUTS = (1, 6)  # programs. The first shard of a timed campaign is cut here.
START_SHARE = 0.1  # of the time of a shard: the start of a compiler, before its first program
PROGRAM_LIMIT = 120.0  # seconds. A program takes 0.01 s, a compile of C++ ten.

# The fields that decide which programs run, and where. Others may change when a run is resumed.
DECIDING = (
    "language",
    "targets",
    "seed",
    "programs",
    "past_known",
    "device",
    "group",
    "share",
    "rules",
    "blind",
)


@dataclass(frozen=True, slots=True)
class Shard:
    """`count` programs of one seed through one target. The seed also decides the swarm features.

    The programs with the indices in `skip` do not run: a worker died or hung on them in an earlier
    attempt, or another shard runs them. With `past_known`, torch runs with the known bugs patched.
    The programs are on `device`. `group` of them are compiled as one. `suspects` are the indices of
    programs that ran together when a worker died or hung. The known bugs `patched` were frequent in
    earlier shards. If `python`, the shard has the Python programs of the seed from that number on,
    and `skip` and all indices are their numbers. If `blind`, no scenario that was written for a
    known bug is played.
    """

    seed: int
    target: str
    count: int = PROGRAMS_PER_SHARD
    skip: frozenset[int] = frozenset()
    past_known: bool = False
    device: str = "cpu"
    group: int = 1
    suspects: range = range(0)
    patched: tuple[str, ...] = ()
    rules: int | None = None
    python: int | None = None
    blind: bool = False

    @property
    def language(self) -> str:
        return ATEN if self.python is None else PYTHON

    @property
    def numbers(self) -> range:
        """The numbers of its Python programs."""
        first = self.python or 0
        return range(first, first + self.count)

    @property
    def variant(self) -> str:
        """The variant of its target that has rules of its own; empty if there is none."""
        return next((it for it in self.target.split(":") if it in RULES_OF), "")

    def features(self) -> Features:
        """What its programs may contain."""
        target = target_named(self.target)
        features = replace(swarm(self.seed), variant=self.variant, favored=target.favored)
        # Most rules are Inductor's. Generated code fires them, too, but takes seconds per program.
        if target.has_settings and target.group == 1 and self.seed % 5 == 1:
            features = replace(features, rules=RULES_SHARE)
        if target.generates_code:
            features = for_code_generation(features, self.seed)
        left_out = target.left_out | (written_for_bugs() if self.blind else frozenset())
        if left_out:
            features = exclude_features(features, left_out)
        return features if self.rules is None else replace(features, rules=self.rules)

    def patches(self) -> Iterable[KnownBug]:
        """The known bugs that are patched while the programs run."""
        if not target_named(self.target).excused:
            return ()
        return (
            known_bugs().values() if self.past_known else [known_bugs()[it] for it in self.patched]
        )

    def program(self, index: int) -> Program:
        return self._programs(range(index, index + 1))[0]

    def together(self, indices: range) -> Program:
        """The programs with these indices, glued into one."""
        return glue(self._programs(indices)).program

    def _programs(self, indices: range) -> list[Program]:
        drawn = list(sample(self.features(), self.seed, indices.stop))[indices.start :]
        return [on_device(program, self.device) for program in drawn]

    def groups(self) -> Iterator[range]:
        """The indices of the programs that run together. Groups have about equal sizes."""
        size = self.group if can_glue(target_named(self.target)) else 1
        number = -(-self.count // size)
        for index in range(number):
            yield range(index * self.count // number, (index + 1) * self.count // number)


@dataclass(frozen=True, slots=True)
class Plan:
    """What to run: `programs` per target, or for about `seconds`, whichever ends first.

    Without either, a campaign runs until it is interrupted. `workers` is the number of processes.
    With `past_known`, torch runs with the known bugs patched, so that only new ones show. Programs
    are on `device`. `group` of them are compiled as one; None for the fastest number for each
    target. It does not change the findings. Of a `share` (index, number), only each `number`-th
    shard runs, starting with the `index`-th, counted from 1. With `finish`, all failures are
    reduced and confirmed, however long it takes; without, unfinished work waits in the store when
    the time is up. A program hangs if it takes longer than `limit` seconds. A worker may allocate
    `memory` GiB; None for a part of what is free. `rules` of a hundred programs are derived from
    rules of Inductor; None leaves that to the swarm features. With both languages, Python programs
    run on the targets that take them. A `blind` campaign measures what drawing finds: it plays no
    scenario that was written for a known bug.
    """

    targets: tuple[str, ...]
    seed: int = 0
    programs: int | None = None
    seconds: float | None = None
    workers: int = field(default_factory=lambda: max(os.cpu_count() or 1, 1))
    past_known: bool = False
    device: str = "cpu"
    group: int | None = None
    share: tuple[int, int] = (1, 1)
    finish: bool = False
    limit: float = PROGRAM_LIMIT
    memory: float | None = None
    language: str = ATEN
    rules: int | None = None
    blind: bool = False

    @property
    def command(self) -> str:
        return COMMANDS[self.language]

    @classmethod
    def from_json(cls, data: Any) -> Plan:
        """The plan from JSON values. Raises `ValueError` for numbers that are out of range."""
        plan: Plan = decoded(cls, data)
        (index, number), above_0 = plan.share, (plan.workers, plan.limit, len(plan.targets))
        limits = (plan.programs, plan.seconds, plan.group, plan.memory)
        if not all(0 < it < 2**62 for it in (*above_0, *limits) if it is not None):
            raise ValueError("a number of the plan is out of range")
        if not (1 <= index <= number and plan.seed >= 0):
            raise ValueError("the share or the seed of the plan is out of range")
        if plan.rules is not None and plan.rules < 0:
            raise ValueError("the share of rule-derived programs is out of range")
        if not is_device_name(plan.device):
            raise ValueError("the device of the plan is none")
        if plan.language not in COMMANDS:
            raise ValueError("the language of the plan is none")
        return plan

    def require_same_programs(self, stored: Plan | None, folder: Path) -> None:
        """Raises `UserError` if this plan cannot resume the run of another plan."""
        for name in DECIDING if stored is not None else ():
            here, there = getattr(self, name), getattr(stored, name)
            if here != there:
                raise UserError(
                    f"run folder {folder} has a run with {name.replace('_', ' ')}"
                    f" {_as_text(there)}, not {_as_text(here)}; give the same, or name a new folder"
                    " with --run"
                )

    def resume_command(self, folder: object) -> str:
        """The command that resumes the run in a folder. User code has to be named again."""
        own = [name for name in self.targets if user_code(name) is not None]
        named = [option for name in own for option in ("--target", name)]
        return shlex.join(["aliasproof", self.command, *named, "--run", str(folder)])

    def shards(self) -> Iterator[Shard]:
        """The shards in order.

        The targets take turns, so that a campaign that ends early has tried all of them. A slow
        target has proportionally fewer turns, and its first one later. For some targets, every
        third shard has a variant (`in_another_way`).
        """
        index, of = self.share
        sources = [self._shards_of(name, index - 1, of) for name in self.aten_targets]
        sources += [self._python_shards(name, index - 1, of) for name in self.python_targets]
        for _, shard in heapq.merge(*sources, key=lambda turn: turn[0]):
            yield shard

    @property
    def aten_targets(self) -> tuple[str, ...]:
        """The targets of programs of ATen calls.

        Beside `aot`, which makes the same graphs of them, `aot-eager` only gets Python programs.
        """
        if self.language == PYTHON:
            return ()
        left_out = HUNTED if self.language == BOTH and "aot" in self.targets else None
        return tuple(name for name in self.targets if name != left_out)

    @property
    def python_targets(self) -> tuple[str, ...]:
        if self.language == BOTH and self.device == CPU:
            return tuple(filter(takes_python, self.targets))
        return self.targets if self.language == PYTHON else ()

    def _python_shards(self, name: str, first: int, step: int) -> Iterator[tuple[float, Shard]]:
        """The shards with Python programs, which depend only on the seed and their numbers."""
        every = cost = target_named(name).cost
        if self.language == BOTH:
            # All Python targets together get a quarter of the time, and of that each gets the more
            # the faster it is.
            speed = sum(1 / target_named(it).cost for it in self.python_targets)
            every = (PYTHON_SHARE - 1) * cost**2 * speed / len(self.aten_targets)
        starts = itertools.count(first * PYTHON_PER_SHARD, step * PYTHON_PER_SHARD)
        for turn, start in enumerate(starts):
            left = PYTHON_PER_SHARD if self.programs is None else self._in_python - start
            if left <= 0:
                return
            count = min(left, PYTHON_PER_SHARD)
            shard = Shard(self.seed, name, count, past_known=self.past_known, python=start)
            yield (turn + 0.5) * every, shard

    @property
    def _in_python(self) -> int:
        """How many of a target's programs are Python programs, if it takes Python."""
        return (self.programs or 0) // (PYTHON_SHARE if self.language == BOTH else 1)

    def _shards_of(self, name: str, first: int, step: int) -> Iterator[tuple[float, Shard]]:
        """The shards of a target, each with the time at which it is half done in equal shares."""
        target, programs = target_named(name), self.programs
        if programs is not None and name in self.python_targets:
            programs -= self._in_python
        # The first programs of a timed campaign have their own shards, and use no rules. Where
        # programs are compiled as one, six take little longer than one.
        cuts: tuple[int, ...] = FIRST_CUTS if target.group == 1 else FIRST_CUTS[1:]
        cuts = cuts if programs is None else ()
        for turn, number in enumerate(itertools.count(first, step)):
            count = PROGRAMS_PER_SHARD
            if programs is not None:
                count = min(count, programs - number * PROGRAMS_PER_SHARD)
            if count <= 0:
                return
            # The same seeds for all targets, so that they get the same programs.
            seed, group = self.seed * SEEDS_APART + number, self.group or target.group
            way = in_another_way(name, number, swarm(seed))
            shard = Shard(seed, way, count, frozenset(), self.past_known, self.device, group)
            rules = 0 if cuts and self.rules is None else self.rules
            # Most of the rules of a variant would have no turn in its few shards.
            if rules is None and way != name and target.has_settings and shard.variant:
                rules = RULES_SHARE
            shard = replace(shard, rules=rules, blind=self.blind)
            for begin, end in itertools.pairwise((0, *cuts, count)):
                half = turn + (begin + end) / 2 / PROGRAMS_PER_SHARD + START_SHARE * bool(cuts)
                yield half * target.cost, replace(shard, count=end, skip=frozenset(range(begin)))
            cuts = ()


def _as_text(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
