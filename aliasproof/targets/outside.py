"""Compilers beyond torch: what must be installed for each, and whether that can be imported.

Each has an extra of its own name in `pyproject.toml`, which says the versions. Nothing of it is
imported unless its target is asked for.
"""

from __future__ import annotations

import functools
import subprocess
import sys
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires, version

from packaging.requirements import Requirement

LOADS_WITHIN = 120.0  # seconds for the import in a process of its own


@dataclass(frozen=True, slots=True)
class Outside:
    """What a target needs: the extra that has it, and the modules to import.

    `before` is a line of Python that a process runs before it imports them.
    """

    extra: str
    modules: tuple[str, ...]
    before: str = ""

    def missing(self) -> str | None:
        """What is not installed, or in another version, and how to install it; None if nothing."""
        return _missing(self.extra)

    @property
    def loaded(self) -> bool:
        """Whether this process has imported the modules."""
        return all(module in sys.modules for module in self.modules)

    def broken(self) -> str | None:
        """Why the modules cannot be imported, tried in a process of its own; None if they can."""
        imports = "import torch; import " + ", ".join(self.modules)
        source = f"{self.before}; {imports}" if self.before else imports
        try:
            done = subprocess.run(
                [sys.executable, "-c", source],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=LOADS_WITHIN,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return f"cannot be imported: `{source}` takes over {LOADS_WITHIN:.0f} s"
        if done.returncode == 0:
            return None
        last = done.stderr.strip().rpartition("\n")[2] or f"exit status {done.returncode}"
        how = f"signal {-done.returncode}" if done.returncode < 0 else last
        return f"cannot be imported: `{source}` ends with {how}"


@functools.cache
def _missing(extra: str) -> str | None:
    install = f"pip install 'aliasproof[{extra}]'"
    wanted = [
        requirement
        for requirement in map(Requirement, requires("aliasproof") or ())
        if requirement.marker is not None
        and requirement.marker.evaluate({"extra": extra})
        and not requirement.marker.evaluate({"extra": ""})
    ]
    if not wanted:
        return f"needs the extra '{extra}', which this installation does not know: {install}"
    for requirement in wanted:
        try:
            found = version(requirement.name)
        except PackageNotFoundError:
            return f"needs {requirement.name}: {install}"
        if not requirement.specifier.contains(found, prereleases=True):
            asked = f"{requirement.name}{requirement.specifier}"
            return f"needs {asked}, and finds {found}: {install}"
    return None
