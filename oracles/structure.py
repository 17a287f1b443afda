"""Oracle *structure*: which outputs a run of Python code leaves, by path, and of which types."""

from __future__ import annotations

from collections.abc import Iterator

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
    return report_of([other] if other is not None else [*_other_kinds(eager, target)])


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


def _other_kinds(eager: Observation, target: Observation) -> Iterator[Violation]:
    """Outputs with another type, or that require gradients in only one of the runs."""
    for path, kind in eager.kinds.items():
        if target.kinds[path] != kind:
            evidence = {"eager": kind, "target": target.kinds[path]}
            yield Violation(_NAME, "another type, or gradients", path, evidence)


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
