"""Oracle *equivalence*: the target computes what eager computes, for all values of the inputs.

Both run on value hashes (`aliasproof.oracles.uninterpreted`), wrappers and epilogues included. Then
the storages of the inputs and the outputs must have equal hashes. If they do not, some values of
the inputs show a difference. So the oracle finds a wrong element also behind `x * 0` or `relu`, and
among equal values. It needs no tolerance.

A value that depends on no input is left to *values*: one run decides it for all inputs. The two
runs may have computed such a value differently, since compilers fold constants. A second pair of
runs, in which the inputs start with other hashes, shows which values depend on no input.

This is a promise of its own: a target that does other arithmetic (`x * 2` for `x + x`) leaves other
hashes, and may be correct.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np
import torch
from torch.utils import _pytree as pytree

from aliasproof.eager.trace import Trace
from aliasproof.oracles.contract import Contract, Difference, Promise
from aliasproof.oracles.oracle import Needs, Oracle
from aliasproof.oracles.stage_run import Location, location_of
from aliasproof.oracles.uninterpreted import UninterpretedMode
from aliasproof.oracles.value_hashes import Array, SymbolicValues, element_hashes, extend_hashes
from aliasproof.oracles.verdict import Report, Verdict, Violation

KIND = "wrong symbolic value"


@dataclass(frozen=True, slots=True)
class ValueHashes:
    """The value hashes that one run left.

    `storages` are per byte of the storages that the inputs came with; `inputs` and `outputs` have
    one more dim than the tensors, for the bytes of an element. `data_dependent_op` names the first
    op that read tensor data (`item`, `nonzero`), if one did: then the hashes hold for these inputs
    only. Outputs that are not tensors are None. `computing` counts the calls of ops that compute.
    `composites` are the composite ops that computed; None if the run did not record them. `views`
    are the locations of the inputs as they were passed, whose storages are numbered in the order of
    the inputs. `seed` decides the hashes of the inputs.
    """

    storages: tuple[Array, ...]
    inputs: tuple[Array, ...]
    outputs: tuple[Array | None, ...]
    dtypes: tuple[torch.dtype | None, ...]
    data_dependent_op: str | None
    symbols: SymbolicValues | None
    computing: Counter[str] = field(default_factory=Counter)
    composites: tuple[str, ...] | None = None
    views: tuple[Location, ...] = ()
    seed: int = 0


def run_uninterpreted(
    function: Callable[..., object],
    inputs: Sequence[torch.Tensor],
    *,
    named: bool = False,
    composites: bool = False,
    seed: int = 0,
) -> ValueHashes:
    """Run a function on inputs, which it may mutate. Re-raises the function's errors.

    Runs with the same `seed` can be compared. With `named`, the symbolic values behind the hashes
    are kept, which takes time and memory. With `composites`, the function runs in inference mode,
    where a dispatch mode sees composite ops.
    """
    mode = UninterpretedMode(inputs, SymbolicValues() if named else None, seed)
    order: dict[int, int] = {}
    numbers = [order.setdefault(it.untyped_storage()._cdata, len(order)) for it in inputs]
    # Now, since the run may change their metadata.
    views = tuple(map(location_of, inputs, numbers))
    # Hashes are computed modulo 2^64.
    # Dynamo skips functions that it meets below a dispatch mode, also in later runs.
    eager = torch.compiler.set_stance("force_eager")
    inference = torch.inference_mode() if composites else torch.no_grad()
    with inference, np.errstate(over="ignore"), eager, mode:
        leaves = pytree.tree_leaves(function(*inputs))
    # Python numbers have no hashes. *values* compares them.
    tensors = [leaf if isinstance(leaf, torch.Tensor) else None for leaf in leaves]
    memory = mode.memory
    return ValueHashes(
        tuple(memory.of_inputs()),
        tuple(map(memory.read, inputs)),
        tuple(None if tensor is None else memory.read(tensor) for tensor in tensors),
        tuple(None if tensor is None else tensor.dtype for tensor in tensors),
        mode.data_dependent_op,
        memory.symbols,
        mode.computing,
        tuple(mode.composites) if composites else None,
        views,
        seed,
    )


def judge(
    contract: Contract,
    eager: ValueHashes,
    target: ValueHashes,
    trace: Trace,
    spelled: Callable[[], tuple[ValueHashes, ValueHashes]] | None = None,
) -> Report:
    """Compare the value hashes of two runs.

    `spelled` repeats both runs with another seed, and keeps the symbolic values, so that the
    evidence shows them.
    """
    wrong = differences(eager, target)
    if not wrong:
        return _holds(eager, target)
    waiver = contract.waiver(Promise.EQUIVALENCE, trace)
    if waiver is not None and contract.outside(trace) is None:
        # Where the target calls only eager's operators, no other arithmetic explains it.
        called = ", ".join(sorted(target.computing - eager.computing))
        if called:
            # Other arithmetic may be correct, so it is no violation, and not documented either.
            place = _violation(*wrong[0], eager, target).place
            reason = (
                f"not shown equal: {place} is computed by other operators ({called});"
                f" {waiver.reason}"
            )
            return Report(Verdict.UNKNOWN, reason=reason)
        others = (other for other in contract.waivers if other.promise is not Promise.EQUIVALENCE)
        contract = replace(contract, waivers=tuple(others))
    runs = eager, target
    # Most runs are equal, so symbolic values are computed only after a difference.
    if spelled is not None:
        again = spelled()
        target, shown = _with_constants_of_eager((eager, again[0]), (target, again[1]))
        runs, wrong = (again[0], shown), differences(eager, target)
        if not wrong:
            return _holds(eager, target)
    violations = (_violation(what, index, *runs) for what, index in wrong)
    return contract.report(
        [Difference(Promise.EQUIVALENCE, violation) for violation in violations], trace
    )


def _holds(eager: ValueHashes, target: ValueHashes) -> Report:
    op = eager.data_dependent_op or target.data_dependent_op
    limit = f"{op} reads tensor data, so the verdict holds for these inputs only"
    return Report(Verdict.HOLDS, reason="" if op is None else limit)


def _with_constants_of_eager(
    eager: tuple[ValueHashes, ValueHashes], target: tuple[ValueHashes, ValueHashes]
) -> tuple[ValueHashes, ValueHashes]:
    """Two runs of the target, with eager's hash for each value that depends on no input.

    Each side runs with two seeds; a value that depends on no input has one hash in both runs.
    """
    runs = (*eager, *target)
    storages = [_constants_of(_same_size(index, *runs)) for index in range(len(eager[0].storages))]
    inputs = [_constants_of(each) for each in zip(*(run.inputs for run in runs), strict=True)]
    outputs = [_constants_of(each) for each in zip(*(run.outputs for run in runs), strict=False)]
    first, second = (
        replace(
            run,
            storages=tuple(pair[number] for pair in storages),
            inputs=tuple(pair[number] for pair in inputs),
            outputs=tuple(pair[number] for pair in outputs),
        )
        for number, run in enumerate(target)
    )
    return first, second


def _constants_of(hashes: Sequence[Any]) -> Sequence[Any]:
    """The target's hashes in two runs, with eager's where neither side varies with the seed.

    `hashes` are those of eager's two runs, then those of the target's two runs.
    """
    eager, target = hashes[:2], hashes[2:]
    sizes = {None if each is None else each.shape for each in hashes}
    if None in sizes or len(sizes) > 1:
        return target
    constant = (eager[0] == eager[1]) & (target[0] == target[1])
    pairs = zip(eager, target, strict=True)
    return [np.where(constant, expected, actual) for expected, actual in pairs]


def differences(eager: ValueHashes, target: ValueHashes) -> list[tuple[str, int]]:
    """Where hashes differ: 'storage', 'input' or 'output', and its index.

    Tensors of other sizes are left to *metadata*.
    """
    wrong = []
    # Whole storages: bytes that no input views must end as in eager, too.
    for index in range(len(eager.storages)):
        one, other = _same_size(index, eager, target)
        if not np.array_equal(one, other):
            wrong.append(("storage", index))
    if not wrong:  # equal storages, but `set_` may have given an input a different one
        pairs = enumerate(zip(eager.inputs, target.inputs, strict=True))
        wrong += [
            ("input", index)
            for index, (one, other) in pairs
            if one.shape == other.shape and (one != other).any()
        ]
    for index, (expected, actual) in enumerate(zip(eager.outputs, target.outputs, strict=False)):
        if expected is None or actual is None or expected.shape != actual.shape:
            continue
        # With another dtype the hashes differ anyway, and *metadata* reports it.
        if eager.dtypes[index] == target.dtypes[index] and not np.array_equal(expected, actual):
            wrong.append(("output", index))
    return wrong


def _same_size(index: int, *runs: ValueHashes) -> tuple[Array, ...]:
    """The hashes of a storage in each run, extended to the larger size.

    A kernel may resize a storage to work in it, which is not a difference.
    """
    # The bytes that the other storage lacks count as unwritten there.
    most = max(run.storages[index].size for run in runs)
    return tuple(extend_hashes(run.storages[index], most, run.seed) for run in runs)


def _violation(what: str, index: int, eager: ValueHashes, target: ValueHashes) -> Violation:
    """The difference with its first wrong element, and both symbolic values if they are kept."""
    place = f"{what} {index}"
    if what == "storage":
        expected, actual = _same_size(index, eager, target)
        own = {number: it for number, it in enumerate(eager.views) if it.storage == index}
        # A run may make the storage shorter, so that a view reaches beyond its end.
        inside = ((it, own[it]) for it in own if max(own[it].region.interval) <= expected.size)
        shown = ((it, view.entries(expected), view.entries(actual)) for it, view in inside)
        wrong = next((each for each in shown if not np.array_equal(*each[1:])), None)
        if wrong is None:
            # An element is not named, since no input shows the bytes.
            different = np.flatnonzero(expected != actual)
            first = int(different[0])
            around = {"first wrong byte": first, "wrong bytes": different.size}
            return Violation("equivalence", KIND, _around(first, own), around)
        number, expected, actual = wrong
        place = f"input {number}"
    else:
        ours, theirs = ((run.inputs if what == "input" else run.outputs) for run in (eager, target))
        assert ours[index] is not None
        assert theirs[index] is not None
        expected, actual = cast("Array", ours[index]), cast("Array", theirs[index])
    # An element is wrong if one of its bytes is (the last dim).
    differ = (expected != actual).any(-1)
    at = tuple(int(position) for position in np.argwhere(differ)[0])
    evidence: dict[str, Any] = {
        "first wrong index": list(at),
        "wrong elements": int(differ.sum()),
        "elements": differ.size,
    }
    known, symbols = eager.symbols, target.symbols
    if known is not None and symbols is not None:
        right, other = (int(element_hashes(hashes[at])) for hashes in (expected, actual))
        evidence |= {"eager": known.spell(right), "target": symbols.spell(other)}
        # The first computation in which the target differs.
        foreign = symbols.first_foreign(other, known)
        if foreign is not None and foreign != other:
            evidence["eager never computes"] = symbols.spell(foreign)
    return Violation("equivalence", KIND, place, evidence)


def _around(byte: int, views: Mapping[int, Location]) -> str:
    """Name bytes of a storage by the inputs that view it: 'bytes after input 1's view'."""
    starts = {number: view.region.interval[0] for number, view in views.items()}
    ends = {number: view.region.interval[1] for number, view in views.items()}
    first, last = min(starts, key=starts.__getitem__), max(ends, key=ends.__getitem__)
    if byte >= ends[last]:
        return f"bytes after input {last}'s view"
    if byte < starts[first]:
        return f"bytes before input {first}'s view"
    return f"bytes between the elements of input {first}"


ORACLE = Oracle(
    "equivalence",
    "the target computes the same as eager, for all values of the inputs",
    Needs.SYMBOLIC_RUN,
    judge,
)
