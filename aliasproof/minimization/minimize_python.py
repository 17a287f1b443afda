"""The part of a reduction that runs Python programs, in isolated processes.

These programs are findings of `hunt`, or come from a user's file.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace

from aliasproof.campaigns.failure.finding import Finding
from aliasproof.campaigns.run.languages import named, reduced, shown_by
from aliasproof.corpus.bug_files import known_bugs
from aliasproof.corpus.known_bug import patched
from aliasproof.ir.errors import Rejected, UserError
from aliasproof.ir.program import Program
from aliasproof.ir.python_program import PythonProgram
from aliasproof.judge.attribution import FailsAlike, Symptom
from aliasproof.judge.python_case import LAYERS
from aliasproof.judge.trial import quiet_torch
from aliasproof.minimization.minimize_request import MinimizeRequest
from aliasproof.oracles.given_tolerance import compare_within
from aliasproof.processes.isolation import step
from aliasproof.processes.outcome import Death
from aliasproof.reports.console import print_notes
from aliasproof.targets.registry import target as target_named
from aliasproof.targets.user_names import grant
from aliasproof.user_code import user_file
from aliasproof.user_code.python_of_file import python_programs
from aliasproof.user_code.user_file import UserFunction


@dataclass(frozen=True, slots=True)
class KeptPython:
    """What a candidate must show: a symptom as in `Kept`, and the error that eager raises, if any.

    With `past_known`, it must show this while the known bugs of torch are patched.
    """

    symptom: Symptom
    raised: str | None = None
    past_known: bool = False

    cause = None  # the symptom is kept, even if it is that of a known bug

    @property
    def grades(self) -> tuple[Symptom]:
        """The only grade; see `Kept`."""
        return (self.symptom,)

    def grade(self, program: PythonProgram) -> int:
        """1 if a program shows the symptom, else 0."""
        return int(self.of_first(program) is not None)

    def of_first(self, program: PythonProgram) -> KeptPython | None:
        """What programs reduced from this one must show; None if it does not show the symptom."""
        fails = FailsAlike(self.symptom, self.raised)
        with patched(known_bugs().values() if self.past_known else ()):
            return replace(self, raised=fails.raised) if fails(program) else None

    def grade_of_death(self, death: Death) -> int:
        """0: a finding of `hunt` ends no process."""
        return 0

    def describe(
        self, given: Finding[PythonProgram], program: PythonProgram
    ) -> Finding[PythonProgram]:
        """The finding of the reduced program, with that program's place, evidence and names.

        These stay unchanged if the program is documented, or if it does not show the symptom again.
        """
        with patched(known_bugs().values() if self.past_known else ()):
            found = reduced(program, self.symptom, 0)
        smallest = replace(given, program=program)
        if found is None:
            return smallest
        with contextlib.suppress(Rejected):
            found = named(found).finding
        if found is None:
            return smallest
        names = ("identifier", "place", "evidence", "known", "wrong_part")
        return replace(smallest, **{name: getattr(found, name) for name in names})


def find_in_file(request: MinimizeRequest) -> Finding[PythonProgram]:
    """The difference that a target shows for the function in a user's file, as it is called.

    Raises `UserError` if there is none, or if the file uses features that the language lacks.
    """
    target = request.target
    assert target is not None
    grant(request.granted)
    quiet_torch()
    compare_within(request.tolerance)
    if target_named(target).backend is None:
        reason, plain = f"{target} is no backend of torch.compile", target.partition(":")[0]
        having = (it for it in LAYERS if plain in {one.name for one in target_named(it).layers})
        target = next(having, "")
        if not target:
            raise UserError(reason)
        print_notes([f"{reason}: its layers are shown through {target}"])
    step("the file")

    def find(given: UserFunction | Program) -> Finding[PythonProgram]:
        if isinstance(given, Program):  # the file is a graph that torch printed
            raise UserError("it is no function of Python")
        for program in python_programs(request.path, request.names, given):
            if (finding := shown_by(program, target)) is not None:
                return finding
        raise UserError("as a Python program, it does what eager does")

    return user_file.apply_to(request.path, request.names, find)
