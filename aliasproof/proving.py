"""The command `prove`: no new aliasing, for all sizes.

What is refuted is run: only what real tensors show is reported.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import sympy  # type: ignore[import-untyped]
import torch
from rich.console import Console
from rich.table import Table
from rich.text import Text
from torch._subclasses.fake_tensor import FakeTensorMode

from aliasproof import held_tensors
from aliasproof.comparable import Comparable
from aliasproof.console import notes, print_heading, print_lines, print_table, results, write_json
from aliasproof.user_file import read, what_was_raised
from oracles import smt
from oracles.observation import Observation, observe, observe_eager
from oracles.proofs.all_sizes import Proof, pairs, prove
from oracles.proofs.assumptions import Assumptions
from oracles.proofs.pair_decision import Answer
from oracles.proofs.size_expressions import SizeValues, evaluate
from oracles.proofs.symbolic_inputs import SymbolicInputs
from oracles.proofs.symbolic_regions import SymbolicLayout, disagreements
from programs.errors import InternalError, Rejected, UserError
from programs.execution import ProgramFunction
from programs.program import Program
from programs.regions import overlap
from programs.values import clone_inputs, input_tensors
from targets.registry import target as target_named
from targets.symbolic_sizes import SYMBOLIC, SymbolicBuild
from targets.target import Function, Target
from trials.worker import quiet_torch

DEFAULT_TARGETS = ("functionalize", "fx-reinplace", "aot", "aot-epilogue", "reference")
STYLES = {
    Answer.PROVED: "green",
    Answer.REFUTED: "bold red",
    Answer.UNKNOWN: "yellow",
    Answer.VACUOUS: "dim",
}
ANCHORS = 2  # sizes at which real runs are held against fake ones
MOST_COUNTED = 5_000  # sizes in range; more are not counted through
MOST_BYTES = 1 << 30  # of inputs that a refutation is run with


@dataclass(frozen=True, slots=True)
class Range:
    """Sizes from `low` to `high`, both included; no bound above if `high` is None."""

    low: int = 1
    high: int | None = 64

    @classmethod
    def of(cls, text: str) -> Range:
        """From `LOW:HIGH` or `LOW:`. Raises `UserError`."""
        found = re.fullmatch(r"(\d{1,9}):(\d{0,9})", text)
        if found is None or (found[2] and int(found[2]) < int(found[1])):
            raise UserError(
                f"--sizes {text}: give LOW:HIGH in whole numbers below a billion, LOW not above HIGH,"
                " or LOW: for no upper bound"
            )
        return cls(int(found[1]), int(found[2]) if found[2] else None)

    def __str__(self) -> str:
        return f"from {self.low} {'on' if self.high is None else f'to {self.high}'}"


DEFAULT_SIZES = Range()


@dataclass(frozen=True, slots=True)
class Counterexample:
    """Sizes of the inputs for which two tensors share a byte that they do not in eager, seen in a run.

    One element of each as index tuples, and the byte, counted from the start of the storage.
    """

    shapes: tuple[tuple[int, ...], ...]
    indices: tuple[tuple[int, ...], tuple[int, ...]]
    byte: int


@dataclass(frozen=True, slots=True)
class Covered:
    """How many sizes satisfy the assumptions, of how many in range."""

    sizes: int
    of: int


@dataclass(frozen=True, slots=True)
class Pair:
    """What is known of a pair of tensors."""

    proof: Proof
    counterexample: Counterexample | None = None


@dataclass(frozen=True, slots=True)
class Proofs:
    """All pairs of one target.

    `shapes` are the sizes of the inputs as expressions, `assumptions` the conditions on them, and
    `covered` how many sizes satisfy these, None if there are none or too many to count. `held` are
    the names of the last inputs, if the function holds these and is not given them.
    """

    target: Target
    shapes: tuple[tuple[str, ...], ...]
    assumptions: tuple[str, ...]
    pairs: tuple[Pair, ...]
    covered: Covered | None = None
    held: tuple[str, ...] = ()

    @property
    def counts(self) -> dict[Answer, int]:
        """How many pairs have which answer."""
        counted = Counter(each.proof.answer for each in self.pairs)
        return {answer: counted[answer] for answer in Answer}

    @property
    def refuted(self) -> bool:
        """True if some pair is."""
        return self.counts[Answer.REFUTED] > 0

    def to_json(self) -> dict[str, object]:
        """All of it as JSON values."""
        return {
            "inputs": [list(each) for each in self.shapes],
            "held by the function": list(self.held),
            "assumptions": list(self.assumptions),
            "sizes that satisfy them": None
            if self.covered is None
            else [self.covered.sizes, self.covered.of],
            "pairs": [_pair_json(each) for each in self.pairs],
            "counts": {answer.value: count for answer, count in self.counts.items()},
        }


def _pair_json(pair: Pair) -> dict[str, object]:
    found, shown = pair.proof, pair.counterexample
    return {
        "one": found.one,
        "other": found.other,
        "answer": found.answer.value,
        "how": found.how,
        "milliseconds": round(found.milliseconds, 3),
        "counterexample": None
        if shown is None
        else {"sizes of inputs": shown.shapes, "indices": shown.indices, "shared byte": shown.byte},
    }


# --- proofs ---------------------------------------------------------------------------------------


def prove_function(
    function: Program | Function,
    inputs: Sequence[torch.Tensor] = (),
    targets: Sequence[str] = DEFAULT_TARGETS,
    sizes: Range = DEFAULT_SIZES,
    limit: float = 10.0,
) -> list[Proofs]:
    """Prove for each target that it adds no aliasing, or say for which sizes it does. A `Program` brings its own inputs.

    `limit` is the time for each pair, in seconds. Raises `UserError` if eager raises, or a target
    is not known.
    """
    chosen = [target_named(name) for name in dict.fromkeys(targets)]
    return [
        prove_build(function, inputs, each, SYMBOLIC.get(each.name), sizes, limit)
        for each in chosen
    ]


def prove_build(
    function: Program | Function,
    inputs: Sequence[torch.Tensor],
    target: Target,
    build: SymbolicBuild | None,
    sizes: Range = DEFAULT_SIZES,
    limit: float = 10.0,
) -> Proofs:
    """The same for one target and its symbolic build, None if it has none."""
    if isinstance(function, Program):
        inputs = input_tensors(function)
        function = ProgramFunction(function)
    lifted = held_tensors.lifted(function, inputs)
    tensors = _Tensors(Comparable(lifted or function))
    samples = clone_inputs((*inputs, *(lifted.held if lifted is not None else ())))
    eager = observe(tensors, clone_inputs(samples))
    if eager.error is not None:
        raise UserError(f"eager raises {what_was_raised(eager.error, None)}")
    found = _Proving(tensors, SymbolicInputs(samples), target, build, limit).run(eager, sizes)
    return found if lifted is None else replace(found, held=tuple(held_tensors.names(lifted)))


@dataclass(frozen=True, slots=True)
class _Tensors:
    """A function that returns the tensors among the leaves that another returns, and 0 in place of the others."""

    function: Function

    def __call__(self, *tensors: torch.Tensor) -> list[object]:
        returned: Any = self.function(*tensors)
        return [each if isinstance(each, torch.Tensor) else 0 for each in returned]


@dataclass(frozen=True, slots=True)
class _Proving:
    """One function and one target."""

    function: Function
    inputs: SymbolicInputs
    target: Target
    build: SymbolicBuild | None
    limit: float

    def run(self, eager: Observation, sizes: Range) -> Proofs:
        """Prove what can be proved; whatever keeps us from it is the reason why all pairs are unknown."""
        shapes = tuple(tuple(map(str, each)) for each in self.inputs.shapes)
        try:
            before = self.inputs.layout(self.function)
            compiled = self._compiled()
            after = self.inputs.layout(compiled, "the target")
            assumptions = self.inputs.assumptions(sizes.low, sizes.high)
        except Rejected as rejected:
            names = pairs(list(eager.tensors()))
            unknown = (
                Pair(Proof(one, other, Answer.UNKNOWN, str(rejected), 0.0)) for one, other in names
            )
            return Proofs(self.target, shapes, (), tuple(unknown))
        untrue = self._untrue(before, after, compiled, assumptions)
        found = []
        for proof in prove(before, after, assumptions, self.limit):
            reasons = [untrue[each] for each in sorted({proof.one, proof.other} & untrue.keys())]
            if proof.answer is Answer.PROVED and reasons:
                found.append(Pair(replace(proof, answer=Answer.UNKNOWN, how=reasons[0])))
            elif proof.answer is Answer.REFUTED:
                found.append(self._replayed(proof, compiled))
            else:
                found.append(Pair(proof))
        return Proofs(
            self.target, shapes, _in_words(assumptions), tuple(found), _covered(assumptions, sizes)
        )

    def _compiled(self) -> Function:
        """The symbolic build. Raises `Rejected` if there is none."""
        if self.build is None:
            raise Rejected("the target has no symbolic form")
        FakeTensorMode.cache_clear()  # it outlives a program, and can change what the next one compiles to
        try:
            return self.build(self.function, self.inputs.fresh())
        except InternalError:
            raise
        except Exception as error:
            raise Rejected(
                f"with symbolic sizes, the target raises {what_was_raised(error, None)}"
            ) from error

    def _untrue(
        self,
        before: SymbolicLayout,
        after: SymbolicLayout,
        compiled: Function,
        assumptions: Assumptions,
    ) -> dict[str, str]:
        """The tensors that real runs show to be otherwise than the layouts say, each with the reason."""
        found: dict[str, str] = {}
        for sizes in itertools.islice(self._anchors(assumptions), ANCHORS):
            eager, actual = (
                observe(self.function, self.inputs.at(sizes)),
                observe(compiled, self.inputs.at(sizes)),
            )
            if eager.error is not None:  # by its numbers; there is nothing to hold a layout against
                continue
            if actual.error is not None:
                return dict.fromkeys(
                    after, f"the target raises {what_was_raised(actual.error, None)} in a real run"
                )
            wrong = disagreements(before, eager, sizes) | disagreements(after, actual, sizes)
            found |= {
                name: f"{name} has another layout in a real run than on fake tensors"
                for name in wrong
            }
        return found

    def _anchors(self, assumptions: Assumptions) -> Iterator[SizeValues]:
        """Sizes to run at: those that satisfy the assumptions, then the sample, which may be out of range."""
        yield from (
            each
            for each in map(assumptions.complete, assumptions.samples)
            if not self._too_large(each)
        )
        yield self.inputs.hints

    def _too_large(self, sizes: SizeValues) -> bool:
        """Whether inputs of these sizes are too large to be run."""
        counts = (
            math.prod(int(evaluate(each, sizes)) for each in shape) for shape in self.inputs.shapes
        )
        return 16 * sum(counts) > MOST_BYTES

    def _replayed(self, proof: Proof, compiled: Function) -> Pair:
        """The refutation with what a run at its sizes shows, or unknown if it does not show it."""
        assert proof.sizes is not None
        try:
            return Pair(proof, self._shown(proof.one, proof.other, proof.sizes, compiled))
        except Rejected as reason:
            return Pair(replace(proof, answer=Answer.UNKNOWN, how=str(reason), sizes=None))

    def _shown(self, one: str, other: str, sizes: SizeValues, compiled: Function) -> Counterexample:
        shapes = tuple(
            tuple(int(evaluate(each, sizes)) for each in shape) for shape in self.inputs.shapes
        )
        at = f"with inputs of sizes {', '.join(str(list(each)) for each in shapes)}"
        if self._too_large(sizes):
            raise Rejected(f"refuted {at}, which is too large to be run")
        try:
            eager, trace = observe_eager(self.function, self.inputs.at(sizes))
        except Rejected as undefined:
            raise Rejected(
                f"refuted {at}, where the program is undefined in eager: {undefined}"
            ) from undefined
        unmet = self.target.contract.unmet(trace)
        if unmet is not None:
            raise Rejected(f"refuted {at}, for which the target promises nothing: {unmet.reason}")
        actual = observe(compiled, self.inputs.at(sizes))
        if eager.error is not None or actual.error is not None:
            raise Rejected(
                f"refuted, but a run {at} raises {what_was_raised(eager.error or actual.error or Rejected(), None)}"
            )
        ours, theirs = eager.regions(), actual.regions()
        if overlap(ours[one], ours[other]) or not overlap(theirs[one], theirs[other]):
            raise Rejected(f"refuted, but a run {at} does not show it; please report this")
        witness = smt.decide(theirs[one], theirs[other])
        if not isinstance(witness, smt.Witness):
            raise Rejected(f"refuted {at}, but z3 could not confirm it: {witness}")
        start = actual.tensors()[one].untyped_storage().data_ptr()
        return Counterexample(shapes, (witness.indices_a, witness.indices_b), witness.byte - start)


def _covered(assumptions: Assumptions, sizes: Range) -> Covered | None:
    symbols = len(assumptions.ranges) + len(assumptions.equal)
    if (
        not symbols
        or assumptions.count is None
        or assumptions.count > MOST_COUNTED
        or sizes.high is None
    ):
        return None
    return Covered(
        sum(1 for _ in assumptions.enumerate_sizes(math.inf)),
        (sizes.high - sizes.low + 1) ** symbols,
    )


def _in_words(assumptions: Assumptions) -> tuple[str, ...]:
    """The assumptions as Python conditions."""
    ranges = (
        f"{low} <= {name}" if high is None else f"{low} <= {name} <= {high}"
        for name, (low, high) in assumptions.ranges.items()
    )
    equal = (f"{name} == {term}" for name, term in assumptions.equal.items())
    return (*ranges, *equal, *map(_condition, assumptions.conditions))


def _condition(term: Any) -> str:
    if isinstance(term, (sympy.Eq, sympy.Ne)):
        return f"{term.lhs} {'==' if isinstance(term, sympy.Eq) else '!='} {term.rhs}"
    if isinstance(term, (sympy.And, sympy.Or)):
        return f"({(' and ' if isinstance(term, sympy.And) else ' or ').join(map(_condition, term.args))})"
    return f"not ({_condition(term.args[0])})" if isinstance(term, sympy.Not) else str(term)


# --- the command ----------------------------------------------------------------------------------


def prove_file(
    path: Path,
    targets: Sequence[str] | None,
    sizes: str,
    limit: float,
    names: tuple[str, str] = ("program", "inputs"),
    *,
    as_json: bool,
) -> bool:
    """Prove what can be proved of what a file defines, print it, and say whether something was refuted."""
    chosen = list(targets or DEFAULT_TARGETS)
    for each in chosen:
        target_named(each)  # before the file is run
    wanted = Range.of(sizes)
    if not 0 < limit < float("inf"):
        raise UserError(f"--limit {limit:g}: give seconds above 0")
    quiet_torch()
    with contextlib.redirect_stdout(sys.stderr):  # what the user's code prints is no result
        given = read(path, *names)
        try:
            if isinstance(given, Program):
                found = prove_function(given, targets=chosen, sizes=wanted, limit=limit)
            else:
                found = prove_function(given.function, given.inputs, chosen, wanted, limit)
        except UserError as error:
            raise UserError(f"{path}: {error}") from error
        except SystemExit as exit_of_user:
            raise UserError(
                f"{path}: {names[0]} calls sys.exit({exit_of_user.code!r})"
            ) from exit_of_user
    if not _has_symbols(found[0]):
        print_lines(
            notes(),
            "note: no size became a symbol; only sizes of 2 or more do, in inputs that fill a storage of their own",
        )
    if as_json:
        by_target = {each.target.name: each.to_json() for each in found}
        write_json(
            {
                "file": str(path),
                "torch": torch.__version__,
                "sizes": [wanted.low, wanted.high],
                "targets": by_target,
            }
        )
    else:
        _print(results(), path, wanted, found)
    return any(each.refuted for each in found)


def _has_symbols(found: Proofs) -> bool:
    return any(re.fullmatch(r"n\d+", size) for shape in found.shapes for size in shape)


def _inputs(found: Proofs) -> Iterator[str]:
    """What each input is, with the name of one that the function holds."""
    given = len(found.shapes) - len(found.held)
    for index, shape in enumerate(found.shapes):
        name = f" ({found.held[index - given]})" if index >= given else ""
        yield f"input {index}{name} is [{', '.join(shape)}]"


def _print(console: Console, path: Path, sizes: Range, found: Sequence[Proofs]) -> None:
    print_lines(console, f"{path} in torch {torch.__version__}", "bold")
    inputs = ", ".join(_inputs(found[0])) or "no inputs"
    print_lines(console, f"{inputs}; sizes {sizes}" if _has_symbols(found[0]) else inputs)
    for each in found:
        print_heading(console, each.target.name)
        if each.assumptions:
            print_lines(console, f"assumptions: {', '.join(each.assumptions)}", "dim")
        if each.covered is not None:
            print_lines(
                console,
                f"{each.covered.sizes} of {each.covered.of} sizes in range satisfy them",
                "dim",
            )
        _print_pairs(console, each.pairs)
        for line in _counterexamples(each):
            print_lines(console, line, "bold red")
        print_lines(
            console,
            ", ".join(f"{count} {answer.value}" for answer, count in each.counts.items()),
            "bold",
        )


def _print_pairs(console: Console, found: Sequence[Pair]) -> None:
    """A row each, or one line if the answer to all is the same for the same reason."""
    said = {(each.proof.answer, each.proof.how) for each in found}
    if len(said) == 1 and next(iter(said))[0] in (Answer.UNKNOWN, Answer.VACUOUS):
        ((answer, how),) = said
        print_lines(console, f"all pairs {answer.value}: {how}", STYLES[answer])
        return
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for name in ("pair", "answer", "how"):
        table.add_column(name, overflow="fold")
    table.add_column("ms", justify="right")
    for each in found:
        proof = each.proof
        answer_text = Text(proof.answer.value, STYLES[proof.answer])
        table.add_row(
            f"{proof.one}, {proof.other}", answer_text, proof.how, f"{proof.milliseconds:.1f}"
        )
    print_table(console, table)


def _counterexamples(found: Proofs) -> Iterator[str]:
    for pair in found.pairs:
        shown, proof = pair.counterexample, pair.proof
        if shown is not None:
            shapes = ", ".join(
                f"input {index} of size {list(shape)}" for index, shape in enumerate(shown.shapes)
            )
            one, other = map(list, shown.indices)
            yield (
                f"with {shapes}: {proof.one} at {one} and {proof.other} at {other} hold byte {shown.byte} of one storage;"
                " in eager they share no byte"
            )
