"""The outcome of `prove`: per target, the assumptions, a table of pairs, and counterexamples."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import torch
from rich.console import Console
from rich.text import Text

from aliasproof.oracles.proofs.target_proofs import Answer, Proof, TargetProofs
from aliasproof.reports.console import print_heading, print_lines, print_table, table_of

STYLES = {
    Answer.PROVED: "green",
    Answer.REFUTED: "bold red",
    Answer.UNKNOWN: "yellow",
    Answer.VACUOUS: "dim",
}


def print_proofs(
    console: Console, name: str, sizes: str, all_proofs: Sequence[TargetProofs]
) -> None:
    """Print the inputs with their symbolic sizes, then the pairs of each target."""
    print_lines(console, f"{name} in torch {torch.__version__}", "bold")
    inputs = ", ".join(_inputs(all_proofs[0])) or "no inputs"
    print_lines(console, f"{inputs}; sizes {sizes}" if has_symbols(all_proofs[0]) else inputs)
    for proofs in all_proofs:
        _print_target(console, proofs)


def has_symbols(proofs: TargetProofs) -> bool:
    """True if at least one size of the inputs is a symbol."""
    # Other sizes are numbers, or expressions of these symbols.
    return any(re.fullmatch(r"n\d+", size) for shape in proofs.shapes for size in shape)


def _inputs(proofs: TargetProofs) -> Iterator[str]:
    """The shape of each input, and the name of each captured tensor."""
    given = len(proofs.shapes) - len(proofs.captured)
    for index, shape in enumerate(proofs.shapes):
        name = f" ({proofs.captured[index - given]})" if index >= given else ""
        yield f"input {index}{name} is [{', '.join(shape)}]"


def _print_target(console: Console, proofs: TargetProofs) -> None:
    print_heading(console, proofs.target)
    if proofs.assumptions:
        print_lines(console, f"assumptions: {', '.join(proofs.assumptions)}", "dim")
    if proofs.covered is not None:
        covered = f"{proofs.covered.sizes} of {proofs.covered.of} sizes in range satisfy them"
        print_lines(console, covered, "dim")
    _print_pairs(console, proofs.pairs)
    for line in _counterexamples(proofs):
        print_lines(console, line, "bold red")
    counts = (f"{count} {answer.value}" for answer, count in proofs.counts.items())
    print_lines(console, ", ".join(counts), "bold")


def _print_pairs(console: Console, proofs: Sequence[Proof]) -> None:
    """Print a row per pair, or one line if all pairs are undecided for the same reason."""
    # Such a reason concerns the whole target: it cannot be built, or no sizes are in range.
    answers = {(proof.answer, proof.how) for proof in proofs}
    if len(answers) == 1 and next(iter(answers))[0] in (Answer.UNKNOWN, Answer.VACUOUS):
        ((answer, how),) = answers
        print_lines(console, f"all pairs {answer.value}: {how}", STYLES[answer])
        return
    rows = (
        (
            f"{proof.one}, {proof.other}",
            Text(proof.answer.value, STYLES[proof.answer]),
            proof.how,
            f"{proof.milliseconds:.1f}",
        )
        for proof in proofs
    )
    columns = ("pair", "answer", "how", "ms")
    print_table(console, table_of(columns, rows, texts=3, fold=True))


def _counterexamples(proofs: TargetProofs) -> Iterator[str]:
    for proof in proofs.pairs:
        shown = proof.counterexample
        if shown is not None:
            shapes = ", ".join(
                f"input {index} of size {list(shape)}" for index, shape in enumerate(shown.shapes)
            )
            # All that is needed to check the counterexample by hand.
            one, other = map(list, shown.indices)
            yield (
                f"with {shapes}: {proof.one} at {one} and {proof.other} at {other} both contain"
                f" byte {shown.byte} of one storage; in eager they share no byte"
            )
