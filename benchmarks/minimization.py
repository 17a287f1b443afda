"""What `minimize` needs for long programs: candidates, compilations, seconds, and what is left.

The programs, 50 of about 200 instructions and 5 of about 2,000, are drawn from a seed and fail for
one cause:

- *planted*: a drawn program through a wrong pass of the catalogue of faults;
- *spliced*: a known bug of torch in a drawn program. Its instructions are spread over the host, its
  inputs are computed by the host where they need not be inputs, and the host goes on with a number
  that it takes from the results of the bug;
- *model*: a known bug in the ATen calls of a model's forward pass.

Without that cause the program is right: the right pass has no violation, or the violation is gone
while the bug is patched. The reducer asks what the command `minimize` asks.

How to read a row:

- *candidates* were asked about; *compiled* are those that the target built. The others are
  undefined in eager, or raise there.
- *cause kept*: the result still fails, and the right pass is right on it (a planted fault), or it
  is right while the known bug is patched.
- *seconds* are of processor time.
"""

from __future__ import annotations

import functools
import itertools
import random
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any
from unittest import mock

import torch
from torch import nn

from aliasproof.campaigns.failure.failure import Kept
from aliasproof.campaigns.failure.recognition import cause_of
from aliasproof.corpus.bug_files import known_bugs
from aliasproof.corpus.known_bug import KnownBug, patched
from aliasproof.eager.definedness import Undefined
from aliasproof.faults.catalogue import FAULTS
from aliasproof.faults.fault import Fault
from aliasproof.generators.features import Features
from aliasproof.generators.strategies import sample
from aliasproof.ir.errors import Rejected
from aliasproof.ir.execution import execute, glue
from aliasproof.ir.lifting import lift_program
from aliasproof.ir.program import Instruction, Program, Ref, rename_instruction
from aliasproof.ir.schemas import Kind, facts, resolve
from aliasproof.ir.values import clone_inputs, input_tensors
from aliasproof.judge import trial
from aliasproof.judge.attribution import Symptom, grade, grades_of
from aliasproof.judge.examination import examine
from aliasproof.judge.trial import Case, quiet_torch
from aliasproof.reduction.program_steps import PROGRAM
from aliasproof.reduction.reducer import Reducer
from aliasproof.targets.reference import REFERENCE
from aliasproof.targets.registry import target as target_named
from aliasproof.targets.target import Target
from benchmarks.tables import Table
from tests.running_model.models import Gpt, LanguageLstm, Llama

WIDEST = 3  # instructions of the host between two of the bug


@dataclass(frozen=True, slots=True)
class LongProgram:
    """A long program that fails, and whether a reduced one still fails for the same cause."""

    name: str
    kind: str
    program: Program
    target: Target
    symptom: Symptom
    keeps_cause: Callable[[Case], bool]
    grade: Callable[[Program], int]


def features(instructions: int) -> Features:
    """Programs of about that length, without what makes numbers grow beyond all bounds."""
    return Features(
        dtypes=(torch.float32, torch.int64),
        groups=("view", "in-place", "functional"),
        layouts=("contiguous", "transposed", "offset"),
        scenarios=(),
        large=False,
        instructions=instructions + instructions // 10,
        gradients=False,
    )


def drawn_programs(length: int, seed: int) -> Iterator[Program]:
    """Programs whose length is within a tenth of that."""
    return (
        program
        for program in sample(features(length), seed, 10_000)
        if 0.9 * length <= len(program) <= 1.1 * length
    )


# --- planted --------------------------------------------------------------------------------------


def planted(length: int, seed: int) -> Iterator[LongProgram]:
    """One for each fault of the catalogue that such a program shows, in the order of a shuffle."""
    chosen = list(FAULTS.values())
    random.Random(seed).shuffle(chosen)
    hosts = [
        host
        for host in itertools.islice(drawn_programs(length, seed), 4)
        if _is_right(host, REFERENCE.name)
    ]
    for fault in chosen:
        if fault.right is REFERENCE:
            subject = next(filter(None, (_planted(fault, host, seed) for host in hosts)), None)
            if subject is not None:
                yield subject


def _planted(fault: Fault, program: Program, seed: int) -> LongProgram | None:
    symptom = _symptom(Case.of(program), fault.target)
    if symptom is None:
        return None

    def keeps_cause(reduced: Case) -> bool:
        right = _symptom(reduced, fault.right) is None
        return right and _symptom(reduced, fault.target) is not None

    ask = functools.partial(grade, target=fault.target, symptom=symptom)
    name = f"{fault.name}, {seed}"
    return LongProgram(name, "planted", program, fault.target, symptom, keeps_cause, ask)


