"""The part of a reduction that runs a finding of `hunt`, in isolated processes."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace

from aliasproof.campaigns.run.languages import named, reduced
from aliasproof.campaigns.store.finding import PythonFinding
from aliasproof.corpus.bug_files import known_bugs
from aliasproof.corpus.known_bug import patched
from aliasproof.ir.errors import Rejected
from aliasproof.ir.python_program import PythonProgram
from aliasproof.judge.attribution import FailsAlike, Symptom
from aliasproof.processes.outcome import Death


@dataclass(frozen=True, slots=True)
class KeptPython:
    """What each candidate must show: a symptom, as `Kept` has it; and what eager raises, if so.

    With `past_known`, it shows that while the known bugs of torch are patched.
    """

    symptom: Symptom
    raised: str | None = None
    past_known: bool = False

    cause = None  # the symptom stays, also that of a known bug

    @property
    def grades(self) -> tuple[Symptom]:
        """As those of `Kept`."""
        return (self.symptom,)

    def grade(self, program: PythonProgram) -> int:
        """1 if a program shows it."""
        return int(self.of_first(program) is not None)

    def of_first(self, program: PythonProgram) -> KeptPython | None:
        """What programs that are made of this one must show; None if it does not show it."""
        fails = FailsAlike(self.symptom, self.raised)
        with patched(known_bugs().values() if self.past_known else ()):
            return replace(self, raised=fails.raised) if fails(program) else None

    def grade_of_death(self, death: Death) -> int:
        """0: a finding of `hunt` ends no process."""
        return 0

    def describe(self, given: PythonFinding, program: PythonProgram) -> PythonFinding:
        """The finding with its reduced program, and the place, evidence and names of that.

        These stay if the program is documented, or shows nothing again.
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
        names = ("place", "evidence", "line", "known", "part")
        return replace(smallest, **{name: getattr(found, name) for name in names})
