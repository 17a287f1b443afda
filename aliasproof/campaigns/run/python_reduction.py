"""From a drawn Python program that fails to a finding: its program is reduced on its syntax."""

from __future__ import annotations

import time

import torch

from aliasproof.campaigns.store.python_finding import PythonFinding
from aliasproof.programs.python_program import PythonProgram
from aliasproof.reduction.syntax_reducer import SyntaxReducer
from aliasproof.trials.python_blame import part_of
from aliasproof.trials.python_trial import Cause, FailsAlike, examine_python

MOST = 400  # candidates
SECONDS = 150.0  # after them, no candidate is asked; the call in a worker has twice as many


def reduced(drawn: PythonProgram, cause: Cause, most: int = MOST) -> PythonFinding | None:
    """Reduce a failing program with so many candidates; None if it does not fail any more."""
    fails = FailsAlike(cause)
    if not fails(drawn):
        return None
    end = time.monotonic() + SECONDS
    reducer = SyntaxReducer(drawn, lambda it: time.monotonic() < end and fails(it), most)
    program = reducer.run()
    found = examine_python(program, cause.target)
    main = found.main
    if main is None:
        return None
    return PythonFinding(
        program,
        found.target,
        main.oracle,
        main.kind,
        main.place,
        dict(main.evidence),
        drawn_lines=drawn.lines,
        tried=reducer.tried,
        compiled=fails.compiled,
        torch=str(torch.__version__),
        part=part_of(program, Cause(found.target, main.oracle, main.kind)),
    )
