"""Oracle *aliasing*: inputs and outputs share only bytes that they share in eager, too."""

from __future__ import annotations

from dataclasses import replace

from aliasproof.eager.trace import Trace
from aliasproof.ir.errors import InternalError
from aliasproof.ir.regions import overlap, overlaps_itself
from aliasproof.oracles.contract import Contract, Difference, Promise
from aliasproof.oracles.observation import Observation
from aliasproof.oracles.oracle import Needs, Oracle, StandaloneCheck, shows_change
from aliasproof.oracles.smt import Disjoint, Unknown, decide
from aliasproof.oracles.verdict import HOLDS, Report, Verdict, Violation


def judge(contract: Contract, eager: Observation, target: Observation, trace: Trace) -> Report:
    """Compare the pairs that overlap.

    z3 confirms a new alias, and its witness becomes the evidence.
    """
    ours, theirs = eager.regions(), target.regions()
    # The two runs returned different tensors. *values* and *metadata* report that.
    if ours.keys() != theirs.keys() or len(eager.outputs) != len(target.outputs):
        return Report(Verdict.UNKNOWN, reason="the outputs of eager and target cannot be matched")
    differences: list[Difference] = []
    unknown = ""
    names = list(ours)
    # Inputs come first. Two of them overlap as the caller made them, unless the run gave one of
    # them a new storage.
    for one, other in ((one, other) for at, other in enumerate(names) for one in names[:at]):
        in_eager, in_target = overlap(ours[one], ours[other]), overlap(theirs[one], theirs[other])
        between = f"alias between {_role(one)} and {_role(other)}"
        if in_target and not in_eager:
            witness = decide(theirs[one], theirs[other])
            if isinstance(witness, Disjoint):
                # Both deciders are exact, so one has a bug, and any verdict would be a guess.
                raise InternalError(
                    f"the deciders of overlap disagree on {theirs[one]} and {theirs[other]}: please"
                    " report these two regions"
                )
            if isinstance(witness, Unknown):
                unknown = f"z3 could not confirm an alias: {witness.reason}"
                continue
            evidence = {
                "index in the first": list(witness.indices_a),
                "index in the second": list(witness.indices_b),
                "shared byte, from the start of the first": witness.byte - theirs[one].start,
            }
            shown = Violation("aliasing", f"new {between}", f"{one}, {other}", evidence)
            differences.append(Difference(Promise.NO_NEW_ALIAS, shown))
        # A lost alias needs no witness: two disjoint regions have no byte to show.
        elif in_eager and not in_target:
            shown = Violation("aliasing", f"lost {between}", f"{one}, {other}")
            differences.append(Difference(Promise.KEEPS_ALIASES, shown))
    for name, region in theirs.items():
        # An output of `expand` overlaps itself in eager, too.
        is_new = overlaps_itself(region) and not overlaps_itself(ours[name])
        if is_new and _role(name) == "output":
            shown = Violation("aliasing", "output overlaps itself", name)
            differences.append(Difference(Promise.NO_NEW_ALIAS, shown))
    otherwise = Report(Verdict.UNKNOWN, reason=unknown) if unknown else HOLDS
    return contract.report(differences, trace, otherwise)


def _role(name: str) -> str:
    """'input' or 'output'."""
    return name.split(maxsplit=1)[0]


MEMORY = """
def memory(t):
    \"\"\"The addresses of the bytes of a tensor.\"\"\"
    cells = torch.arange(t.untyped_storage().nbytes()).as_strided(t.shape, t.stride()).flatten()
    return {t.data_ptr() + t.itemsize * int(c) + b for c in cells for b in range(t.itemsize)}
"""


def _sharing(*, expected: bool, actual: bool) -> StandaloneCheck:
    return StandaloneCheck(
        "whether FIRST and SECOND share bytes",
        "bool(memory(FIRST) & memory(SECOND))",
        helper=MEMORY,
        shows=shows_change(expected, actual),
    )


ORACLE = Oracle(
    "aliasing",
    "no pair shares a byte that does not in eager; where promised, none is lost",
    Needs.RESULTS,
    judge,
    replace(
        _sharing(expected=False, actual=True),
        by_kind=(
            ("lost alias", _sharing(expected=True, actual=False)),
            (
                "output overlaps itself",
                StandaloneCheck(
                    "whether two elements of FIRST share a byte",
                    "len(memory(FIRST)) < FIRST.numel() * FIRST.itemsize",
                    helper=MEMORY,
                    shows=shows_change(False, True),
                ),
            ),
        ),
    ),
    reason=(
        "Which tensors share memory is visible to the caller: a later write in place to one of "
        "them changes the other."
    ),
)
