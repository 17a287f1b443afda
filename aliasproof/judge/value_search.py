"""`search_values`: input values that show a difference that only oracle *equivalence* reports.

Two graphs with different value hashes differ for some inputs, unless the ops obey a law that the
hashes do not know (`x + x` is `2 * x`). This search tries such inputs: first one value in a whole
storage, so that a reader sees at once what matters; then mixtures. The values are special values at
which rewrites go wrong (`aliasproof.ir.values`), small numbers of both signs, and the constants of
the program and their neighbours, since a comparison with 12345 is decided by 12345.

The search draws from a fixed seed, so it is reproducible. Its budget is a number of runs, and a
time limit in case runs are slow.
"""

from __future__ import annotations

import itertools
import math
import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch.utils._pytree import tree_leaves

from aliasproof.eager.rounding import readable
from aliasproof.eager.trace import Trace
from aliasproof.ir.errors import Rejected
from aliasproof.ir.execution import SEED, ProgramFunction, seed_generators
from aliasproof.ir.program import Program
from aliasproof.ir.validation import ELEMENT_DTYPES
from aliasproof.ir.values import Number, bytes_of, element_text, special_parts, texts_of
from aliasproof.judge.trial import Case, Trial, run_eager, run_trial
from aliasproof.oracles import equivalence
from aliasproof.oracles.judge import judge
from aliasproof.oracles.observation import Observation, observe
from aliasproof.oracles.values import OTHER_ZERO
from aliasproof.oracles.verdict import ON_VALUES, Report, Verdict, Violation, with_differences
from aliasproof.targets.target import Build, Target

SMALL = (0, -1, 1, 2, -3)
LONGEST_TEXT = 12  # elements of a storage that evidence shows
MOST_UNCONFIRMED = 5  # differences that a new build, or the rounding control, did not show
MOST_CONSTANTS = 8  # of a program; a long one may have hundreds


@dataclass(frozen=True, slots=True)
class Budget:
    """How many runs a search may make, and for how many seconds."""

    runs: int = 80
    seconds: float = 5.0


# Without a time limit, so that a seed of a campaign finds the same on every machine.
CAMPAIGN_BUDGET = Budget(seconds=math.inf)


@dataclass(frozen=True, slots=True)
class InputData:
    """Other data for the inputs of a case: a 1-d tensor per storage, or None to keep its data.

    Storages are in the order in which the inputs first view them.
    """

    storages: tuple[torch.Tensor | None, ...]

    def put_into(self, case: Case) -> Case:
        """The same case with this data. Layouts and sharing stay the same."""
        plain = case.plain or case

        def inputs() -> Sequence[torch.Tensor]:
            tensors = plain.fresh_inputs()
            for storage, data in zip(input_storages(tensors), self.storages, strict=True):
                if data is not None:
                    given = bytes_of(data.untyped_storage())
                    bytes_of(storage.untyped_storage())[: given.numel()].copy_(given)
            return tensors

        return replace(plain, fresh_inputs=inputs)


@dataclass(frozen=True, slots=True)
class ShownValues:
    """Values for which the target differs from eager: the data, what it shows, and the runs."""

    data: InputData
    violations: tuple[Violation, ...]
    runs: int

    def as_program(self, program: Program) -> Program:
        """The program with this data in its storages."""
        order = dict.fromkeys(view.storage for view in program.inputs)
        storages = list(program.storages)
        for index, data in zip(order, self.data.storages, strict=True):
            if data is not None:
                nbytes = storages[index].length * storages[index].dtype.itemsize
                buffer = torch.zeros(nbytes, dtype=torch.uint8)
                given = bytes_of(data.untyped_storage())
                buffer[: given.numel()] = given[:nbytes]
                texts = texts_of(buffer.view(storages[index].dtype))
                storages[index] = replace(storages[index], values=texts)
        return replace(program, storages=tuple(storages))


def input_storages(tensors: Iterable[torch.Tensor]) -> list[torch.Tensor]:
    """The first tensor on each storage, in the order of the inputs."""
    first: dict[int, torch.Tensor] = {}
    for tensor in tensors:
        first.setdefault(tensor.untyped_storage()._cdata, tensor)
    return list(first.values())


