"""Oracle *aliasing*: no pair of input and output, or of outputs, shares a byte that does not in eager."""

from __future__ import annotations

from collections.abc import Iterator

from oracles.contract import Contract, Promise
from oracles.observation import Observation
from oracles.smt import Unknown, Witness, decide
from oracles.verdict import Report, Verdict, Violation, decided
from programs.errors import InternalError
from programs.regions import Region, overlap, overlaps_itself
from programs.trace import Trace


def judge(contract: Contract, eager: Observation, target: Observation, trace: Trace) -> Report:
    """Compare the pairs that overlap.

    A new alias is confirmed by the z3 model, whose witness becomes the evidence.
    """
    ours, theirs = eager.regions(), target.regions()
    if ours.keys() != theirs.keys() or len(eager.outputs) != len(target.outputs):
        return Report(Verdict.UNKNOWN, reason="the outputs of eager and target cannot be matched")
    violations: list[Violation] = []
    unknown = ""
    for one, other in _pairs(list(ours)):
        in_eager, in_target = overlap(ours[one], ours[other]), overlap(theirs[one], theirs[other])
        if in_target and not in_eager and contract.promises(Promise.NO_NEW_ALIAS, trace):
            witness = _witness(theirs[one], theirs[other])
            if isinstance(witness, Unknown):
                unknown = f"z3 could not confirm an alias: {witness.reason}"
                continue
            kind = f"new alias between {_sort(one)} and {_sort(other)}"
            violations.append(
                Violation(
                    "aliasing", kind, f"{one}, {other}", _evidence(witness, theirs[one].start)
                )
            )
        elif in_eager and not in_target and contract.promises(Promise.KEEPS_ALIASES, trace):
            kind = f"lost alias between {_sort(one)} and {_sort(other)}"
            violations.append(Violation("aliasing", kind, f"{one}, {other}"))
    for name, region in theirs.items():
        new = overlaps_itself(region) and not overlaps_itself(ours[name])
        if new and name.startswith("output") and contract.promises(Promise.NO_NEW_ALIAS, trace):
            violations.append(Violation("aliasing", "output overlaps itself", name))
    if contract.promises(Promise.IDENTITY, trace):
        violations += _identities(eager, target)
    return (
        Report(Verdict.UNKNOWN, reason=unknown)
        if unknown and not violations
        else decided(violations)
    )


def _pairs(names: list[str]) -> Iterator[tuple[str, str]]:
    """Every two, inputs first.

    Two inputs overlap as the caller made them, unless one was given another storage.
    """
    yield from ((one, other) for index, other in enumerate(names) for one in names[:index])


def _sort(name: str) -> str:
    return name.split(maxsplit=1)[0]


def _witness(one: Region, other: Region) -> Witness | Unknown:
    answer = decide(one, other)
    if isinstance(answer, (Witness, Unknown)):
        return answer
    raise InternalError(
        f"the deciders of overlap disagree on {one} and {other}: please report these two regions"
    )


def _evidence(witness: Witness, start: int) -> dict[str, object]:
    return {
        "index in the first": list(witness.indices_a),
        "index in the second": list(witness.indices_b),
        "shared byte, from the start of the first": witness.byte - start,
    }


def _identities(eager: Observation, target: Observation) -> Iterator[Violation]:
    for index, (expected, actual) in enumerate(zip(eager.outputs, target.outputs, strict=True)):
        ours, theirs = eager.is_input(expected), target.is_input(actual)
        if ours is None and theirs is not None:
            yield Violation("aliasing", "output became an input", f"output {index}, input {theirs}")
        elif ours is not None and (theirs is None or target.inputs[ours] is not actual):
            yield Violation(
                "aliasing", "output is no longer the input itself", f"output {index}, input {ours}"
            )