def _symptom(case: Case, target: Target) -> Symptom | None:
    """What a campaign would count; None if results are right or cannot be judged."""
    examination = examine(case, target, without_graphs="only results are judged")
    return examination.symptom if examination.failed else None


# --- spliced --------------------------------------------------------------------------------------


def spliced(length: int, seed: int, targets: Sequence[str]) -> Iterator[LongProgram]:
    """One for each known bug of these targets that shows in a drawn host."""
    hosts = list(itertools.islice(drawn_programs(length, seed), 4 if length < 1000 else 1))
    yield from _with_bugs("spliced", hosts, seed, targets)


def in_models(blocks: int, seed: int, targets: Sequence[str]) -> Iterator[LongProgram]:
    """One for each known bug that shows in the forward pass of a model, which change in turn."""
    hosts = models(blocks)
    for number, bug in enumerate(_bugs(seed, targets)):
        name, host = hosts[number % len(hosts)]
        subject = with_bug("model", host, bug, seed + number)
        if subject is not None:
            yield replace(subject, name=f"{subject.name} in {name}")


def _with_bugs(
    kind: str, hosts: Sequence[Program], seed: int, targets: Sequence[str]
) -> Iterator[LongProgram]:
    for number, bug in enumerate(_bugs(seed, targets)):
        for turn in range(3):
            host = hosts[(number + turn) % len(hosts)]
            subject = with_bug(kind, host, bug, seed + number)
            if subject is not None:
                yield subject
                break


def _bugs(seed: int, targets: Sequence[str]) -> list[KnownBug]:
    chosen = [
        bug for bug in known_bugs().values() if bug.targets[0] in targets and bug.patch is not None
    ]
    random.Random(seed).shuffle(chosen)
    return chosen


def with_bug(kind: str, host: Program, bug: KnownBug, seed: int) -> LongProgram | None:
    """The bug in a host; None if the whole does not fail, or not only for the bug."""
    target = target_named(bug.targets[0])
    if not _is_right(host, target.name):
        return None
    for computes in (True, False):
        program = splice(host, bug.program, random.Random(seed), computes=computes)
        if program is None:
            continue
        symptom = _symptom(Case.of(program), target)
        if symptom is not None and not symptom.latent and _is_of(bug, Case.of(program), target):
            name = f"{bug.identifier} ({target.name})"

            def keeps_cause(reduced: Case) -> bool:
                return _symptom(reduced, target) is not None and _is_of(bug, reduced, target)

            ask = Kept(symptom, cause=cause_of(program, symptom)).grade
            return LongProgram(name, kind, program, target, symptom, keeps_cause, ask)
    return None


@functools.lru_cache(maxsize=64)
def _is_right(program: Program, target: str) -> bool:
    """Whether a target runs a program, and does what eager does."""
    examination = examine(
        Case.of(program), target_named(target), without_graphs="only results are judged"
    )
    return examination.rejected is None and not examination.failed


def _is_of(bug: KnownBug, case: Case, target: Target) -> bool:
    with patched([bug]):
        return _symptom(case, target) is None


def splice(host: Program, bug: Program, pick: random.Random, *, computes: bool) -> Program | None:
    """The instructions of a bug in the middle of a host, in their order, some apart.

    Afterwards the host goes on with a number from the results of the bug. If the host `computes`
    inputs of the bug, those are results: such as are dense, alone in their storage, and written by
    nothing. None if the host has no place for it, or eager raises.
    """
    whole = glue([host, bug])
    program, indices = whole.program, whole.members[1].inputs
    returned = program.outputs[whole.members[1].outputs.start :]
    theirs = list(program.instructions[: len(host)])
    ours = list(program.instructions[len(host) :])
    values = _values(host)
    numbers = [] if values is None else _numbers(theirs, values)
    middle = len(theirs) // 2
    before = [index for index in numbers if index < middle - 2]
    after = [index for index in numbers if index > middle + WIDEST * len(ours) + 2]
    if values is None or not before or not after:
        return None
    if computes:
        number = Ref(theirs[pick.choice(before)].results[0])
        program, ours = _computed(program, indices, ours, number)
    spread, here = _spread(theirs, ours, middle, pick)
    joined = pick.choice(after)
    name = theirs[joined].results[0]
    shown = [*returned, *(program.inputs[index].name for index in indices)]
    link = _link(name, shown[0], values[joined].dtype)
    rest = [rename_instruction(call, {name: "joined"}) for call in theirs[joined + 1 :]]
    instructions = (*spread, *theirs[here : joined + 1], *link, *rest)
    outputs = tuple("joined" if each == name else each for each in program.outputs)
    program = replace(program, instructions=instructions, outputs=outputs)
    return program.renamed() if _values(program) is not None else None


