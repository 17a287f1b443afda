"""`Oracle`: its name, the promise that it decides, what it needs, and the function that judges."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from aliasproof.oracles.standalone_check import StandaloneCheck
from aliasproof.oracles.verdict import Report


class Needs(Enum):
    """What an oracle looks at. The comments give the arguments of its `judge`."""

    # contract, eager: Observation, target: Observation, trace
    RESULTS = "what the runs of eager and target leave behind"
    # contract, eager: ValueHashes, target: ValueHashes, trace, spelled
    SYMBOLIC_RUN = "both runs on symbolic values"
    # contract, stages: Sequence[StageRun], trace
    STAGES = "a run of each stage"


@dataclass(frozen=True, slots=True)
class Oracle:
    """One aspect in which a target is compared with eager.

    `promise` is what it decides, in words. `judge` takes what `needs` names and answers with a
    `Report`. Only oracles on results have a `check` for reproducers: it runs without this project.
    """

    name: str
    promise: str
    needs: Needs
    judge: Callable[..., Report]
    check: StandaloneCheck | None = None
