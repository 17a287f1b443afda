"""Oracle *terms*: a target computes the same terms as eager, so that it is right for all numbers, not for those at hand.

Both run on tokens (`oracles.uninterpreted`), wrappers and epilogues included; then the storages of
the inputs and the outputs hold equal tokens, or something is different that some numbers would
show. A wrong element is seen also behind `x * 0` or `relu`, or among equal numbers. No tolerance is
needed.

It is a promise of its own, since a target that does arithmetic (`x * 2` for `x + x`) leaves other
terms and may be right.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree

from oracles.contract import Contract, Promise
from oracles.uninterpreted import UninterpretedMode
from oracles.value_hashes import Array, Names, combined, grown
from oracles.verdict import Report, Verdict, Violation, decided, not_applicable
from programs.trace import Trace


@dataclass(frozen=True, slots=True)
class ValueHashes:
    """The tokens that one run left.

    Of the storages that the inputs came with by byte, of inputs and outputs by element and byte.
    `concrete` names the first op that let numbers into the open (`item`, `nonzero`), so that the
    terms are those of these numbers. Outputs that are no tensors are None.
    """

    storages: tuple[Array, ...]
    inputs: tuple[Array, ...]
    outputs: tuple[Array | None, ...]
    dtypes: tuple[torch.dtype | None, ...]
    concrete: str | None
    names: Names | None


def run_uninterpreted(
    function: Callable[..., object], inputs: Sequence[torch.Tensor], *, named: bool = False
) -> ValueHashes:
    """Run a function on inputs, which it may mutate.

    If `named`, its terms can be spelled. Raises what it raises.
    """
    tokens = UninterpretedMode(inputs, Names() if named else None)
    with torch.no_grad(), np.errstate(over="ignore"), tokens:
        leaves = pytree.tree_leaves(function(*inputs))
    tensors = [each if isinstance(each, torch.Tensor) else None for each in leaves]
    return ValueHashes(
        tuple(tokens.of_inputs()),
        tuple(map(tokens.read, inputs)),
        tuple(None if each is None else tokens.read(each) for each in tensors),
        tuple(None if each is None else each.dtype for each in tensors),
        tokens.concrete,
        tokens.names,
    )


def judge(
    contract: Contract,
    eager: ValueHashes,
    target: ValueHashes,
    trace: Trace,
    spell: Callable[[], tuple[ValueHashes, ValueHashes]] | None = None,
) -> Report:
    """Compare the terms of two runs.

    `spell` does both again with names, so that the evidence can show them.
    """
    if not contract.promises(Promise.EQUIVALENCE, trace):
        return not_applicable("not promised")
    wrong = _differences(eager, target)
    if not wrong:
        concrete = eager.concrete or target.concrete
        reason = (
            ""
            if concrete is None
            else f"{concrete} lets numbers into the open: for such numbers only"
        )
        return Report(Verdict.HOLDS, reason=reason)
    named = spell() if spell is not None else (eager, target)
    return decided(
        [
            Violation(
                "equivalence", "wrong term", f"{place} {index}", _evidence(place, index, *named)
            )
            for place, index in wrong
        ]
    )


def _differences(eager: ValueHashes, target: ValueHashes) -> list[tuple[str, int]]:
    """Where terms differ: 'storage 0' or 'output 1', with the number.

    What has other sizes is left to *metadata*.
    """
    found = []
    for index in range(len(eager.storages)):
        one, other = _bytes(index, eager, target)
        if not np.array_equal(one, other):
            found.append(("storage", index))
    if not found:  # `set_` gives an input another storage
        pairs = enumerate(zip(eager.inputs, target.inputs, strict=True))
        found += [
            ("input", index)
            for index, (one, other) in pairs
            if one.shape == other.shape and (one != other).any()
        ]
    for index, (expected, actual) in enumerate(zip(eager.outputs, target.outputs, strict=False)):
        if expected is None or actual is None or expected.shape != actual.shape:
            continue
        if eager.dtypes[index] == target.dtypes[index] and not np.array_equal(expected, actual):
            found.append(("output", index))
    return found


def _bytes(index: int, *runs: ValueHashes) -> tuple[Array, ...]:
    """The tokens of a storage in each run, as many as in the run where it grew most: kernels may grow one to work in it."""
    found = [each.storages[index] for each in runs]
    most = max(each.size for each in found)
    return tuple(grown(each, most) for each in found)


def _evidence(place: str, index: int, eager: ValueHashes, target: ValueHashes) -> dict[str, Any]:
    """The first element (or byte of a storage) with another term, and both terms if they have names."""
    if place == "storage":
        one, other = _bytes(index, eager, target)
        wrong = np.flatnonzero(one != other)
        return {"first wrong byte": int(wrong[0]), "wrong bytes": wrong.size}
    expected, actual = (
        (each.inputs if place == "input" else each.outputs)[index] for each in (eager, target)
    )
    assert expected is not None
    assert actual is not None
    differ = (expected != actual).any(-1)
    at = tuple(int(each) for each in np.argwhere(differ)[0])
    found: dict[str, Any] = {
        "first wrong index": list(at),
        "wrong elements": int(differ.sum()),
        "elements": differ.size,
    }
    if eager.names is not None and target.names is not None:
        found["eager"] = eager.names.spell(int(combined(expected[at])))
        found["target"] = target.names.spell(int(combined(actual[at])))
    return found
