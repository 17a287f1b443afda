"""All lemmas about overlap predicates: what z3 says of each, after how long, and what a refutation does to programs.

How to read a row: one lemma; its ranges are what a proof covers. *vacuous* is no fault of a
predicate: the branch is dead. Milliseconds are for all cases of a lemma and hold two questions
each: can the premises hold, is there a counterexample; of a refuted one also the search for a small
counterexample.

Each refutation is held against what is installed: does the real predicate take the step on such
tensors, do the views share bytes (`programs.regions`), and which targets go wrong on the program
that is made of it (`aliasproof check`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from aliasproof.checking import check
from benchmarks.tables import Table
from oracles.proofs.lemmas import Lemma, LemmaProof, Refuted, prove, tensors
from oracles.proofs.region_lemmas import REGION_LEMMAS
from oracles.proofs.torch_lemmas import TORCH_LEMMAS
from programs.regions import overlap, overlaps_itself

TARGETS = ("aot", "aot-epilogue", "fx-reinplace", "reference")


@dataclass(frozen=True, slots=True)
class LemmaRow:
    """One lemma and its verdict."""

    name: str
    source: str
    claim: str
    ranges: str
    verdict: str
    milliseconds: float


@dataclass(frozen=True, slots=True)
class Refutation:
    """A counterexample in views: whether torch takes the step, whether bytes are shared, which targets break a promise."""

    name: str
    views: str
    taken: bool
    shared: bool
    violated: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Lemmas:
    """All verdicts, and the refutations among them."""

    rows: Sequence[LemmaRow]
    refutations: Sequence[Refutation]

    def tables(self) -> list[Table]:
        counts = Counter(each.verdict for each in self.rows)
        total = sum(each.milliseconds for each in self.rows) / 1e3
        verdicts = ", ".join(
            f"{counts[each]} {each}" for each in ("proved", "refuted", "unknown", "vacuous")
        )
        return [
            Table(
                "lemmas",
                ("lemma", "verdict", "ms", "step of", "ranges"),
                [
                    (each.name, each.verdict, f"{each.milliseconds:.0f}", each.source, each.ranges)
                    for each in self.rows
                ],
                [f"{verdicts}; {total:.1f} s."],
            ),
            Table(
                "refutations",
                ("refuted", "torch takes the step", "bytes are shared", "targets that go wrong"),
                [
                    (
                        each.name,
                        _yes_no(each.taken),
                        _yes_no(each.shared),
                        ", ".join(each.violated) or "none",
                    )
                    for each in self.refutations
                ],
                [f"{each.name}: {each.views}" for each in self.refutations],
            ),
        ]


def _yes_no(truth: bool) -> str:
    return "yes" if truth else "no"


def measure(
    lemmas: Sequence[Lemma] = TORCH_LEMMAS + REGION_LEMMAS, limit_ms: int = 10_000
) -> Lemmas:
    """Prove all, and turn refutations into programs."""
    proofs = [prove(each, limit_ms) for each in lemmas]
    rows = [
        LemmaRow(
            each.lemma.name,
            each.lemma.source,
            each.lemma.claim,
            each.lemma.ranges,
            each.verdict,
            each.milliseconds,
        )
        for each in proofs
    ]
    return Lemmas(
        rows,
        [_refutation(each, each.answer) for each in proofs if isinstance(each.answer, Refuted)],
    )


def _refutation(proof: LemmaProof, answer: Refuted) -> Refutation:
    lemma, views = proof.lemma, answer.views
    regions = [each.region() for each in views]
    shared = (
        overlaps_itself(regions[0])
        if len(regions) == 1
        else bool(regions) and overlap(regions[0], regions[1])
    )
    taken = lemma.asks is not None and lemma.asks(tensors(views))
    results = check(lemma.program(views), targets=TARGETS).results if lemma.program else {}
    violated = tuple(name for name, result in results.items() if result.violated)
    return Refutation(lemma.name, answer.describe(), taken, shared, violated)
