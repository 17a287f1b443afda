"""Compilers beyond torch: each is a plug-in, an entry point of the group `aliasproof.compilers`.

Nothing here imports torch or a compiler, so help texts and usage errors can name the targets of
plug-ins. A compiler must be installed for its targets, and is imported when one of them is used.
"""

from __future__ import annotations

import functools
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, entry_points, requires, version
from importlib.resources import files
from pathlib import Path

GROUP = "aliasproof.compilers"  # of entry points
LOADS_WITHIN = 120.0  # seconds that the import may take in a process of its own


@dataclass(frozen=True, slots=True)
class CompilerPlugin:
    """A compiler beyond torch, as its entry point returns it.

    `targets` maps the name of each target to the location of its `Target`: `MODULE:NAME` in
    `package`. These modules are imported with torch, and must not import the compiler.
    `all-compilers` includes the target that has the name of the plug-in.

    To load the compiler, a process runs `before` (a line of Python) and imports `modules`. The
    extra `extra` of `distribution` requires the compiler; a distribution that always requires it
    needs no extra. `options` maps the name of each option of its targets to a summary: each option
    is a variant, and a build finds the chosen ones in `Tracing.options`. The package may have
    known bugs in the folder `bugs`, and their patches in the module `patches`. `page`: the manual.
    """

    name: str
    package: str
    targets: Mapping[str, str] = field(hash=False)
    modules: Sequence[str] = ()
    distribution: str = "aliasproof"
    extra: str = ""
    before: str = ""
    options: Mapping[str, str] = field(default_factory=dict, hash=False)
    page: str = ""

    @property
    def bugs(self) -> Path:
        """The folder of its known bugs."""
        return Path(str(files(self.package))) / "bugs"

    def missing(self) -> str | None:
        """What is missing or has another version, and how to install it; None if nothing."""
        return _missing(self.distribution, self.extra)

    @property
    def loaded(self) -> bool:
        """Whether this process has imported the compiler."""
        return all(module in sys.modules for module in self.modules)

    def broken(self) -> str | None:
        """Try the import in a process of its own: why it fails, or None if it succeeds."""
        imports = "import " + ", ".join(("torch", *self.modules))
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


# By the name of a plug-in or of one of its targets: why it is unavailable.
BROKEN: dict[str, str] = {}


@functools.cache
def plugins() -> dict[str, CompilerPlugin]:
    """The plug-ins of this environment, by name. One that cannot be imported is `BROKEN`."""
    found = {}
    for point in sorted(entry_points(group=GROUP)):
        try:
            plugin = point.load()
        except Exception as error:  # noqa: BLE001 - one line for a mistake of another package
            BROKEN[point.name] = f"{point.value} raises {type(error).__name__}: {error}"
            continue
        if isinstance(plugin, CompilerPlugin) and point.name == plugin.name in plugin.targets:
            found[plugin.name] = plugin
        else:
            BROKEN[point.name] = f"{point.value} is no CompilerPlugin with a target of this name"
    return found


@functools.cache
def _missing(distribution: str, extra: str) -> str | None:
    if not extra:  # the distribution requires the compiler, so it was installed with it
        return None
    from packaging.requirements import Requirement  # noqa: PLC0415 - help texts do without

    install = f"pip install '{distribution}[{extra}]'"
    wanted = [
        requirement
        for requirement in map(Requirement, requires(distribution) or ())
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
