"""`prove_function`: for all sizes, a target adds no aliasing to a function.

A refutation is repeated with real tensors, and reported only if that run shows it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import sympy  # type: ignore[import-untyped]
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from aliasproof.checks.explaining import definedness_note
from aliasproof.eager.definedness import why_unjudged
from aliasproof.ir.devices import CPU, on_device
from aliasproof.ir.errors import InternalError, Rejected, UserError
from aliasproof.ir.execution import ProgramFunction
from aliasproof.ir.program import Program
from aliasproof.ir.regions import overlap
from aliasproof.ir.values import clone_inputs, input_tensors
from aliasproof.oracles import smt
from aliasproof.oracles.observation import Observation, observe, observe_eager
from aliasproof.oracles.proofs.assumptions import Assumptions
from aliasproof.oracles.proofs.size_expressions import SizeValues, evaluate
from aliasproof.oracles.proofs.symbolic_inputs import SymbolicInputs, SymbolicLayout, disagreements
from aliasproof.oracles.proofs.target_proofs import (
    Answer,
    Counterexample,
    Covered,
    Proof,
    TargetProofs,
    pairs,
    prove,
)
from aliasproof.targets.names import PROVED
from aliasproof.targets.registry import SymbolicBuild, symbolic_build
from aliasproof.targets.registry import target as target_named
from aliasproof.targets.target import Function, Target
from aliasproof.user_code.comparable import Comparable
from aliasproof.user_code.given_path import FileNames
from aliasproof.user_code.user_file import UserFunction, apply_to, raised_text

ANCHORS = 2  # sizes at which layouts of fake tensors are compared with a real run
MOST_COUNTED = 5_000  # sizes in range; if there are more, covered sizes are not counted
MOST_BYTES = 1 << 30  # of the inputs of a real run


@dataclass(frozen=True, slots=True)
class Range:
    """Sizes from `low` to `high`, both included; no upper bound if `high` is None."""

    low: int = 1
    high: int | None = 64

    def __str__(self) -> str:
        return f"from {self.low} {'up' if self.high is None else f'to {self.high}'}"


DEFAULT_SIZES = Range()


def prove_function(
    function: Program | Function,
    inputs: object = (),
    targets: Sequence[str] = PROVED,
    sizes: Range = DEFAULT_SIZES,
    limit: float = 10.0,
) -> list[TargetProofs]:
    """Prove for each target that it adds no aliasing, or find sizes for which it does.

    A `Program` has its own inputs. `limit` is in seconds per pair of tensors. Raises `UserError` if
    eager raises, or if a target is unknown.
    """
    chosen = [target_named(name) for name in dict.fromkeys(targets)]
    return [
        prove_build(function, inputs, target, symbolic_build(target.name), sizes, limit)
        for target in chosen
    ]


def prove_file(
    path: Path, names: FileNames, targets: Sequence[str], sizes: Range, limit: float
) -> list[TargetProofs]:
    """The same for the program, or the function with these names, in a user's file."""
    for name in targets:  # before the user's file runs, which can take long
        target_named(name)

    def action(given: UserFunction | Program) -> list[TargetProofs]:
        if isinstance(given, Program):
            return prove_function(given, targets=targets, sizes=sizes, limit=limit)
        return prove_function(given.function, given.inputs, targets, sizes, limit)

    return apply_to(path, names, action)


def prove_build(
    function: Program | Function,
    inputs: object,
    target: Target,
    build: SymbolicBuild | None,
    sizes: Range = DEFAULT_SIZES,
    limit: float = 10.0,
) -> TargetProofs:
    """`prove_function` for one target and its symbolic build, None if it has none."""
    if isinstance(function, Program):
        on_cpu = on_device(function, CPU)  # a proof is only about layouts
        inputs, function = input_tensors(on_cpu), ProgramFunction(on_cpu)
    comparable = Comparable.of(function, inputs)
    tensors = _TensorLeaves(comparable)
    samples = clone_inputs(comparable.inputs)
    # Otherwise an error of eager would later look like an error of the symbolic run.
    eager = observe(tensors, clone_inputs(samples))
    note = definedness_note(tensors, samples)
    if eager.error is not None:
        why = "" if note is None else f"; {note}"
        raise UserError(f"eager raises {raised_text(eager.error, None)}{why}")
    proofs = _Proving(tensors, SymbolicInputs(samples), target, build, limit).run(eager, sizes)
    return replace(proofs, captured=comparable.captured_names, note=note)


