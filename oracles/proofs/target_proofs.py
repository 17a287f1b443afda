"""`TargetProofs`: proofs about the pairs of inputs and outputs of one target."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

import sympy  # type: ignore[import-untyped]
import z3

from aliasproof.ir.errors import Rejected
from aliasproof.ir.regions import Region, overlap
from aliasproof.oracles import smt
from aliasproof.oracles.proofs.assumptions import Assumptions
from aliasproof.oracles.proofs.size_encoding import (
    SizeEncoding,
    SizeSearch,
    Untranslatable,
    ask,
    encoding_of,
    same_dims_and_itemsizes,
    same_relative_layout,
)
from aliasproof.oracles.proofs.size_expressions import SizeValues
from aliasproof.oracles.proofs.symbolic_inputs import RegionPair, SymbolicLayout, compiled_pair
from aliasproof.oracles.smt import Disjoint, Unknown

# --- one pair -------------------------------------------------------------------------------------
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
#    a byte in eager at all sizes, so the target cannot add an alias.
# 3. z3 proves that no byte is in both, with sizes and indices as unknowns.
# 4. z3 proves that the relative layout is the same as before at all sizes.
# 5. z3 repeats 3 with exact products. Sizes that it proposes and that do not refute are excluded,
#    and the search continues.
# 6. All sizes in range are tried one by one, as far as time allows.
#
# Products of unknowns (an index times a symbolic stride) make such questions hard. In 3 and 4 a
# product is an unknown of its own. z3 only knows linear facts about it: its sign, its range, how
# it compares to other products (see `SizeEncoding.product`). This leaves linear arithmetic, and
# more models than the real question has. So if z3 finds no model, there is none; but a model
# proves nothing.


# Shares of the remaining time, so that a step that fails leaves time to the next ones.
_SHARE_OF_LINEAR_FACTS = 0.25
_SHARE_OF_PRODUCTS = 0.5


class Answer(Enum):
    """The result for a pair.

    Vacuous: the assumptions contradict each other, so anything could be proved.
    """

    PROVED = "proved"
    REFUTED = "refuted"
    UNKNOWN = "unknown"
    VACUOUS = "vacuous"


@dataclass(frozen=True, slots=True)
class PairDecision:
    """An answer, the step that found it or the reason why none did, and the sizes that refute."""

    answer: Answer
    how: str
    sizes: SizeValues | None = None


@dataclass(slots=True)
class PairQuestion:
    """One pair of regions, before (in eager) and after (of the target).

    `limit` is in seconds. `reasons` says why steps that could have decided the pair did not.
    """

    before: RegionPair
    after: RegionPair
    assumptions: Assumptions
    limit: float
    reasons: list[str] = field(default_factory=list)
    deadline: float = field(init=False)
    # Made once, since two steps use them: the question whether the two share a byte in the target.
    _encoding: SizeEncoding | None = None
    _wanted: list[Any] = field(default_factory=list)
    # The regions at sizes: after; before, too, if in one storage.
    _compiled: tuple[Callable[[SizeValues], tuple[Region, Region]], ...] | None = None

    def __post_init__(self) -> None:
        self.deadline = time.perf_counter() + self.limit

    def decide(self) -> PairDecision:
        """Take the steps in order until one decides or the time is up."""
        steps = (
            self._by_storage_or_expressions,
            self._by_samples,
            self._by_overlap_in_eager,
            self._by_linear_facts,
            self._by_relative_layout,
            self._by_products,
            self._by_enumeration,
        )
        for step in steps:
            if time.perf_counter() >= self.deadline:
                break
            try:
                decision = step()
            except (Untranslatable, Rejected, ZeroDivisionError) as error:
                # Another step may still decide: each of them uses other parts of the expressions.
                self.reasons.append(str(error))
                continue
            if decision is not None:
                return decision
        reasons = "".join(f"; {reason}" for reason in dict.fromkeys(self.reasons))
        return PairDecision(Answer.UNKNOWN, f"not decided within {self.limit:g} s{reasons}")

    def _deadline_after(self, share: float) -> float:
        """The time at which this share of the remaining time will be spent."""
        now = time.perf_counter()
        return now + share * (self.deadline - now)

    @property
    def _one_storage_before(self) -> bool:
        return self.before[0].storage == self.before[1].storage

    def _refuted_by(self, sizes: SizeValues) -> bool:
        """Whether the two share a byte at these sizes and did not before; exact."""
        if self._compiled is None:
            pairs = (self.after, self.before) if self._one_storage_before else (self.after,)
            symbols = tuple(self.assumptions.ranges)
            self._compiled = tuple(compiled_pair(symbols, pair) for pair in pairs)
        after, *before = (overlap(*regions(sizes)) for regions in self._compiled)
        return after and not any(before)

    # --- the steps, cheapest first ----------------------------------------------------------------

    def _by_storage_or_expressions(self) -> PairDecision | None:
        # No z3: most pairs of a correct target end here, in microseconds.
        if self.after[0].storage != self.after[1].storage:
            return PairDecision(Answer.PROVED, "different storages")
        if self._one_storage_before and same_relative_layout(self.before, self.after):
            return PairDecision(Answer.PROVED, "as in eager")
        return None

    def _by_samples(self) -> PairDecision | None:
        # Most wrong targets are wrong at many sizes, so a few samples refute them without z3.
        sample = next(filter(self._refuted_by, self.assumptions.samples), None)
        return None if sample is None else PairDecision(Answer.REFUTED, "sampled sizes", sample)

    def _by_overlap_in_eager(self) -> PairDecision | None:
        """Proved if the elements that share a byte in eager at some sizes do so at all sizes."""
        if not self._one_storage_before:
            return None
        # The witness at one sample names two elements. If these share a byte at all sizes, the pair
        # aliases in eager at all sizes, and the target cannot add an alias.
        for sizes in self.assumptions.samples[:1]:
            one, other = (region.at(sizes) for region in self.before)
            witness = smt.decide(one, other, max(1, int(1e3 * self.limit / 4)))
            if isinstance(witness, smt.Witness):
                encoding = encoding_of(self.assumptions)
                indices = witness.indices_a, witness.indices_b
                shared = encoding.share_a_byte(self.before, indices)
                return self._by_linear_model(
                    "shared in eager, by z3", encoding, [z3.Not(z3.And(*shared))]
                )
        return None

    def _by_linear_facts(self) -> PairDecision | None:
        # The common case of a proof: Horner's form and linear facts keep rows and blocks disjoint.
        return self._by_linear_model("z3", *self._shared_byte())

    def _shared_byte(self) -> tuple[SizeEncoding, list[Any]]:
        """The question to z3 whether the two share a byte in the target."""
        if self._encoding is None:
            self._encoding = encoding_of(self.assumptions)
            self._wanted = self._encoding.share_a_byte(self.after)
        return self._encoding, self._wanted

    def _by_relative_layout(self) -> PairDecision | None:
        if not self._one_storage_before or not same_dims_and_itemsizes(self.before, self.after):
            return None
        # The same layout, written with other expressions: z3 compares them one by one.
        encoding = encoding_of(self.assumptions)
        differ = encoding.layouts_differ(self.before, self.after)
        return self._by_linear_model("as in eager, by z3", encoding, [differ])

    def _by_linear_model(
        self, how: str, encoding: SizeEncoding, wanted: Sequence[Any]
    ) -> PairDecision | None:
        """Proved if the wanted conditions contradict the linear facts.

        A model proves nothing, since its products can be wrong. But its sizes may refute the pair.
        """
        symbols = list(self.assumptions.ranges)
        unknowns = [encoding.unknown(str(symbol)) for symbol in symbols]
        deadline = self._deadline_after(_SHARE_OF_LINEAR_FACTS)
        answer = ask([*encoding.facts, *wanted], unknowns, deadline)
        if isinstance(answer, Disjoint):
            return PairDecision(Answer.PROVED, how)
        if isinstance(answer, Unknown):
            self.reasons.append(answer.reason)
            return None
        sizes = dict(zip(symbols, answer, strict=True))
        if self.assumptions.allow(sizes) and self._refuted_by(sizes):
            return PairDecision(Answer.REFUTED, "z3", sizes)
        return None

    def _by_products(self) -> PairDecision | None:
        # Nonlinear, so z3 may not finish; but each model has real sizes, which may refute.
        encoding, wanted = self._shared_byte()
        deadline = self._deadline_after(_SHARE_OF_PRODUCTS)
        search = SizeSearch(encoding, wanted, self.assumptions, deadline)
        for sizes in search.solutions():
            if self._refuted_by(sizes):
                return PairDecision(Answer.REFUTED, "z3 with products", sizes)
        if search.exhausted:
            return PairDecision(Answer.PROVED, "z3 with products")
        self.reasons.append(search.reason)
        return None

    def _by_enumeration(self) -> PairDecision | None:
        if self.assumptions.count is None:
            self.reasons.append("the sizes have no upper bound")
            return None
        # The last resort; it decides if the range is small enough for the time.
        count = 0
        for sizes in self.assumptions.enumerate_sizes(self.deadline):
            if self._refuted_by(sizes):
                return PairDecision(Answer.REFUTED, "all sizes", sizes)
            count += 1
        if time.perf_counter() >= self.deadline:  # the enumeration can have stopped early
            return None
        return PairDecision(Answer.PROVED, f"all {count} sizes")


# --- all pairs ------------------------------------------------------------------------------------


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
class Proof:
    """The answer for a pair of tensors, and how it was found.

    A refutation has the sizes of all symbols, and a counterexample once a real run showed it.
    """

    one: str  # names, such as "input 0"
    other: str
    answer: Answer
    how: str  # the step that decided, or the reason of an unknown
    milliseconds: float
    sizes: SizeValues | None = None
    counterexample: Counterexample | None = None


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
    # Whether the assumptions can hold does not depend on the pair, so z3 decides it once.
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
    # Only the assumptions have to hold: any solution is enough.
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
class Covered:
    """How many sizes satisfy the assumptions, and how many are in range."""

    sizes: int
    of: int


@dataclass(frozen=True, slots=True)
class TargetProofs:
    """The answers for all pairs of one target, by the target's name.

    `shapes` are the input sizes as symbolic expressions. `assumptions` are Python conditions on the
    symbols. `covered` counts the sizes that satisfy them; None if there are no symbols, or too many
    sizes to count. `captured` are the names of the last inputs, if these are captured tensors.
    `note` says that the function is undefined in eager, if it is.
    """

    target: str
    shapes: tuple[tuple[str, ...], ...]
    assumptions: tuple[str, ...]
    pairs: tuple[Proof, ...]
    covered: Covered | None = None
    captured: tuple[str, ...] = ()
    note: str | None = None

    @property
    def counts(self) -> dict[Answer, int]:
        """The number of pairs by answer."""
        counted = Counter(proof.answer for proof in self.pairs)
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


def _pair_json(proof: Proof) -> dict[str, object]:
    shown = proof.counterexample
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
