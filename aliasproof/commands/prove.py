"""The command `prove`: for all sizes, the targets add no aliasing to a user's function."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path

import torch

from aliasproof.oracles.proofs.target_proofs import TargetProofs
from aliasproof.programs.errors import UserError
from aliasproof.programs.program import Program
from aliasproof.proving import DEFAULT_TARGETS, Range, prove_function
from aliasproof.reports.console import print_notes, results, write_json
from aliasproof.reports.proof_table import has_symbols, print_proofs
from aliasproof.targets.registry import target as target_named
from aliasproof.targets.user_names import grant
from aliasproof.trials.worker import quiet_torch
from aliasproof.user_code import user_file
from aliasproof.user_code.user_file import FileNames, UserFunction

NO_SYMBOL = (
    "no size became a symbol; only sizes of 2 or more do, in inputs that fill a storage of their"
    " own"
)


def prove_file(
    path: Path,
    targets: Sequence[str] | None,
    sizes: str,
    limit: float,
    names: FileNames,
    *,
    as_json: bool,
) -> bool:
    """Prove the pairs of the function in a file, and print them. True if one is refuted."""
    chosen = list(targets or DEFAULT_TARGETS)
    grant(chosen)
    for name in chosen:  # before the user's file runs, which can take long
        target_named(name)
    in_range = size_range(sizes)
    if not 0 < limit < math.inf:
        raise UserError(f"--limit {limit:g}: give seconds above 0")

    def action(given: UserFunction | Program) -> list[TargetProofs]:
        if isinstance(given, Program):
            return prove_function(given, targets=chosen, sizes=in_range, limit=limit)
        return prove_function(given.function, given.inputs, chosen, in_range, limit)

    quiet_torch()
    found = user_file.apply_to(path, names, action)
    print_notes([found[0].note] if found[0].note is not None else [])
    if not has_symbols(found[0]):
        print_notes([NO_SYMBOL])
    if as_json:
        by_target = {proofs.target: proofs.to_json() for proofs in found}
        bounds = [in_range.low, in_range.high]
        head = {"file": str(path), "torch": torch.__version__, "sizes": bounds}
        write_json(head | {"targets": by_target})
    else:
        print_proofs(results(), str(path), str(in_range), found)
    return any(proofs.refuted for proofs in found)


def size_range(text: str) -> Range:
    """The range of `--sizes`, from `LOW:HIGH` or `LOW:`. Raises `UserError`."""
    found = re.fullmatch(r"(\d{1,9}):(\d{0,9})", text)
    if found is None or (found[2] and int(found[2]) < int(found[1])):
        raise UserError(
            f"--sizes {text}: give LOW:HIGH in whole numbers below a billion, LOW at most HIGH;"
            " LOW: has no upper bound"
        )
    return Range(int(found[1]), int(found[2]) if found[2] else None)