def _numbers(calls: Sequence[Instruction], values: Sequence[torch.Tensor]) -> list[int]:
    """The calls, by index, whose only result is new and of floating point."""
    return [
        index
        for index, (call, value) in enumerate(zip(calls, values, strict=True))
        if facts(resolve(call.op)).kind is Kind.FUNCTIONAL
        and len(call.results) == 1
        and value.is_floating_point()
        and value.numel() > 0
    ]


def _spread(
    theirs: Sequence[Instruction], ours: Sequence[Instruction], here: int, pick: random.Random
) -> tuple[list[Instruction], int]:
    """The first calls of the host, then those of the bug with some of the host between them."""
    made = list(theirs[:here])
    for call in ours:
        gap = pick.randint(0, WIDEST)
        made += [call, *theirs[here : here + gap]]
        here += gap
    return made, here


def _computed(
    program: Program, indices: range, ours: list[Instruction], number: Ref
) -> tuple[Program, list[Instruction]]:
    """The program with calls in the place of the inputs with these indices, where that can be."""
    written = {name for call in ours for name in call.written}
    storages = [view.storage for view in program.inputs]
    calls: list[Instruction] = []
    for index in indices:
        view = program.inputs[index]
        length = torch.Size(view.sizes).numel()
        plain = (
            view.dtype.is_floating_point and view.offset == 0 and storages.count(view.storage) == 1
        )
        dense = torch.empty(view.sizes).stride() == view.strides
        fits = program.storages[view.storage].length == length
        if not (plain and dense and fits and length) or view.name in written:
            continue
        total, cast = f"{view.name}_sum", f"{view.name}_cast"
        calls += (
            Instruction("aten.sum.default", (number,), (), (total,)),
            Instruction("aten._to_copy.default", (Ref(total),), (("dtype", view.dtype),), (cast,)),
            Instruction("aten.add.Tensor", (Ref(view.name), Ref(cast)), (), (f"{view.name}_in",)),
        )
        ours = [rename_instruction(call, {view.name: f"{view.name}_in"}) for call in ours]
        outputs = tuple(
            f"{view.name}_in" if each == view.name else each for each in program.outputs
        )
        program = replace(program, outputs=outputs)
    return program, [*calls, *ours]


def _link(name: str, shown: str, dtype: torch.dtype) -> tuple[Instruction, ...]:
    """`name` with the sum of a result of the bug added to it."""
    return (
        Instruction("aten._to_copy.default", (Ref(shown),), (("dtype", dtype),), ("link_cast",)),
        Instruction("aten.sum.default", (Ref("link_cast"),), (), ("link_sum",)),
        Instruction("aten.add.Tensor", (Ref(name), Ref("link_sum")), (), ("joined",)),
    )


def _values(program: Program) -> list[torch.Tensor] | None:
    """The first result of each instruction in eager, or its first operand; None if one raises."""
    values = {
        view.name: tensor
        for view, tensor in zip(program.inputs, input_tensors(program), strict=True)
    }
    made = []
    try:
        with torch.no_grad():
            for call in program.instructions:
                execute(call, values)
                made.append(values[(call.results or call.refs)[0]])
    except (RuntimeError, IndexError, ValueError, TypeError, Undefined, Rejected):
        return None
    return made


# --- models ---------------------------------------------------------------------------------------


