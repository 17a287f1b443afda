"""The command `doctor`: the versions here, what works, and what is off and why."""

from __future__ import annotations

from collections.abc import Iterator

from aliasproof.commands.options import Json
from aliasproof.reports.console import print_lines, results, write_json

PACKAGES = (
    *("z3-solver", "hypothesis", "numpy"),
    *("executorch", "onnxruntime", "openvino", "apache-tvm"),
)


def doctor(json: Json = False) -> int:
    """Show the versions here, what works, and what is off and why.

    Exit status: 0 nothing is off, 1 something is: this torch has moved a private part, or a plug-in
    is broken. What this machine lacks, such as CUDA or an optional compiler, is shown, but not off.
    """
    from aliasproof import torch_parts
    from aliasproof.commands.command_line import versions

    off = torch_parts.off()
    here: list[str] = []
    lacking: list[tuple[str, str]] = []
    if torch_parts.EVERYTHING not in dict(off):
        here, lacking = _targets(off)
        off += _patches()
    if json:
        write_json({"versions": versions(), "works": here, "lacking": lacking, "off": off})
        return int(bool(off))
    lines = [versions(), _packages(), f"works: {', '.join(here) or 'nothing'}"]
    reasons = dict.fromkeys(reason for _, reason in lacking)
    for reason in reasons:
        names = ", ".join(name for name, why in lacking if why == reason)
        lines.append(f"not here: {names}: {reason}")
    lines += [f"off: {name} {reason}" for name, reason in off] or ["off: nothing"]
    print_lines(results(), "\n".join(lines))
    return int(bool(off))


def _targets(off: list[tuple[str, str]]) -> tuple[list[str], list[tuple[str, str]]]:
    """The targets that run here, and those that do not, each with the reason if it is not off."""
    from aliasproof.plugins import BROKEN
    from aliasproof.targets.registry import TARGETS

    reasons = {name: target.unavailable() for name, target in TARGETS.items()}
    off += sorted(BROKEN.items())
    known = dict(off)
    missing = [(name, why) for name, why in reasons.items() if why]
    here = [name for name, why in reasons.items() if why is None]
    return here, [(name, why) for name, why in missing if f"target {name}" not in known]


def _patches() -> Iterator[tuple[str, str]]:
    """The patches of known bugs that are not applied, each with the reason."""
    from aliasproof.corpus.bug_files import known_bugs
    from aliasproof.plugins import plugins
    from aliasproof.torch_parts import why_off

    for bug in known_bugs().values():
        if bug.layer not in plugins() and why_off(f"patches {bug.layer}") is None:
            reason = bug.why_no_patch()
            if reason is not None:
                yield f"the patch of {bug.identifier}", f"is off: {reason}"


def _packages() -> str:
    """The versions of what aliasproof uses beside torch, and the C++ compiler of Inductor."""
    import os
    import shutil

    from aliasproof.commands.command_line import version_of

    versions = {name: version_of(name) for name in PACKAGES}
    found = [f"{name} {version}" for name, version in versions.items() if version]
    compiler = shutil.which(os.environ.get("CXX", "g++"))
    return ", ".join((*found, f"C++ compiler: {compiler or 'none'}"))
