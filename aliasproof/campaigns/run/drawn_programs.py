"""What a campaign draws: how often each op, dtype, layout, rank and scenario occurs."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from aliasproof.campaigns.store.plan import PROGRAMS_PER_SHARD
from aliasproof.eager.definedness import Undefined
from aliasproof.generators.features import DTYPES, GROUPS, Features, swarm
from aliasproof.generators.inputs import VECTOR_REGISTER
from aliasproof.generators.ops import OPERATORS
from aliasproof.generators.python_drawing import sample_python
from aliasproof.generators.scene import Counts
from aliasproof.generators.strategies import sample
from aliasproof.ir.program import Input, Program
from aliasproof.ir.regions import Region, dense_strides, overlaps_itself
from aliasproof.ir.serialization import dtype_name
from aliasproof.judge.python_case import cut_of, is_defined
from aliasproof.judge.trial import SEEDS_APART, Case, run_eager, start_worker
from aliasproof.processes.isolation import Limits, start_server
from aliasproof.processes.outcome import Death, Raised
from aliasproof.processes.pool import Pool, RemoteCall

BROUGHT_ALONG = "brought along"  # ops that only scenarios and generators of arguments add
RANKS = ("0", "1", "2", "3", "4", "5", "6 and more")
SIZES = ("no element", "one element", "up to a vector register", "more than a vector register")


@dataclass(slots=True)
class DrawnPrograms:
    """Counts over programs. All but `ops` and `instructions` count inputs or programs."""

    programs: int = 0
    inputs: int = 0
    discarded: Counter[str] = field(default_factory=Counter)
    contents: Counter[str] = field(default_factory=Counter)
    ops: Counter[str] = field(default_factory=Counter)
    dtypes: Counter[str] = field(default_factory=Counter)
    layouts: Counter[str] = field(default_factory=Counter)
    ranks: Counter[str] = field(default_factory=Counter)
    sizes: Counter[str] = field(default_factory=Counter)
    instructions: Counts = field(default_factory=Counts)

    def draw(self, seed: int, count: int) -> Iterator[Program]:
        """Draw and count the programs of a campaign with that seed; each runs in eager."""
        for number in range(-(-count // PROGRAMS_PER_SHARD)):
            own, left = seed * SEEDS_APART + number, count - self.programs
            size = min(left, PROGRAMS_PER_SHARD)
            for program in sample(swarm(own), own, size, self.instructions):
                self.add(program)
                yield program

    def add(self, program: Program) -> None:
        self.programs += 1
        self.inputs += len(program.inputs)
        self.ops.update(call.op for call in program.instructions)
        self.contents.update(_contents(program))
        for view in program.inputs:
            self.dtypes[dtype_name(view.dtype)] += 1
            self.ranks[RANKS[min(len(view.sizes), len(RANKS) - 1)]] += 1
            self.sizes[_size(view)] += 1
            self.layouts.update(layouts(program, view))
        try:
            error = run_eager(Case.of(program)).observation.error
        except Undefined:
            self.discarded["undefined"] += 1
        else:
            self.discarded["raises"] += error is not None

    def to_json(self) -> dict[str, object]:
        """The counts as JSON values, with 0 for whatever could be drawn but was not."""
        counts, by_group = self.instructions, self._ops_by_group()
        played = [name for name in Features().scenarios if name not in CONTENTS]
        return {
            "programs": self.programs,
            "discarded": {name: self.discarded[name] for name in ("undefined", "raises")},
            "instructions": {
                "drawn": counts.drawn,
                "kept": counts.kept,
                "raised": counts.raised,
                "undefined": counts.undefined,
                "too large": counts.too_large,
            },
            "groups": {
                group: {"instructions": sum(ops.values()), "dropped": dropped, "ops": ops}
                for group, (ops, dropped) in by_group.items()
            },
            "reasons": [
                {"op": op, "reason": reason, "instructions": times}
                for (op, reason), times in counts.reasons.most_common()
            ],
            "scenarios": {name: counts.scenarios[name] for name in played},
            "inputs": self.inputs,
            "dtypes": _with_zeros(self.dtypes, [*map(dtype_name, DTYPES)]),
            "layouts": _with_zeros(self.layouts, LAYOUT_NAMES),
            "ranks": _with_zeros(self.ranks, RANKS),
            "sizes": _with_zeros(self.sizes, SIZES),
            "contents": _with_zeros(self.contents, CONTENTS),
        }

    def _ops_by_group(self) -> dict[str, tuple[dict[str, int], int]]:
        """By group, the count of each op, and how many calls of the group were dropped."""
        group_of = {operator.name: operator.group for operator in OPERATORS}
        groups: dict[str, dict[str, int]] = {name: {} for name in (*GROUPS, BROUGHT_ALONG)}
        for name in (*group_of, *self.ops):
            groups[group_of.get(name, BROUGHT_ALONG)][name] = self.ops[name]
        dropped: Counter[str] = Counter()
        for (op, _), times in self.instructions.reasons.items():
            dropped[group_of.get(op, BROUGHT_ALONG)] += times
        return {name: (ops, dropped[name]) for name, ops in groups.items() if ops}


def _with_zeros(counts: Mapping[str, int], names: Sequence[str]) -> dict[str, int]:
    """The counts of these names, 0 included, and then of all others."""
    return {name: counts.get(name, 0) for name in (*names, *counts)}


def _size(view: Input) -> str:
    numel = math.prod(view.sizes)
    if numel <= 1:
        return SIZES[numel]
    return SIZES[2 + (numel * view.dtype.itemsize > VECTOR_REGISTER)]


LAYOUT_NAMES = (
    "contiguous",
    "another order of dimensions",
    "channels last",
    "gaps",
    "expanded",
    "overlapping",
    "offset",
    "offset, and gaps or another order",
    "start not aligned",
    "unused end of the storage",
)


def layouts(program: Program, view: Input) -> Iterator[str]:
    """The names among `LAYOUT_NAMES` that apply to an input, possibly several."""
    strided = [pair for pair in zip(view.sizes, view.strides, strict=True) if pair[0] != 1]
    strides = [stride for _, stride in strided]
    item = view.dtype.itemsize
    region = Region(view.offset * item, view.sizes, tuple(s * item for s in view.strides), item)
    start, end = region.interval
    repeats = 0 in strides
    overlapping = overlaps_itself(region)
    reordered = strides != sorted(strides, reverse=True) and not overlapping
    gaps = end - start > region.numel * item and not overlapping
    shown = {
        "contiguous": not view.offset and view.strides == dense_strides(view.sizes),
        "another order of dimensions": reordered,
        "channels last": reordered and _is_channels_last(view),
        "gaps": gaps,
        "expanded": repeats,
        "overlapping": overlapping and not repeats,
        "offset": view.offset > 0,
        "offset, and gaps or another order": view.offset > 0 and (gaps or reordered),
        "start not aligned": start % VECTOR_REGISTER != 0,
        "unused end of the storage": end < program.storages[view.storage].nbytes,
    }
    return (name for name, fits in shown.items() if fits)


def _is_channels_last(view: Input) -> bool:
    channel, rest = view.strides[1:2], (*view.strides[:1], *view.strides[2:])
    return len(view.sizes) in (4, 5) and all(channel[0] < stride for stride in rest)


CONTENTS = (
    "shared inputs",
    "reinterpreted storage",
    "special fill",
    "an input beyond a vector register",
    "integers that can serve as indices",
    "no mutation",
)


def _contents(program: Program) -> Iterator[str]:
    views = program.inputs
    storages = {view.storage for view in views}
    shown = (
        len(storages) < len(views),
        any(view.dtype != program.storages[view.storage].dtype for view in views),
        program.fill == "special",
        any(_size(view) == SIZES[-1] for view in views),
        any(storage.values for storage in program.storages),
        not any(call.mutates() for call in program.instructions),
    )
    return (name for name, fits in zip(CONTENTS, shown, strict=True) if fits)


# --- drawn python ---------------------------------------------------------------------------------
#
# Counts of drawn Python programs. Some end their process in eager, so workers draw them.


LIMITS = Limits(seconds=600.0, nbytes=6 * 2**30)
PER_CALL = 50  # programs
RENEWAL = 20  # calls until a process is replaced
DIES = "end their process in eager"


@dataclass(slots=True)
class DrawnPython:
    """Counts of drawn programs.

    `forms` counts how often a form was used in which aliasing scenario; `cuts` how many programs
    are defined, and how Dynamo splits those that were compiled. `programs` is the number drawn.
    """

    forms: Counter[tuple[str, str]] = field(default_factory=Counter)
    cuts: Counter[str] = field(default_factory=Counter)
    programs: int = 0

    def draw(self, seed: int, programs: int, frames: int) -> Iterator[int]:
        """Draw `programs`, and compile `frames` of them; yields each number that was drawn."""
        every = max(programs // frames, 1) if frames else 0
        start_server([__name__])
        start = RemoteCall("", f"{start_worker.__module__}:{start_worker.__name__}")
        pool = Pool(start, LIMITS, os.cpu_count() or 1, renewal=RENEWAL)
        call = f"{__name__}:{count_programs.__name__}"

        def submit(numbers: range, size: int) -> None:
            for some in (numbers[at : at + size] for at in range(0, len(numbers), size)):
                pool.submit(RemoteCall(some, call, (seed, some, every)))

        with pool.at_work():
            submit(range(programs), PER_CALL)
            while pool.pending:
                key, outcome = pool.take()
                assert isinstance(key, range)
                if isinstance(outcome, Raised):
                    raise outcome.error
                if isinstance(outcome, Death) and len(key) > 1:
                    submit(key, 1)
                    continue
                died = DrawnPython(cuts=Counter({DIES: 1}), programs=1)
                drawn = died if isinstance(outcome, Death) else outcome.value
                self.forms += drawn.forms
                self.cuts += drawn.cuts
                self.programs += drawn.programs
                yield from key


def count_programs(seed: int, numbers: range, every: int) -> DrawnPython:
    """Draw the programs with these numbers, in a worker; compile each `every`-th, 0 for none."""
    drawn = DrawnPython(programs=len(numbers))
    for number, program in zip(numbers, sample_python(seed, numbers, drawn.forms), strict=True):
        if not every:
            continue
        defined = is_defined(program)
        drawn.cuts["defined in eager" if defined else "undefined in eager"] += 1
        if defined and number % every == 0:
            drawn.cuts["compiled"] += 1
            drawn.cuts[cut_of(program, drawn.cuts)] += 1
    return drawn
