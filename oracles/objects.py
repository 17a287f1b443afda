"""Oracle *objects*: which outputs are the same tensor object, and which are an input object.

When a caller changes the metadata of one object (`t_`, `resize_`, `requires_grad_`), every name of
the object shows the change, and no other tensor that shares its memory does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from aliasproof.eager.trace import Trace
from aliasproof.oracles.contract import Contract, Difference, Promise
from aliasproof.oracles.observation import Observation
from aliasproof.oracles.oracle import Needs, Oracle, StandaloneCheck, shows_change
from aliasproof.oracles.verdict import Report, Verdict, Violation


def judge(contract: Contract, eager: Observation, target: Observation, trace: Trace) -> Report:
    """Compare the identities of outputs, with inputs and with each other."""
    # *values* reports a different number of outputs.
    if len(eager.outputs) != len(target.outputs):
        return Report(Verdict.UNKNOWN, reason="the outputs of eager and target cannot be matched")
    differences = [*_with_inputs(eager, target), *_among_outputs(eager, target)]
    return contract.report(differences, trace)


def _with_inputs(eager: Observation, target: Observation) -> Iterator[Difference]:
    """Outputs that are an input object in one run and not in the other."""
    for index, (expected, actual) in enumerate(zip(eager.outputs, target.outputs, strict=True)):
        ours, theirs = eager.is_input(expected), target.is_input(actual)
        if ours is None and theirs is not None:
            place = f"output {index}, input {theirs}"
            shown = Violation("objects", "output became an input", place)
            yield Difference(Promise.IDENTITY, shown)
        elif ours is not None and (theirs is None or target.inputs[ours] is not actual):
            kind = "output is no longer the input itself"
            shown = Violation("objects", kind, f"output {index}, input {ours}")
            yield Difference(Promise.IDENTITY, shown, of_input=ours)


def _among_outputs(eager: Observation, target: Observation) -> Iterator[Difference]:
    """Outputs that are one object in one run and two in the other. Inputs are compared above."""
    ours, theirs = _first_of_each(eager.outputs), _first_of_each(target.outputs)
    for index, (expected, actual) in enumerate(zip(eager.outputs, target.outputs, strict=True)):
        if eager.is_input(expected) is not None or target.is_input(actual) is not None:
            continue
        if ours[theirs[index]] != ours[index]:
            kind, first, promise = "two outputs became one object", theirs[index], Promise.OBJECTS
        elif theirs[ours[index]] != theirs[index]:
            kind, first = "two outputs are no longer one object", ours[index]
            promise = Promise.KEEPS_OBJECTS
        else:
            continue
        shown = Violation("objects", kind, f"output {first}, output {index}")
        yield Difference(promise, shown)


def _first_of_each(outputs: Sequence[object]) -> list[int]:
    """For each output, the index of the first one that is the same tensor."""
    first: dict[int, int] = {}
    return [
        first.setdefault(id(output), index) if isinstance(output, torch.Tensor) else index
        for index, output in enumerate(outputs)
    ]


def _identity(*, expected: bool, actual: bool) -> StandaloneCheck:
    return StandaloneCheck(
        "whether FIRST is SECOND", "FIRST is SECOND", shows=shows_change(expected, actual)
    )


ORACLE = Oracle(
    "objects",
    "outputs are one object, or an input itself, where they are in eager",
    Needs.RESULTS,
    judge,
    StandaloneCheck(
        "which outputs are one object, and which are an input",
        "[[output is other for other in (*args, *outputs)] for output in outputs]",
        by_kind=(
            ("two outputs became", _identity(expected=False, actual=True)),
            ("two outputs are no longer", _identity(expected=True, actual=False)),
            ("output became an input", _identity(expected=False, actual=True)),
            ("output is no longer", _identity(expected=True, actual=False)),
        ),
    ),
    reason=(
        "Whether two tensors are one object is visible to the caller: what changes the metadata "
        "of one, such as `t_` or `resize_`, changes the other."
    ),
)
