"""`KnownRounding`: what an earlier call of a graph showed about rounding.

Only a watched run of eager tells what correct kernels may do differently, and it takes several
times as long. Where rounding begins depends on the operators, and not on the data. So the first
watched run of a graph serves later calls. What depends on data is left open here: a difference
that this trace does not explain is looked at again, with a watched run of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch

from aliasproof.eager.trace import EXACT, InputLocation, Tolerance, Trace
from aliasproof.oracles.observation import Observation


@dataclass(frozen=True, slots=True)
class MayDiffer:
    """What may differ in the tensor at a place."""

    tolerance: Tolerance
    between: bool  # whether a target that fuses ops may round less often


def places_of(observation: Observation, trace: Trace) -> dict[str, MayDiffer]:
    """What a watched run shows, for each tensor of it."""
    return {
        name: MayDiffer(trace.tolerance(tensor), trace.rounds_between(tensor))
        for name, tensor in observation.tensors().items()
    }


@dataclass(slots=True)
class KnownRounding(Trace):
    """The trace of a run that nobody watched, by the places of an earlier run."""

    known: dict[int, MayDiffer] = field(default_factory=dict)

    @classmethod
    def on(
        cls, observation: Observation, places: Mapping[str, MayDiffer], *, gradients: bool = False
    ) -> KnownRounding:
        """The trace for this run in eager. Its outputs can be the `gradients` of a backward pass.

        Without places, nothing may differ.
        """
        trace = cls(tuple(map(InputLocation.of, observation.before)))
        tensors = observation.tensors()
        trace.known = {id(it): places[name] for name, it in tensors.items() if name in places}
        for index, tensor in enumerate(observation.before):
            if f"input {index}" in places:
                trace.known[id(tensor)] = places[f"input {index}"]
        if gradients:
            for tensor in tensors.values():
                trace.gradients.add(tensor)
        return trace

    def exact(self, value: object) -> bool:
        """See `Trace`."""
        return not self.tolerance(value).rounds if isinstance(value, torch.Tensor) else True

    def tolerance(self, value: torch.Tensor) -> Tolerance:
        """See `Trace`."""
        place = self.known.get(id(value))
        return EXACT if place is None else place.tolerance

    def bits_open(self, value: object) -> bool:
        """Never: it depends on the data."""
        return False

    def rounds_between(self, value: object) -> bool:
        """See `Trace`."""
        place = self.known.get(id(value))
        return place is not None and place.between
