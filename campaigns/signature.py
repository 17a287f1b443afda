"""`Signature`: what makes two reduced violations the same finding.

A signature is the symptom and the ops of the reduced program. For an error it is the symptom alone,
since the message of an error distinguishes bugs better than the ops before it.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from programs.program import Program
from targets.variants import folder_name
from trials.attribution import Symptom


@dataclass(frozen=True, slots=True)
class Signature:
    """A symptom and the ops of the reduced program, in order; no ops if the symptom is an error."""

    symptom: Symptom
    ops: tuple[str, ...]

    @property
    def identifier(self) -> str:
        """A short name that is the same in every run, such as `aot-values-3f2a91c0`."""
        # Identifiers are names of folders and in reports: what is hashed here must never change.
        text = "\n".join((self.symptom.target, self.symptom.oracle, self.symptom.kind, *self.ops))
        digest = hashlib.sha256(text.encode()).hexdigest()[:8]
        return f"{folder_name(self.symptom.target)}-{self.symptom.oracle}-{digest}"


def signature(symptom: Symptom, program: Program) -> Signature:
    """The signature of a reduced program."""
    ops = () if symptom.oracle == "errors" else tuple(call.op for call in program.instructions)
    return Signature(symptom, ops)
