"""Oracle *inputs*: inputs end as in eager, on the whole storage, the bytes outside the views included."""

from __future__ import annotations

import torch

from generators.definedness import Trace
from generators.regions import Region
from oracles.contract import Contract, Promise
from oracles.observation import Observation
from oracles.values import differ
from oracles.verdict import Report, Violation, decided, not_applicable


def judge(contract: Contract, eager: Observation, target: Observation, trace: Trace) -> Report:
    """Compare each input's numbers, then the bytes of its storage that no input shows."""
    if not contract.promises(Promise.INPUTS, trace):
        return not_applicable("not promised")
    violations = []
    for index, (expected, actual) in enumerate(zip(eager.inputs, target.inputs, strict=True)):
        difference = differ(expected, actual, exact=trace.inexact is None)
        if difference is not None:
            violations.append(Violation("inputs", "input ends wrong", f"input {index}", difference))
    if not violations:
        violations = list(_around(eager, target))
    return decided(violations)


def _around(eager: Observation, target: Observation) -> list[Violation]:
    """Differences in the bytes of the inputs' storages that no input covers."""
    violations, seen = [], set()
    for index, (expected, actual) in enumerate(zip(eager.before, target.before, strict=True)):
        if expected._cdata in seen or expected.nbytes() == 0:
            continue
        seen.add(expected._cdata)
        ours, theirs = _bytes(expected), _bytes(actual)
        if ours.shape == theirs.shape and torch.equal(ours, theirs):
            continue
        if ours.shape != theirs.shape:
            evidence: dict[str, object] = {"eager": f"{ours.numel()} bytes", "target": f"{theirs.numel()} bytes"}
            violations.append(Violation("inputs", "storage has another size", f"storage of input {index}", evidence))
            continue
        uncovered = torch.ones_like(ours, dtype=torch.bool)
        for region in (Region.of(each) for each in eager.inputs if each.untyped_storage()._cdata == expected._cdata):
            uncovered[torch.from_numpy(region.addresses() - expected.data_ptr())] = False
        wrong = (ours != theirs) & uncovered
        if bool(wrong.any()):
            evidence = {"first wrong byte": int(wrong.nonzero()[0]), "wrong bytes": int(wrong.sum())}
            kind = "bytes outside the inputs change"
            violations.append(Violation("inputs", kind, f"storage of input {index}", evidence))
    return violations


def _bytes(storage: torch.UntypedStorage) -> torch.Tensor:
    view: torch.Tensor = torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)
    return view
