"""`TargetProofs`: what is proved about the pairs of inputs and outputs of one target."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import sympy  # type: ignore[import-untyped]

from aliasproof.oracles.proofs.assumptions import Assumptions
from aliasproof.oracles.proofs.pair_decision import Answer, PairDecision, PairQuestion
from aliasproof.oracles.proofs.size_encoding import SizeSearch, encoding_of
from aliasproof.oracles.proofs.size_expressions import SizeValues
from aliasproof.oracles.proofs.symbolic_inputs import SymbolicLayout

# --- all sizes ------------------------------------------------------------------------------------
#
# Proofs for all sizes: outputs alias nothing at any sizes, except what they alias in eager.
#
# A pair is an input and an output, or two outputs. Its regions are expressions of the sizes,
# before (in eager) and after (of a target). These steps decide a pair, the cheapest first. The
# proof names the one that succeeds.
#
# 1. After, the two are in different storages; or their relative layout is the same as before,
#    expression by expression.
# 2. Sampled sizes are tried one by one; they can only refute. Or z3 proves that two elements share
#    a byte in eager at all sizes, so there is nothing to add.
# 3. z3 proves that no byte is in both, with sizes and indices as unknowns.
# 4. z3 proves that the relative layout is the same as before at all sizes.
# 5. z3 answers 3 again, with exact products. Sizes that it proposes and that do not refute are
#    excluded, and the search goes on.
# 6. All sizes in range are tried one by one, as far as time allows.
#
# Products of unknowns (an index times a symbolic stride) make such questions hard. In 3 and 4 a
# product is an unknown of its own. z3 only knows linear facts about it: its sign, its range, how
# it compares to other products (see `SizeEncoding.product`). This leaves linear arithmetic, and
# more models than the real question has. So if z3 finds no model, there is none; but a model
# proves nothing.


@dataclass(frozen=True, slots=True)
class Proof:
    """The answer for a pair of tensors, and how it was found.

    A refutation has the sizes of all symbols.
    """

    one: str  # names, such as "input 0"
    other: str
    answer: Answer
    how: str  # the step that decided, or the reason of an unknown
    milliseconds: float
    sizes: SizeValues | None = None


def pairs(names: Sequence[str]) -> list[tuple[str, str]]:
    """Every input with every output, and every two outputs, by name."""
    return [
        (one, other)
        for index, other in enumerate(names)
        for one in names[:index]
        if other.startswith("output")
    ]


def prove(
    before: SymbolicLayout, after: SymbolicLayout, assumptions: Assumptions, limit: float = 10.0
) -> list[Proof]:
    """Decide all pairs; `limit` is the time for each, in seconds."""
    # Whether the assumptions can hold is the same question for all pairs, so it is asked once.
    satisfied = _with_sample(assumptions, limit)
    # Solved symbols are replaced first: fewer unknowns, and equal expressions get equal forms.
    before = {name: region.replaced(assumptions.equal) for name, region in before.items()}
    after = {name: region.replaced(assumptions.equal) for name, region in after.items()}
    proofs = []
    for one, other in pairs(list(before)):
        start = time.perf_counter()
        if isinstance(satisfied, PairDecision):
            decision = satisfied
        elif one not in after or other not in after:
            decision = PairDecision(Answer.UNKNOWN, "the target does not return such an output")
        else:
            regions = (before[one], before[other]), (after[one], after[other])
            decision = PairQuestion(*regions, satisfied, limit).decide()
        # The decision is about free symbols; a person needs the sizes of all.
        sizes = None if decision.sizes is None else assumptions.complete(decision.sizes)
        spent = 1e3 * (time.perf_counter() - start)
        proofs.append(Proof(one, other, decision.answer, decision.how, spent, sizes))
    return proofs


def _with_sample(assumptions: Assumptions, limit: float) -> Assumptions | PairDecision:
    """The assumptions with sizes that satisfy them, or a decision that holds for every pair.

    Contradictory assumptions make every pair vacuous. If z3 cannot tell, every pair is unknown.
    """
    if assumptions.samples:
        return assumptions
    contradiction = PairDecision(Answer.VACUOUS, "no sizes in range satisfy the assumptions")
    if sympy.false in assumptions.conditions or assumptions.count == 0:
        return contradiction
    # Nothing is wanted but the assumptions themselves: any solution will do.
    search = SizeSearch(encoding_of(assumptions), [], assumptions, time.perf_counter() + limit)
    for sizes in search.solutions():
        return replace(assumptions, samples=(sizes,))
    if search.exhausted:
        return contradiction
    return PairDecision(
        Answer.UNKNOWN, f"whether any sizes satisfy the assumptions is unknown: {search.reason}"
    )


# --- target proofs --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Counterexample:
    """Input sizes for which two tensors share a byte that they do not share in eager.

    A run with real tensors showed it. `indices` is one index tuple into each tensor. `byte` counts
    from the start of the storage.
    """

    shapes: tuple[tuple[int, ...], ...]
    indices: tuple[tuple[int, ...], tuple[int, ...]]
    byte: int


@dataclass(frozen=True, slots=True)
class Covered:
    """How many sizes satisfy the assumptions, and how many are in range."""

    sizes: int
    of: int


@dataclass(frozen=True, slots=True)
class PairProof:
    """The answer for a pair of tensors, and a counterexample if it is refuted."""

    proof: Proof
    counterexample: Counterexample | None = None


@dataclass(frozen=True, slots=True)
class TargetProofs:
    """The answers for all pairs of one target, by the target's name.

    `shapes` are the input sizes as symbolic expressions. `assumptions` are Python conditions on the
    symbols. `covered` counts the sizes that satisfy them; None if there are no symbols, or too many
    sizes to count. `captured` are the names of the last inputs, if these are captured tensors.
    `note` says that eager does not define the function, if that is so.
    """

    target: str
    shapes: tuple[tuple[str, ...], ...]
    assumptions: tuple[str, ...]
    pairs: tuple[PairProof, ...]
    covered: Covered | None = None
    captured: tuple[str, ...] = ()
    note: str | None = None

    @property
    def counts(self) -> dict[Answer, int]:
        """The number of pairs by answer."""
        counted = Counter(pair.proof.answer for pair in self.pairs)
        return {answer: counted[answer] for answer in Answer}

    @property
    def refuted(self) -> bool:
        """True if a pair is refuted."""
        return self.counts[Answer.REFUTED] > 0

    def to_json(self) -> dict[str, object]:
        """All of it as JSON values."""
        return {
            "inputs": [list(shape) for shape in self.shapes],
            "captured by the function": list(self.captured),
            "note": self.note,
            "assumptions": list(self.assumptions),
            "sizes that satisfy them": None
            if self.covered is None
            else [self.covered.sizes, self.covered.of],
            "pairs": list(map(_pair_json, self.pairs)),
            "counts": {answer.value: count for answer, count in self.counts.items()},
        }


def _pair_json(pair: PairProof) -> dict[str, object]:
    proof, shown = pair.proof, pair.counterexample
    return {
        "one": proof.one,
        "other": proof.other,
        "answer": proof.answer.value,
        "how": proof.how,
        "milliseconds": round(proof.milliseconds, 3),
        "counterexample": None
        if shown is None
        else {"sizes of inputs": shown.shapes, "indices": shown.indices, "shared byte": shown.byte},
    }
