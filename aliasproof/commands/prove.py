"""The command `prove`: for all sizes, the targets add no aliasing to a user's function."""

from __future__ import annotations

import re
from typing import Annotated

from aliasproof.commands.options import (
    File,
    FunctionName,
    InputsName,
    Json,
    above_zero,
    option,
    targets_option,
)
from aliasproof.ir.errors import UserError
from aliasproof.reports.console import print_notes, results, write_json
from aliasproof.targets.names import PROVED
from aliasproof.targets.user_names import grant
from aliasproof.user_code.given_path import GivenFile

NO_SYMBOL = (
    "no size became a symbol; only sizes of 2 or more do, in inputs that fill a storage of their"
    " own"
)
Targets = Annotated[list[str] | None, targets_option(PROVED)]
Sizes = Annotated[
    str,
    option("LOW:HIGH", "Range of each size of the inputs. LOW: has no upper bound."),
]
Limit = Annotated[
    float, above_zero("SECONDS", "Time limit per pair of tensors.", "seconds above 0")
]


def prove(
    file: File,
    target: Targets = None,
    sizes: Sizes = "1:64",
    limit: Limit = 10.0,
    function: FunctionName = None,
    inputs: InputsName = "inputs",
    json: Json = False,
) -> int:
    """Prove for all sizes that a target adds no aliasing, or find sizes for which it does.

    A target adds aliasing if an input and an output, or two outputs, share a byte that they do not
    share in eager.

    Exit status: 0 nothing refuted, 1 a pair is refuted, 2 bad input.
    """
    bounds, given = _bounds(sizes), GivenFile.of(file)
    names, path = given.names(function, inputs), given.path
    import torch

    from aliasproof.torch_parts import require

    require("proofs")
    from aliasproof.checks import proving
    from aliasproof.judge.trial import quiet_torch
    from aliasproof.reports.proof_table import has_symbols, print_proofs

    chosen = list(target or PROVED)
    grant(chosen)
    in_range = proving.Range(*bounds)
    quiet_torch()
    target_proofs = proving.prove_file(path, names, chosen, in_range, limit)
    print_notes([target_proofs[0].note] if target_proofs[0].note is not None else [])
    if not has_symbols(target_proofs[0]):
        print_notes([NO_SYMBOL])
    if json:
        by_target = {proofs.target: proofs.to_json() for proofs in target_proofs}
        head = {"file": str(path), "torch": torch.__version__, "sizes": list(bounds)}
        write_json(head | {"targets": by_target})
    else:
        print_proofs(results(), str(path), str(in_range), target_proofs)
    return int(any(proofs.refuted for proofs in target_proofs))


def _bounds(text: str) -> tuple[int, int | None]:
    """The bounds of `--sizes`, from `LOW:HIGH` or `LOW:`. Raises `UserError`."""
    match = re.fullmatch(r"(\d{1,9}):(\d{0,9})", text)
    if match is None or (match[2] and int(match[2]) < int(match[1])):
        raise UserError(
            f"--sizes {text}: give LOW:HIGH in whole numbers below a billion, LOW at most HIGH;"
            " LOW: has no upper bound"
        )
    return int(match[1]), int(match[2]) if match[2] else None
