"""All lemmas about overlap predicates: the verdict of z3, its time, and what refutations break.

How to read a row: one lemma. *ranges* is what a proof covers. *vacuous* is not a fault of the
predicate: the branch is dead. *ms* is the time for all cases of a lemma. A case takes two
questions: can the assumptions hold, and is there a counterexample? A refuted case also takes a
search for a small counterexample.

Each refutation is compared with what is installed. Does the real predicate take the step on such
tensors? Do the views share bytes (`aliasproof.programs.regions`)? Which targets go wrong on a
program made of them (`aliasproof check`)?
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from aliasproof.checking import check
from aliasproof.lemmas.lemma import Lemma, LemmaProof, Refuted, prove_lemma
from aliasproof.lemmas.lemma_programs import tensors
from aliasproof.lemmas.region_lemmas import REGION_LEMMAS
from aliasproof.lemmas.torch_lemmas import TORCH_LEMMAS
from aliasproof.programs.regions import overlap, overlaps_itself
from benchmarks.tables import Table

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
    """A counterexample as views, and what it shows.

    Does torch take the step (`taken`), do the views share bytes (`shared`), and which targets break
    a promise (`violated`)?
    """

    name: str
    views: str
    taken: bool
    shared: bool
    violated: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LemmaFigures:
    """All verdicts, and the refutations among them."""

    rows: Sequence[LemmaRow]
    refutations: Sequence[Refutation]

    def tables(self) -> list[Table]:
        counts = Counter(row.verdict for row in self.rows)
        total = sum(row.milliseconds for row in self.rows) / 1e3
        verdicts = ", ".join(
            f"{counts[verdict]} {verdict}"
            for verdict in ("proved", "refuted", "unknown", "vacuous")
        )
        return [
            Table(
                "lemma_table: all lemmas",
                ("lemma", "verdict", "ms", "step of", "ranges"),
                [
                    (row.name, row.verdict, f"{row.milliseconds:.0f}", row.source, row.ranges)
                    for row in self.rows
                ],
                [f"{verdicts}; {total:.1f} s."],
            ),
            Table(
                "lemma_table: refutations",
                ("refuted", "torch takes the step", "views share bytes", "targets that go wrong"),
                [
                    (
                        found.name,
                        _yes_no(found.taken),
                        _yes_no(found.shared),
                        ", ".join(found.violated) or "none",
                    )
                    for found in self.refutations
                ],
                [f"{found.name}: {found.views}" for found in self.refutations],
            ),
        ]


def _yes_no(truth: bool) -> str:
    return "yes" if truth else "no"


def measure(
    lemmas: Sequence[Lemma] = TORCH_LEMMAS + REGION_LEMMAS, limit_ms: int = 10_000
) -> LemmaFigures:
    """Prove all, and turn refutations into programs."""
    proofs = [prove_lemma(lemma, limit_ms) for lemma in lemmas]
    rows = [
        LemmaRow(
            proof.lemma.name,
            proof.lemma.source,
            proof.lemma.claim,
            proof.lemma.ranges,
            proof.verdict,
            proof.milliseconds,
        )
        for proof in proofs
    ]
    return LemmaFigures(
        rows,
        [_refutation(proof, proof.answer) for proof in proofs if isinstance(proof.answer, Refuted)],
    )


def _refutation(proof: LemmaProof, answer: Refuted) -> Refutation:
    lemma, views = proof.lemma, answer.views
    regions = [view.region() for view in views]
    # One view: it overlaps itself. Two: they overlap each other.
    shared = (
        overlaps_itself(regions[0])
        if len(regions) == 1
        else bool(regions) and overlap(regions[0], regions[1])
    )
    # A refuted restatement is a bug of torch only if the installed predicate takes the step, too.
    taken = lemma.asks is not None and lemma.asks(tensors(views))
    results = check(lemma.program(views), targets=TARGETS).results if lemma.program else {}
    violated = tuple(name for name, result in results.items() if result.violated)
    return Refutation(lemma.name, answer.describe(), taken, shared, violated)