def search_values(
    case: Case,
    target: Target,
    trial: Trial,
    budget: Budget = Budget(),
    *,
    promised: bool = True,
) -> ShownValues | None:
    """Values for the inputs that show a difference; None if the budget ends first.

    `trial` is a run of the target whose values are right. Its compiled function is reused, and a
    new build confirms a difference. If equivalence is not `promised`, fewer differences count (see
    `_counts`).
    """
    if trial.build is None or trial.target.error is not None:
        return None
    start = time.monotonic()
    unconfirmed = 0
    attempts = itertools.islice(attempted_data(case, constants(case, trial.build)), budget.runs)
    for runs, data in enumerate(attempts, start=1):
        if time.monotonic() - start > budget.seconds:
            return None
        other = data.put_into(case).under(target)
        finite = all(readable(tensor).isfinite().all() for tensor in other.fresh_inputs())
        counts = partial(_counts, promised=promised, finite=finite)
        if not _differs(other, target, trial.build, counts):
            continue
        if (unconfirmed := unconfirmed + 1) > MOST_UNCONFIRMED:
            return None
        # A build may be specialized to the values that it traced with, so a new one decides.
        try:
            again = run_trial(other, target)
        except Rejected:
            continue
        violations = again.judgement.violations
        if shown := tuple(one for one in violations if counts(one, again.eager, again.trace)):
            return ShownValues(data, shown, runs)
    return None


def _differs(
    case: Case,
    target: Target,
    build: Build,
    counts: Callable[[Violation, Observation, Trace], bool],
) -> bool:
    """Whether the compiled function differs from eager in values, on the inputs of a case."""
    try:
        expected, trace = run_eager(case)
        # With these values eager may raise, for example because an index is out of range.
        if expected.error is not None:
            return False
        seed_generators()
        actual = observe(build.function, case.fresh_inputs())
    except Rejected:
        return False
    violations = judge(target.contract, expected, actual, trace).violations
    return any(counts(violation, expected, trace) for violation in violations)


def _counts(
    violation: Violation, eager: Observation, trace: Trace, *, promised: bool, finite: bool
) -> bool:
    """Whether a violation is a difference in values that the search looks for.

    If a target may compute with other operators, a sum may start with a zero, which loses the sign
    of another zero; and a rounding op may become several steps, in which infinity becomes NaN.
    """
    if violation.oracle not in ON_VALUES or promised:
        return violation.oracle in ON_VALUES
    if violation.kind == OTHER_ZERO:
        return False
    value = eager.tensors().get(violation.place)
    return finite or value is None or not trace.tolerance(value).rounds


# --- which data is tried --------------------------------------------------------------------------


def attempted_data(case: Case, known: Sequence[Number]) -> Iterator[InputData]:
    """Data for the inputs, endlessly. `known` are the constants of the program."""
    storages = input_storages((case.plain or case).fresh_inputs())
    if not storages:
        return
    # With one value in a whole storage, a reader sees what matters.
    for changed in range(len(storages)):
        for number in _numbers(storages[changed], known):
            data: list[torch.Tensor | None] = [None] * len(storages)
            data[changed] = _repetition(storages[changed], [number])
            yield InputData(tuple(data))
    draw = random.Random(SEED)
    while True:
        yield InputData(tuple(_mixture(storage, known, draw) for storage in storages))


def _numbers(tensor: torch.Tensor, known: Sequence[Number]) -> list[Number]:
    """The numbers to try in the storage of this tensor, the most informative ones first."""
    dtype = tensor.dtype
    if dtype == torch.bool:
        return [False, True]
    if dtype not in ELEMENT_DTYPES:  # such a dtype cannot store numbers
        return []
    special = special_parts(dtype)
    near = [number + step for number in known for step in (0, 1, -1)]
    numbers = [*special[:1], *SMALL[:2], *near, *special[1:], *SMALL[2:]]
    # Distinct by text, since 0 equals -0.0.
    distinct = {str(number): number for number in numbers}
    return [number for number in distinct.values() if _fits(number, dtype)]


def _fits(number: Number, dtype: torch.dtype) -> bool:
    if dtype.is_floating_point or dtype.is_complex:
        return True
    limits = torch.iinfo(dtype)
    return isinstance(number, int) and limits.min <= number <= limits.max


def _mixture(
    tensor: torch.Tensor, known: Sequence[Number], draw: random.Random
) -> torch.Tensor | None:
    """Data for a storage: unchanged, small numbers, or all kinds of numbers."""
    style = draw.choice(("as it is", "small", "small", "all", "all"))
    if style == "as it is":
        return None
    numbers = _numbers(tensor, known)
    if not numbers:
        return None
    if style == "small" and tensor.dtype != torch.bool:
        numbers = [number for number in (*SMALL, 5, -7) if _fits(number, tensor.dtype)]
    length = tensor.untyped_storage().nbytes() // tensor.itemsize
    return _repetition(tensor, [draw.choice(numbers) for _ in range(min(length, 4096))])