def models(blocks: int = 3) -> list[tuple[str, Program]]:
    """The forward passes of models as programs of about 70 instructions per block."""
    torch.manual_seed(0)
    tokens = torch.randint(0, 64, (2, 8))
    llama = Llama()
    llama.blocks = nn.ModuleList(block for _ in range(-(-blocks // 2)) for block in Llama().blocks)
    gpt = Gpt().eval()
    gpt.blocks = nn.ModuleList(block for _ in range(-(-blocks // 2)) for block in Gpt().blocks)
    forms = [("Llama", llama, (tokens,)), ("GPT-2", gpt, (tokens[:1, :5], torch.arange(5)))]
    if blocks <= 4:
        state = torch.zeros(2, 16)
        tokens = torch.randint(0, 32, (2, 14))
        forms.append(("LSTM", LanguageLstm(), (tokens, state, state.clone())))
    return [(name, forward_pass(model, inputs)) for name, model, inputs in forms]


def forward_pass(model: nn.Module, inputs: Sequence[torch.Tensor]) -> Program:
    """The ATen calls of a model; parameters and buffers are inputs."""
    state = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    names = list(state)

    def forward(*tensors: torch.Tensor) -> object:
        given = dict(zip(names, tensors, strict=False))
        return torch.func.functional_call(model, given, tensors[len(names) :])

    tensors = [*(value.detach() for value in state.values()), *inputs]
    with torch.no_grad():
        return lift_program(forward, clone_inputs(tensors)).program


LONG = 1000  # instructions: programs with more count as those of 2,000
SEED = 0
FX = ("functionalize", "aot", "fx-reinplace")  # they take a tenth of what Inductor does


@dataclass(frozen=True, slots=True)
class Minimized:
    """A long program, and what the reducer made of it."""

    name: str
    kind: str
    before: int
    after: int
    candidates: int
    compiled: int
    seconds: float
    cause: bool


@dataclass(frozen=True, slots=True)
class Minimizations:
    """A row for each program."""

    rows: Sequence[Minimized]

    def tables(self) -> list[Table]:
        """One row per program, and the medians of both lengths."""
        columns = ("program", "before", "after", "candidates", "compiled", "seconds", "cause kept")
        rows = [
            (
                f"{row.kind}: {row.name}",
                *map(str, (row.before, row.after, row.candidates, row.compiled)),
                f"{row.seconds:.0f}",
                "yes" if row.cause else "no",
            )
            for row in self.rows
        ]
        for title, some in (
            (f"median up to {LONG:,}", [it for it in self.rows if it.before <= LONG]),
            (f"median above {LONG:,}", [it for it in self.rows if it.before > LONG]),
        ):
            if some:
                names = ("after", "candidates", "compiled", "seconds")
                medians = [statistics.median(getattr(it, name) for it in some) for name in names]
                kept = f"{sum(it.cause for it in some)} of {len(some)}"
                rows.append((title, f"{len(some)} programs", *(f"{it:g}" for it in medians), kept))
        return [Table("reductions of long programs", columns, rows)]


def measure(seconds: int | None = None) -> Minimizations:
    """Reduce the programs, and begin none after that many seconds."""
    quiet_torch()
    ends = time.monotonic() + (seconds or float("inf"))
    rows = []
    for subject in subjects(SEED):
        rows.append(minimized(subject))
        print(rows[-1], flush=True)
        if time.monotonic() > ends:
            break
    return Minimizations(rows)


def subjects(seed: int) -> Iterator[LongProgram]:
    """50 programs of about 200 instructions and 5 of about 2,000, the kinds in turn."""
    sources: list[tuple[int, Iterator[LongProgram]]] = [
        (17, spliced(200, seed, FX)),
        (12, in_models(3, seed + 1, FX)),
        (13, planted(200, seed + 2)),
        (3, in_models(32, seed + 3, FX)),
        (8, spliced(200, seed + 4, ("inductor-fx",))),
        (2, spliced(2000, seed + 5, FX)),
    ]
    while sources:
        for count, source in list(sources):
            subject = next(source, None)
            sources = [it for it in sources if it[1] is not source]
            if subject is not None:
                yield subject
                if count > 1:
                    sources.append((count - 1, source))


def minimized(subject: LongProgram) -> Minimized:
    """What the reducer makes of a program. Counts what the target builds."""
    started, run_target = time.process_time(), trial.run_target
    built = compiled = 0

    def counting(*given: Any) -> Any:
        nonlocal built
        built += 1
        return run_target(*given)

    def predicate(candidate: Program) -> int:
        nonlocal compiled
        before = built
        try:
            return subject.grade(candidate)
        finally:
            compiled += built > before

    best = len(grades_of(subject.symptom))
    reducer = Reducer(PROGRAM, subject.program, predicate, best_grade=best)
    with mock.patch.object(trial, "run_target", counting):
        result = reducer.run()
    return Minimized(
        subject.name,
        subject.kind,
        len(subject.program),
        len(result),
        reducer.tried,
        compiled,
        time.process_time() - started,
        subject.keeps_cause(Case.of(result)),
    )
