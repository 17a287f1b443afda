"""One pair of tensors: whether they share a byte at some sizes at which they do not in eager.

The steps are listed in the docstring of `oracles/proofs/target_proofs.py`.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import z3

from aliasproof.ir.errors import Rejected
from aliasproof.ir.regions import overlap
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
from aliasproof.oracles.proofs.symbolic_inputs import CompiledPair, RegionPair
from aliasproof.oracles.smt import Disjoint, Unknown

# Shares of the remaining time, so that a step that fails leaves time to the next ones.
_SHARE_OF_LINEAR_FACTS = 0.25
_SHARE_OF_PRODUCTS = 0.5


class Answer(Enum):
    """What is known of a pair.

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

    `limit` is in seconds. `reasons` says why steps that could have decided did not.
    """

    before: RegionPair
    after: RegionPair
    assumptions: Assumptions
    limit: float
    reasons: list[str] = field(default_factory=list)
    deadline: float = field(init=False)
    # Made once, since two steps use them: the question whether the two share a byte after.
    _encoding: SizeEncoding | None = None
    _wanted: list[Any] = field(default_factory=list)
    _compiled: tuple[CompiledPair, ...] | None = None  # after, and before if in one storage

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
            self._compiled = tuple(CompiledPair.of(symbols, pair) for pair in pairs)
        after, *before = (overlap(*pair.at(sizes)) for pair in self._compiled)
        return after and not any(before)

    # --- the steps, cheapest first ----------------------------------------------------------------

    def _by_storage_or_expressions(self) -> PairDecision | None:
        # No z3: most pairs of a right target end here, in microseconds.
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
                shared = encoding.share_a_byte_at(
                    self.before, (witness.indices_a, witness.indices_b)
                )
                return self._by_linear_model(
                    "shared in eager, by z3", encoding, [z3.Not(z3.And(*shared))]
                )
        return None

    def _by_linear_facts(self) -> PairDecision | None:
        # The common case of a proof: Horner's form and linear facts keep rows and blocks disjoint.
        return self._by_linear_model("z3", *self._shared_byte())

    def _shared_byte(self) -> tuple[SizeEncoding, list[Any]]:
        """The question to z3 whether the two share a byte after."""
        if self._encoding is None:
            self._encoding = encoding_of(self.assumptions)
            self._wanted = self._encoding.share_a_byte(*self.after)
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

        A model proves nothing, since its products can be wrong. But its sizes are worth a try.
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