def _repetition(tensor: torch.Tensor, numbers: Sequence[Number]) -> torch.Tensor:
    """These numbers, repeated to fill the whole storage of a tensor, in its dtype."""
    length = tensor.untyped_storage().nbytes() // tensor.itemsize
    times = -(-length // max(len(numbers), 1))
    short = torch.tensor(list(numbers), dtype=tensor.dtype)
    # As bytes: some dtypes have no kernel to repeat them.
    as_bytes = bytes_of(short.untyped_storage()).repeat(times)[: length * tensor.itemsize]
    return as_bytes.clone().view(tensor.dtype)


def constants(case: Case, build: Build) -> list[Number]:
    """The numbers in the instructions of a program, or else in the graphs of a target."""
    function = (case.plain or case).function
    if isinstance(function, ProgramFunction):
        calls = [(call.args, call.kwargs) for call in function.program.instructions]
    else:
        nodes = (node for stage in build.stages for node in stage.graph.graph.nodes)
        calls = [(node.args, tuple(node.kwargs.items())) for node in nodes]
    numbers = (it for it in tree_leaves(calls) if type(it) in (int, float) and abs(it) < 2**31)
    # `SMALL` numbers are tried anyway.
    return [number for number in dict.fromkeys(numbers) if number not in SMALL][:MOST_CONSTANTS]


# --- how it is reported ---------------------------------------------------------------------------


def report_by_values(
    report: Report, case: Case, shown: ShownValues | None, budget: Budget
) -> Report:
    """The report of *equivalence*: VIOLATED if values show its difference, and else UNKNOWN.

    Different hashes do not prove a difference: a law of arithmetic may make both sides equal.
    """
    if shown is None:
        return _not_shown(report, budget) if report.violations else report
    first = shown.violations[0]
    reported: dict[str, object] = {
        "values that show it": inputs_text(case, shown.data),
        "eager then": f"{first.place}: {first.evidence.get('eager')}",
        "target then": f"{first.place}: {first.evidence.get('target')}",
    }
    violations = tuple(
        replace(violation, evidence={**violation.evidence, **reported})
        for violation in report.violations
    )
    if not violations:
        kind = "wrong for other values"
        violations = (Violation(equivalence.ORACLE.name, kind, first.place, reported),)
    return with_differences(violations, report.documented, report.notes)


def _not_shown(report: Report, budget: Budget) -> Report:
    places = ", ".join(violation.place for violation in report.violations)
    reason = f"not shown equal: the symbolic values of {places} differ, and no values of"
    unknown = Report(Verdict.UNKNOWN, reason=f"{reason} {budget.runs} runs show it")
    reported = with_differences((), report.documented, report.notes, unknown)
    searched = {"values that show it": f"none in {budget.runs} runs: latent"}
    suspected = (
        replace(violation, evidence={**violation.evidence, **searched})
        for violation in report.violations
    )
    return replace(reported, suspected=tuple(suspected))


def inputs_text(case: Case, data: InputData) -> str:
    """The data as a user writes it: 'input 0 = [inf, inf], input 1 with its own values'."""
    tensors = (case.plain or case).fresh_inputs()
    texts = []
    for first, changed in zip(input_storages(tensors), data.storages, strict=True):
        number = next(index for index, tensor in enumerate(tensors) if tensor is first)
        if changed is not None:
            texts.append(f"{storage_name(number, tensors)} = {_values_text(changed)}")
    kept = "; the others as given" if len(texts) < len(data.storages) else ""
    return "; ".join(texts) + kept


def storage_name(number: int, tensors: Sequence[torch.Tensor]) -> str:
    """A name for the storage of an input: the input itself, if that shows all of the storage."""
    tensor = tensors[number]
    storage = tensor.untyped_storage()
    shares = sum(other.untyped_storage()._cdata == storage._cdata for other in tensors) > 1
    whole = tensor.is_contiguous() and tensor.nbytes == storage.nbytes() and not shares
    return f"input {number}" if whole else f"the storage of input {number}"


def _values_text(data: torch.Tensor) -> str:
    values = [element_text(value) for value in data[:LONGEST_TEXT].tolist()]
    if len(set(values)) == 1 and data.numel() > 1:
        return f"{values[0]} everywhere"
    more = ", ..." if data.numel() > LONGEST_TEXT else ""
    return f"[{', '.join(values)}{more}]"