@dataclass(frozen=True, slots=True)
class _TensorLeaves:
    """A function that returns the tensors among the leaves of another, and 0 for other leaves."""

    function: Function

    def __call__(self, *tensors: torch.Tensor) -> list[object]:
        returned: Any = self.function(*tensors)
        return [leaf if isinstance(leaf, torch.Tensor) else 0 for leaf in returned]


@dataclass(frozen=True, slots=True)
class _Proving:
    """Proves the pairs of one function and one target."""

    function: Function
    inputs: SymbolicInputs
    target: Target
    build: SymbolicBuild | None
    limit: float

    def run(self, eager: Observation, sizes: Range) -> TargetProofs:
        """Prove all pairs. If the symbolic runs fail, all are unknown, and the failure says why."""
        shapes = tuple(tuple(map(str, shape)) for shape in self.inputs.shapes)
        try:
            before = self.inputs.layout(self.function)
            compiled = self._compile()
            after = self.inputs.layout(compiled, "the target")
            # Last, since the guards of both runs are assumptions.
            assumptions = self.inputs.assumptions(sizes.low, sizes.high)
        except Rejected as rejected:
            unknown = (
                Proof(one, other, Answer.UNKNOWN, str(rejected), 0.0)
                for one, other in pairs(list(eager.tensors()))
            )
            return TargetProofs(self.target.name, shapes, (), tuple(unknown))
        # A proof is about fake tensors. It proves nothing if a real run disagrees with them.
        untrue = self._untrue(before, after, compiled, assumptions)
        proofs = tuple(
            self._confirm(proof, untrue, compiled)
            for proof in prove(before, after, assumptions, self.limit)
        )
        texts, covered = _as_python(assumptions), _coverage(assumptions, sizes)
        return TargetProofs(self.target.name, shapes, texts, proofs, covered)

    def _confirm(self, proof: Proof, untrue: dict[str, str], compiled: Function) -> Proof:
        """The proof, unless real runs contradict it."""
        reasons = [untrue[name] for name in sorted({proof.one, proof.other} & untrue.keys())]
        if proof.answer is Answer.PROVED and reasons:
            return replace(proof, answer=Answer.UNKNOWN, how=reasons[0])
        if proof.answer is not Answer.REFUTED:
            return proof
        assert proof.sizes is not None
        try:
            shown = self._counterexample(proof.one, proof.other, proof.sizes, compiled)
        except Rejected as reason:
            return replace(proof, answer=Answer.UNKNOWN, how=str(reason), sizes=None)
        return replace(proof, counterexample=shown)

    def _compile(self) -> Function:
        """The symbolic build. Raises `Rejected` if there is none."""
        # Not an error: each pair is then unknown, with this reason.
        if self.build is None:
            raise Rejected("the target has no build with symbolic sizes")
        # The cache outlives a program, and its entries can change the compilation of the next one.
        FakeTensorMode.cache_clear()
        try:
            return self.build(self.function, self.inputs.fresh())
        except InternalError:
            raise
        except Exception as error:
            raised = raised_text(error, None)
            raise Rejected(f"with symbolic sizes, the target raises {raised}") from error

    def _untrue(
        self,
        before: SymbolicLayout,
        after: SymbolicLayout,
        compiled: Function,
        assumptions: Assumptions,
    ) -> dict[str, str]:
        """The tensors whose layouts in real runs differ from the symbolic ones, with the reason."""
        reasons: dict[str, str] = {}
        for sizes in itertools.islice(self._anchors(assumptions), ANCHORS):
            eager = observe(self.function, self.inputs.at(sizes))
            actual = observe(compiled, self.inputs.at(sizes))
            # Eager can raise on the data of these inputs. Then there is no layout to compare with.
            if eager.error is not None:
                continue
            if actual.error is not None:
                raised = raised_text(actual.error, None)
                return dict.fromkeys(after, f"the target raises {raised} in a real run")
            wrong = disagreements(before, eager, sizes) | disagreements(after, actual, sizes)
            reasons |= {
                name: f"{name} has another layout in a real run than on fake tensors"
                for name in wrong
            }
        return reasons

    def _anchors(self, assumptions: Assumptions) -> Iterator[SizeValues]:
        """Sizes for real runs: samples that meet the assumptions, then those of the given inputs.

        The latter can be out of range.
        """
        # Samples have values only for the free symbols; `complete` computes the others.
        samples = map(assumptions.complete, assumptions.samples)
        yield from (sizes for sizes in samples if not self._too_large(sizes))
        yield self.inputs.hints

    def _too_large(self, sizes: SizeValues) -> bool:
        """Whether inputs of these sizes are too large for a real run."""
        # 16 bytes: the largest item size, that of complex128.
        return 16 * sum(map(math.prod, self._shapes(sizes))) > MOST_BYTES

    def _shapes(self, sizes: SizeValues) -> tuple[tuple[int, ...], ...]:
        """The shapes of the inputs with these values of the symbols."""
        return tuple(
            tuple(int(evaluate(size, sizes)) for size in shape) for shape in self.inputs.shapes
        )

    def _counterexample(
        self, one: str, other: str, sizes: SizeValues, compiled: Function
    ) -> Counterexample:
        """Run at these sizes. Raises `Rejected` with the reason if nothing new is shared there."""
        shapes = self._shapes(sizes)
        at = f"with inputs of sizes {', '.join(str(list(shape)) for shape in shapes)}"
        if self._too_large(sizes):
            raise Rejected(f"refuted {at}, which are too large to run")
        try:
            eager, trace = observe_eager(self.function, self.inputs.at(sizes))
        except Rejected as rejected:
            raise Rejected(f"refuted {at}, where {why_unjudged(rejected)}") from rejected
        unmet = self.target.contract.unmet(trace)
        # The assumptions are about sizes. A precondition of the contract is about the run.
        if unmet is not None:
            raise Rejected(f"refuted {at}, for which the target promises nothing: {unmet.reason}")
        actual = observe(compiled, self.inputs.at(sizes))
        error = eager.error or actual.error
        if error is not None:
            raise Rejected(f"refuted, but a run {at} raises {raised_text(error, None)}")
        # The byte regions of real tensors decide, not the symbolic model.
        ours, theirs = eager.regions(), actual.regions()
        if overlap(ours[one], ours[other]) or not overlap(theirs[one], theirs[other]):
            raise Rejected(f"refuted, but a run {at} does not show it; please report this")
        witness = smt.decide(theirs[one], theirs[other])
        if not isinstance(witness, smt.Witness):
            raise Rejected(f"refuted {at}, but z3 could not confirm it: {witness}")
        start = actual.tensors()[one].untyped_storage().data_ptr()
        return Counterexample(shapes, (witness.indices_a, witness.indices_b), witness.byte - start)


