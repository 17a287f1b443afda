"""`TargetProofs`: what is proved about the pairs of inputs and outputs of one target."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from aliasproof.oracles.proofs.all_sizes import Proof
from aliasproof.oracles.proofs.pair_decision import Answer


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
