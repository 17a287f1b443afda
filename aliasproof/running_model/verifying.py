"""Whether a script has the same output and end in eager and compiled, up to rounding.

Each run has its own process. What differs in another eager run, such as times, is not compared. In
that run, modules start with parameters changed by one rounding step: results that this changes are
ill-conditioned, such as a step of Adam for a gradient that is zero except for rounding.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np

_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?|nan|[-+]?inf", re.IGNORECASE)
_GRADIENT_FUNCTION = re.compile(r"grad_fn=<\w+>")  # a compiled call has one of its own
SMALLEST = 1e-6  # a printed number below it counts as zero
Way: TypeAlias = Literal["eager", "perturbed", "compiled"]  # perturbed: in eager, too
# Runs the script in this way, and writes its tensors. Returns the exit status.
Run: TypeAlias = Callable[[Path, Way], int]
COARSENESS = "coarseness"  # of the dtypes: the distance from 1 to the next number


@dataclass(frozen=True, slots=True)
class _Ending:
    """The exit status of a run, what it printed, and its last tensors as float64."""

    status: int
    printed: str
    tensors: Mapping[str, np.ndarray]

    def differing(self, other: _Ending) -> set[str]:
        """The names of what differs by more than rounding."""
        limit = max(float(self.tensors.get(COARSENESS, 0.0)), 2.0**-23) ** 0.5
        names = (self.tensors.keys() | other.tensors.keys()) - {COARSENESS}
        wrong = {name for name in names if not self._agrees(other, name, limit)}
        ours, theirs = self.printed.splitlines(), other.printed.splitlines()
        wrong |= {
            f"printed line {number}"
            for number, pair in enumerate(zip(ours, theirs, strict=False), 1)
            if not _alike(*pair, limit)
        }
        wrong |= {"number of printed lines"} if len(ours) != len(theirs) else set()
        return wrong | ({"exit status"} if self.status != other.status else set())

    def _agrees(self, other: _Ending, name: str, limit: float) -> bool:
        one, two = self.tensors.get(name), other.tensors.get(name)
        if one is None or two is None:  # a gradient of zeros counts as None
            return not np.any(two if one is None else one)
        if one.shape != two.shape:
            return False
        # A gradient can be zero in exact arithmetic: compare its noise with other gradients.
        kind = re.split(r"[.,] ?", name)[-1]
        alike = [it for key, it in self.tensors.items() if key.endswith(kind)]
        largest = max(float(np.abs(it[np.isfinite(it)]).max(initial=0.0)) for it in alike)
        atol = limit * largest + SMALLEST**2
        return bool(np.allclose(one, two, rtol=0, atol=atol, equal_nan=True))


def _alike(one: str, other: str, limit: float) -> bool:
    """Whether two lines differ only in the last digits of numbers."""
    one, other = (_GRADIENT_FUNCTION.sub("", line) for line in (one, other))
    if _NUMBER.sub("0", one) != _NUMBER.sub("0", other):
        return False
    pairs = zip(_NUMBER.findall(one), _NUMBER.findall(other), strict=True)
    return all(
        np.isclose(float(ours), float(theirs), rtol=limit, atol=SMALLEST, equal_nan=True)
        for ours, theirs in pairs
    )


def verify(run: Run) -> tuple[int, bool, str]:
    """The exit status of the compiled run, whether both runs agree, and a line that says so."""
    eager, compiled = _ended(run, "eager"), _ended(run, "compiled")
    sys.stdout.write(compiled.printed)
    sys.stdout.flush()
    wrong = eager.differing(compiled)
    left_out = wrong & eager.differing(_ended(run, "perturbed")) if wrong else set()
    wrong -= left_out
    number = len(eager.tensors.keys() - {COARSENESS})
    compared = number + len(eager.printed.splitlines()) - len(left_out)
    what = f"what it prints and {number} tensors of its modules and optimizers"
    rest = ""
    if left_out:
        rest = (
            "; not compared, since eager with parameters off by one rounding differs, too:"
            f" {len(left_out)}, {_shown(left_out)}"
        )
    if not wrong and compared <= 0:
        return compiled.status, False, f"NOT VERIFIED: nothing is left of {what}{rest}"
    if not wrong:
        return compiled.status, True, f"verified: eager and compiled agree in {what}{rest}"
    line = f"NOT THE SAME: of {what}, {len(wrong)} differ: {_shown(wrong)}{rest}"
    return compiled.status, False, line


def _shown(names: set[str]) -> str:
    return ", ".join(sorted(names, key=lambda name: ("printed" not in name, name))[:5])


def _ended(run: Run, way: Way) -> _Ending:
    with tempfile.TemporaryDirectory() as folder:
        printed, tensors = Path(folder, "printed"), Path(folder, "tensors.npz")
        sys.stdout.flush()
        process = os.fork()
        if process == 0:  # in the fork, which ends here
            status = 1
            try:
                os.dup2(os.open(printed, os.O_WRONLY | os.O_CREAT), 1)
                status = run(tensors, way)
            finally:
                sys.stdout.flush()
                os._exit(status)
        status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
        kept = dict(np.load(tensors)) if tensors.exists() else {}
        return _Ending(status, printed.read_text(errors="replace"), kept)
