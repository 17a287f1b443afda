"""Oracle for all sizes: no input and output, and no two outputs, share a byte for any sizes for which they do not in eager.

For a pair there is a storage, sizes, strides and offsets as terms of the sizes, before (in eager)
and after (of a target). What decides it, from the cheapest on; the first that does is named in the
proof:

1. after, they lie in two storages; or they lie to each other as before, term by term;
2. some sizes, tried one by one: these refute, if any does; or two elements that, by z3, share a
   byte in eager at all sizes;
3. z3, with sizes and index tuples as unknowns, is asked for a byte that both hold: there is none;
4. z3 is asked for sizes for which the two lie to each other otherwise than before: there are none;
5. z3 again, now told what the products are; sizes that it names in vain are excluded, and it goes
   on;
6. all sizes in range, one by one, as far as time allows.

Products of unknowns (an index and a symbolic stride) are what makes such questions hard. In 3 and 4
a product is a number of its own of which z3 only knows what follows from its factors being
positive, negative, larger than those of another product, and so on (see `SizeQuestion.product`).
That leaves linear arithmetic, and allows more than there is: what has no model then is impossible
for sure, but a model means nothing.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

import sympy  # type: ignore[import-untyped]
import z3

from oracles import smt
from oracles.proofs.assumptions import Premises, Sizes
from oracles.proofs.size_terms import (
    RegionPair,
    SizeQuestion,
    Untranslatable,
    alike_in_dims,
    same_relation,
)
from oracles.proofs.symbolic import Layout, RegionsAt, SymbolicRegion
from oracles.smt import Disjoint, Session, Unknown
from programs.errors import Rejected
from programs.regions import overlap

MOST_ROUNDS = 64  # sizes that z3 may name in vain


class Answer(Enum):
    """What is known of a pair.

    Vacuous: the premises contradict each other, so that anything would be proved.
    """

    PROVED = "proved"
    REFUTED = "refuted"
    UNKNOWN = "unknown"
    VACUOUS = "vacuous"


@dataclass(frozen=True, slots=True)
class Proof:
    """The answer for a pair of tensors, and how it was found.

    A refutation comes with the sizes of all symbols.
    """

    one: str
    other: str
    answer: Answer
    how: str
    milliseconds: float
    sizes: Sizes | None = None


@dataclass(frozen=True, slots=True)
class _Decision:
    answer: Answer
    how: str
    sizes: Sizes | None = None


def pairs(names: Sequence[str]) -> list[tuple[str, str]]:
    """Every input with every output, and every two outputs, by name."""
    return [
        (one, other)
        for at, other in enumerate(names)
        for one in names[:at]
        if other.startswith("output")
    ]


def prove(before: Layout, after: Layout, premises: Premises, limit: float = 10.0) -> list[Proof]:
    """Decide all pairs; `limit` is the time for each, in seconds."""
    settled = _settled(premises, limit)
    before = {name: each.replaced(premises.equal) for name, each in before.items()}
    after = {name: each.replaced(premises.equal) for name, each in after.items()}
    proofs = []
    for one, other in pairs(list(before)):
        start = time.perf_counter()
        if isinstance(settled, _Decision):
            found = settled
        elif one not in after or other not in after:
            found = _Decision(Answer.UNKNOWN, "after, there is no such output")
        else:
            found = _Question(
                (before[one], before[other]), (after[one], after[other]), settled, limit
            ).decide()
        sizes = None if found.sizes is None else premises.whole(found.sizes)
        proofs.append(
            Proof(one, other, found.answer, found.how, 1e3 * (time.perf_counter() - start), sizes)
        )
    return proofs


def shared(
    one: SymbolicRegion, other: SymbolicRegion, premises: Premises, limit: float = 10.0
) -> Proof:
    """Decide whether two regions of one storage share no byte for any sizes: `prove` for two that were apart before."""
    start = time.perf_counter()
    apart = replace(one, storage=-1), replace(other, storage=-2)
    pair = one.replaced(premises.equal), other.replaced(premises.equal)
    settled = _settled(premises, limit)
    found = (
        settled
        if isinstance(settled, _Decision)
        else _Question(apart, pair, settled, limit).decide()
    )
    return Proof(
        "one", "other", found.answer, found.how, 1e3 * (time.perf_counter() - start), found.sizes
    )


def _settled(premises: Premises, limit: float) -> Premises | _Decision:
    """The premises with sizes that fulfil them, or the answer to all questions: nothing does, or nothing is known to."""
    if premises.samples:
        return premises
    contradict = _Decision(Answer.VACUOUS, "no sizes in range fulfil the premises")
    if sympy.false in premises.conditions or premises.count == 0:
        return contradict
    terms = _terms(premises)
    asked = _Asking(terms, [], premises, time.perf_counter() + limit)
    for sizes in asked.models():
        return replace(premises, samples=(sizes,))
    if asked.exhausted:
        return contradict
    return _Decision(
        Answer.UNKNOWN, f"it is not known whether any sizes fulfil the premises: {asked.reason}"
    )


# --- one pair -------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Question:
    """One pair, before and after. `reasons` is why steps that could have decided did not."""

    before: RegionPair
    after: RegionPair
    premises: Premises
    limit: float
    reasons: list[str] = field(default_factory=list)
    deadline: float = field(init=False)
    _terms: SizeQuestion | None = None  # of the question whether the two share a byte
    _wanted: list[Any] = field(default_factory=list)
    _regions: tuple[RegionsAt, ...] | None = None  # after, and before if they were in one storage

    def __post_init__(self) -> None:
        self.deadline = time.perf_counter() + self.limit

    def decide(self) -> _Decision:
        steps = (
            self._by_storage_or_terms,
            self._by_samples,
            self._by_eager,
            self._by_linear_facts,
            self._by_equal_relation,
            self._by_products,
            self._by_all_sizes,
        )
        for step in steps:
            if time.perf_counter() >= self.deadline:
                break
            try:
                found = step()
            except (Untranslatable, Rejected, ZeroDivisionError) as error:
                self.reasons.append(str(error))
                continue
            if found is not None:
                return found
        reasons = "".join(f"; {each}" for each in dict.fromkeys(self.reasons))
        return _Decision(Answer.UNKNOWN, f"not decided within {self.limit:g} s{reasons}")

    def _in(self, share: float) -> float:
        """The time at which that share of what is left will be spent."""
        now = time.perf_counter()
        return now + share * (self.deadline - now)

    @property
    def _together_before(self) -> bool:
        return self.before[0].storage == self.before[1].storage

    def _refutes(self, sizes: Sizes) -> bool:
        """Whether the two share a byte at these sizes, and did not before; exact."""
        if self._regions is None:
            pairs = (self.after, self.before) if self._together_before else (self.after,)
            self._regions = tuple(RegionsAt.of(tuple(self.premises.ranges), each) for each in pairs)
        after, *before = (overlap(*each.at(sizes)) for each in self._regions)
        return after and not any(before)

    def _by_storage_or_terms(self) -> _Decision | None:
        if self.after[0].storage != self.after[1].storage:
            return _Decision(Answer.PROVED, "two storages")
        if self._together_before and same_relation(self.before, self.after):
            return _Decision(Answer.PROVED, "as in eager")
        return None

    def _by_samples(self) -> _Decision | None:
        found = next(filter(self._refutes, self.premises.samples), None)
        return None if found is None else _Decision(Answer.REFUTED, "some sizes", found)

    def _by_eager(self) -> _Decision | None:
        """Proved if the elements that share a byte in eager at some sizes do so at all sizes."""
        if not self._together_before:
            return None
        for sizes in self.premises.samples[:1]:
            witness = smt.decide(
                self.before[0].at(sizes),
                self.before[1].at(sizes),
                max(1, int(1e3 * self.limit / 4)),
            )
            if isinstance(witness, smt.Witness):
                terms = _terms(self.premises)
                holds = terms.at_indices_share_a_byte(
                    self.before, (witness.indices_a, witness.indices_b)
                )
                return self._without_products(
                    "shared in eager, by z3", terms, [z3.Not(z3.And(*holds))]
                )
        return None

    def _by_linear_facts(self) -> _Decision | None:
        return self._without_products("z3", *self._shared_byte())

    def _shared_byte(self) -> tuple[SizeQuestion, list[Any]]:
        """The question whether the two share a byte after, for z3."""
        if self._terms is None:
            self._terms = _terms(self.premises)
            self._wanted = self._terms.share_a_byte(*self.after)
        return self._terms, self._wanted

    def _by_equal_relation(self) -> _Decision | None:
        if not self._together_before or not alike_in_dims(self.before, self.after):
            return None
        terms = _terms(self.premises)
        return self._without_products(
            "as in eager, by z3", terms, [terms.lie_otherwise(self.before, self.after)]
        )

    def _without_products(
        self, how: str, terms: SizeQuestion, wanted: Sequence[Any]
    ) -> _Decision | None:
        """Proved if what is wanted contradicts what is known of products; the sizes of a model are worth a try."""
        names = list(self.premises.ranges)
        answer = _ask(
            [*terms.facts, *wanted], [terms.name(str(each)) for each in names], self._in(0.25)
        )
        if isinstance(answer, Disjoint):
            return _Decision(Answer.PROVED, how)
        if isinstance(answer, Unknown):
            self.reasons.append(answer.reason)
            return None
        sizes = dict(zip(names, answer, strict=True))
        if self.premises.holds(sizes) and self._refutes(sizes):
            return _Decision(Answer.REFUTED, "z3", sizes)
        return None

    def _by_products(self) -> _Decision | None:
        asked = _Asking(*self._shared_byte(), self.premises, self._in(0.5))
        for sizes in asked.models():
            if self._refutes(sizes):
                return _Decision(Answer.REFUTED, "z3 with products", sizes)
        if asked.exhausted:
            return _Decision(Answer.PROVED, "z3 with products")
        self.reasons.append(asked.reason)
        return None

    def _by_all_sizes(self) -> _Decision | None:
        if self.premises.count is None:
            self.reasons.append("the sizes have no bound")
            return None
        count = 0
        for sizes in self.premises.every(self.deadline):
            if self._refutes(sizes):
                return _Decision(Answer.REFUTED, "all sizes", sizes)
            count += 1
        return (
            None
            if time.perf_counter() >= self.deadline
            else _Decision(Answer.PROVED, f"all {count} sizes")
        )


# --- z3 -------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Asking:
    """z3 asked for sizes again and again, with products.

    In the end it is `exhausted`, if there are no others, or `reason` says why it ended.
    """

    terms: SizeQuestion
    wanted: Sequence[Any]
    premises: Premises
    deadline: float
    exhausted: bool = False
    reason: str = ""

    def models(self) -> Iterator[Sizes]:
        """Sizes that fulfil all premises, also those that z3 is not told of, each once."""
        symbols = list(self.premises.ranges)
        names = [self.terms.name(str(each)) for each in symbols]
        conditions = [*self.terms.facts, *self.terms.equations, *self.wanted]
        for _ in range(MOST_ROUNDS):
            answer = _ask(conditions, names, self.deadline)
            if isinstance(answer, tuple):
                sizes = dict(zip(symbols, answer, strict=True))
                if self.premises.holds(sizes):
                    yield sizes
                others = [name != value for name, value in zip(names, answer, strict=True)]
                conditions.append(z3.Or(z3.BoolVal(False, self.terms.context), *others))
                continue
            self.exhausted = isinstance(answer, Disjoint)
            self.reason = answer.reason if isinstance(answer, Unknown) else ""
            return
        self.reason = f"z3 named {MOST_ROUNDS} sizes in vain"


def _terms(premises: Premises) -> SizeQuestion:
    """The premises for z3.

    One that cannot be translated is left out: then more is proved, and what is refuted is checked
    anyway.
    """
    terms = SizeQuestion(
        Session.here("sizes").context,
        {str(name): bounds for name, bounds in premises.ranges.items()},
    )
    for each in premises.conditions:
        with contextlib.suppress(Untranslatable):
            terms.facts.append(terms.condition(each))
    return terms


def _ask(
    conditions: Sequence[Any], names: Sequence[Any], deadline: float
) -> tuple[int, ...] | Disjoint | Unknown:
    left = max(1, int(1e3 * (deadline - time.perf_counter())))
    return Session.here("sizes").ask(conditions, names, left)
