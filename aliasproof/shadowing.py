"""Whether another package hides one of ours: ours are at the top level, and their names are plain.

A project with a package `targets` of its own can come first on Python's path. Then `import targets`
gives that one, and what follows is an error about a missing name. So this is looked at before.
"""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path

# `tests/aliasproof/test_shadowing.py` compares it with the packages that are installed.
OWN = (
    "aliasproof",
    "campaigns",
    "corpus",
    "faults",
    "generators",
    "oracles",
    "programs",
    "reduction",
    "reference_pass",
    "reports",
    "targets",
    "trials",
)
_HERE = Path(__file__).resolve().parent.parent


class Shadowed(ImportError):
    """A package of aliasproof is hidden by another one of the same name."""


def require_own_packages() -> None:
    """Raises `Shadowed` if Python finds another package in place of one of ours."""
    for name in OWN:
        found = _origin(name)
        if found is not None and not found.is_relative_to(_HERE / name):
            raise Shadowed(
                f"aliasproof has a package '{name}', and Python finds {found} in its place. Rename"
                f" that one, or move it into a package (project/{name}), or take its folder"
                f" {_folder_of(found, name)} off Python's path (sys.path, PYTHONPATH; pytest adds"
                " the folder of a conftest.py, 'python -m' the working directory)",
                name=name,
                path=str(found),
            )


def hidden_by_ours(message: str) -> str | None:
    """What to do about an import error, if a package of ours hides one of the project; else None.

    Python says which file it took, or which module is not there.
    """
    found = re.search(r"from '(\w+)[\w.]*' \(|No module named '(\w+)\.", message)
    name = "" if found is None else found[1] or found[2]
    if name not in OWN or name == "aliasproof":
        return None
    file = _origin(name)
    if file is None or not file.is_relative_to(_HERE):
        return None
    return (
        f"Python finds the package '{name}' of aliasproof ({file}). If your project has one of that"
        " name, put its folder first on Python's path (the ini option 'pythonpath' of pytest), or"
        f" move it into a package (project/{name})."
    )


def _origin(name: str) -> Path | None:
    """The file of a package that is imported, or that would be; None if it has none."""
    module = sys.modules.get(name)
    spec = importlib.util.find_spec(name) if module is None else module.__spec__
    origin = getattr(module, "__file__", None) or getattr(spec, "origin", None)
    return None if origin is None else Path(origin).resolve()


def _folder_of(file: Path, name: str) -> Path:
    """The folder on the path in which a package or a module was found."""
    return file.parent.parent if file.name == "__init__.py" else file.parent
