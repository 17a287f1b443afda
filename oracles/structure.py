"""Oracle *structure*: which outputs a run of Python code leaves, by path, and of which types."""

from __future__ import annotations

import torch

from aliasproof.eager.rounding import readable
from aliasproof.eager.trace import Trace
from aliasproof.oracles.contract import Contract
from aliasproof.oracles.observation import Observation
from aliasproof.oracles.oracle import Needs, Oracle
from aliasproof.oracles.verdict import Report, Violation, report_of

_NAME = "structure"


def judge(contract: Contract, eager: Observation, target: Observation, trace: Trace) -> Report:
    """Compare the paths of outputs, and the type of each. No contract waives any of it."""
    other = other_path(eager, target)
    if other is not None:
        return report_of([other])
    # Outputs with another type, or that require gradients in only one of the runs.
    pairs = {path: (kind, target.kinds[path]) for path, kind in eager.kinds.items()}
    return report_of(
        [
            Violation(_NAME, "another type, or gradients", path, {"eager": ours, "target": theirs})
            for path, (ours, theirs) in pairs.items()
            if ours != theirs
        ]
    )


def other_path(eager: Observation, target: Observation) -> Violation | None:
    """The first path that only one run has, or in another order: the rest cannot be matched."""
    lost = [path for path in eager.paths if path not in target.paths]
    new = [path for path in target.paths if path not in eager.paths]
    if lost:
        return Violation(_NAME, "something is missing", lost[0])
    if new:
        there = target.outputs[target.paths.index(new[0])]
        zeros = isinstance(there, torch.Tensor) and not readable(there).any()
        return Violation(_NAME, "something is new", new[0], {"zeros": True} if zeros else {})
    pairs = zip(eager.paths, target.paths, strict=True)
    moved = next((path for path, other in pairs if path != other), None)
    return None if moved is None else Violation(_NAME, "another order", moved)


ORACLE = Oracle(
    _NAME,
    "what a program leaves has the same parts, of the same types",
    Needs.RESULTS,
    judge,
    reason=(
        "What a call leaves in objects, lists and dicts, and which tensors require gradients, is"
        " visible to the caller."
    ),
)