def _coverage(assumptions: Assumptions, sizes: Range) -> Covered | None:
    # `equal` has the symbols that an equation determines, which are sizes of the inputs, too.
    symbols = len(assumptions.ranges) + len(assumptions.equal)
    if not symbols or assumptions.count is None or sizes.high is None:
        return None
    if assumptions.count > MOST_COUNTED:
        return None
    in_range: int = (sizes.high - sizes.low + 1) ** symbols
    return Covered(sum(1 for _ in assumptions.enumerate_sizes(math.inf)), in_range)


def _as_python(assumptions: Assumptions) -> tuple[str, ...]:
    ranges = (
        f"{low} <= {name}" if high is None else f"{low} <= {name} <= {high}"
        for name, (low, high) in assumptions.ranges.items()
    )
    equal = (f"{name} == {value}" for name, value in assumptions.equal.items())
    return (*ranges, *equal, *map(_condition, assumptions.conditions))


def _condition(condition: Any) -> str:
    # Sympy prints `Eq(a, b)` and `a & b`; Python needs `a == b` and `a and b`.
    if isinstance(condition, (sympy.Eq, sympy.Ne)):
        sign = "==" if isinstance(condition, sympy.Eq) else "!="
        return f"{condition.lhs} {sign} {condition.rhs}"
    if isinstance(condition, (sympy.And, sympy.Or)):
        word = " and " if isinstance(condition, sympy.And) else " or "
        return f"({word.join(map(_condition, condition.args))})"
    if isinstance(condition, sympy.Not):
        return f"not ({_condition(condition.args[0])})"
    return str(condition)
