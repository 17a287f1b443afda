"""What is shown of the runs of a check, as texts: it can be sent from process to process.

Tensors stay where they were computed. They can be large, and a copy would lose what they share.
Nothing here imports torch, so that the process that prints starts at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from aliasproof.oracles.check_result import Check, EagerResult, TargetResult
from aliasproof.oracles.place_names import PlaceNames
from aliasproof.reports.two_runs import Row


@dataclass(frozen=True, slots=True)
class ShownEager:
    """The eager run: texts of its outputs and of the inputs afterwards, and why it is not judged.

    `rounded` is the op since which values are compared with a tolerance. `notes` say what was done
    to make the function comparable. `unspecified` is a call that only this device runs in one way.
    `torch` is the version, `oracles` are the names of all oracles, `names` those of inputs and
    outputs.
    """

    torch: str
    oracles: tuple[str, ...]
    outputs: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()
    unjudged: str | None = None
    raised: str | None = None
    rounded: str | None = None
    notes: tuple[str, ...] = ()
    unspecified: str | None = None
    names: PlaceNames = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ShownTarget:
    """The reports on a target, and its run beside eager's. `result` has no observation."""

    result: TargetResult
    rows: tuple[Row, ...] = ()


@dataclass(frozen=True, slots=True)
class ShownCheck:
    """A check, as far as it has gone."""

    eager: ShownEager
    targets: Mapping[str, ShownTarget] = field(default_factory=dict)

    @property
    def check(self) -> Check:
        """The check without its runs."""
        eager = EagerResult(None, None, self.eager.unjudged, self.eager.raised, self.eager.names)
        results = {name: shown.result for name, shown in self.targets.items()}
        return Check(eager, results, self.eager.notes)
