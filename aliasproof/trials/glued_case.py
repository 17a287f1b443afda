"""`GluedCase`: programs as one case, what its runs leave, and the part of each program in them."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch

from aliasproof.ir.errors import InternalError, Rejected
from aliasproof.ir.execution import Glued, ProgramFunction, glue, part
from aliasproof.ir.program import Program
from aliasproof.ir.regions import Region, overlap
from aliasproof.oracles.judge import judge
from aliasproof.oracles.observation import Observation
from aliasproof.oracles.verdict import Violation
from aliasproof.targets.target import Build, Target
from aliasproof.trials.trial import Case, EagerRun, Spent, run_target


@dataclass(frozen=True, slots=True)
class Member:
    """A case of a group, by index, and its run in eager."""

    index: int
    case: Case
    eager: EagerRun

    @property
    def program(self) -> Program:
        function = self.case.function
        assert isinstance(function, ProgramFunction), "only programs can be glued"
        return function.program


class Run(NamedTuple):
    """What a run left, and its build; None if that raised."""

    observation: Observation
    build: Build | None


@dataclass(frozen=True, slots=True)
class GluedCase:
    """Members as one case. A target runs it once."""

    members: Sequence[Member]
    glued: Glued
    case: Case
    _runs: dict[str, Run | None] = field(default_factory=dict)

    @classmethod
    def of(cls, members: Sequence[Member]) -> GluedCase:
        """Glue the programs of the members."""
        glued = glue([member.program for member in members])
        cases = [member.case for member in members]

        # Faster than from the values of the glued program, and on the device of the cases.
        def inputs() -> Sequence[torch.Tensor]:
            return [tensor for case in cases for tensor in case.fresh_inputs()]

        return cls(members, glued, Case(ProgramFunction(glued.program), inputs))

    def run(self, target: Target, spent: Spent) -> Run:
        """The run through a target. Raises `Rejected` if the target is not for it."""
        run = Run(*run_target(self.case, target, spent))
        self._runs[target.name] = run
        return run

    def error(self, target: Target, spent: Spent) -> Exception | None:
        """What the target raises, if it raises."""
        run = self._run_of(target, spent)
        return None if run is None else run.observation.error

    def build_raises(self, target: Target, spent: Spent) -> bool:
        """Whether the build raises. Where code is generated, it is not compiled for this."""
        start = time.perf_counter()
        try:
            with torch.no_grad():
                target.build(self.case.function, self.case.fresh_inputs())
        except (Rejected, InternalError):
            return False
        except Exception:  # noqa: BLE001 - whatever it is, members alone will show it
            return True
        else:
            return False
        finally:
            spent.target += time.perf_counter() - start

    def violations(self, target: Target, member: Member, spent: Spent) -> list[Violation]:
        """The violations of a member in the run through a target; none if the run raised."""
        run = self._run_of(target, spent)
        if run is None or run.observation.error is not None:
            return []
        eager, trace = member.eager
        for other, observation in self.parts(run.observation):
            if other is member:
                return judge(target.contract, eager, observation, trace).violations
        raise ValueError(f"program {member.index} is no member")

    def first_wrong(self, target: Target, spent: Spent) -> Target | None:
        """The first earlier target that raises, or lets members share bytes; None if none does."""
        for layer in target.earlier:
            run = self._run_of(layer, spent)
            if run is None:
                continue
            if run.observation.error is not None or self.strangers(run.observation):
                return layer
        return None

    def parts(self, observation: Observation) -> Iterator[tuple[Member, Observation]]:
        """Each member with its part of what a run left."""
        for member, place in zip(self.members, self.glued.members, strict=True):
            inputs = part(observation.inputs, place.inputs)
            before = part(observation.before, place.inputs)
            outputs = part(observation.outputs, place.outputs)
            yield member, Observation(inputs, before, outputs)

    def strangers(self, observation: Observation) -> list[Member]:
        """The members that share bytes with another after a run. In eager none do."""
        owners: dict[int, list[tuple[Member, Region]]] = {}
        sharing: dict[int, Member] = {}
        for member, observed in self.parts(observation):
            regions = observed.regions()
            for name, tensor in observed.tensors().items():
                known = owners.setdefault(tensor.untyped_storage()._cdata, [])
                for other, theirs in known:
                    if other is not member and overlap(theirs, regions[name]):
                        sharing |= {other.index: other, member.index: member}
                known.append((member, regions[name]))
        return list(sharing.values())

    def _run_of(self, target: Target, spent: Spent) -> Run | None:
        """The run through a target, made at most once; None if the target is not for the case."""
        if target.name not in self._runs:
            try:
                self._runs[target.name] = Run(*run_target(self.case, target, spent))
            except Rejected:
                self._runs[target.name] = None
        return self._runs[target.name]
