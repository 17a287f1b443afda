"""The versions of a node of a cluster: only equal ones give equal results."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

Versions: TypeAlias = Mapping[str, str]

MISSING = "none"


def looking() -> Callable[[], dict[str, str]]:
    """A function that gives the versions of the machine on which it runs.

    It is a function within a function, which Ray sends with its code: it must run where aliasproof
    is another one, or missing.
    """

    def look() -> dict[str, str]:
        import hashlib  # noqa: PLC0415 - it brings all that it needs
        import os  # noqa: PLC0415
        from importlib import metadata, util  # noqa: PLC0415
        from pathlib import Path  # noqa: PLC0415

        package = util.find_spec("aliasproof")
        ours = "none"
        if package is not None and package.origin is not None:
            root = Path(package.origin).parent
            # In a checkout, some of its packages are symbolic links.
            files = [
                Path(folder, name)
                for folder, _, names in os.walk(root, followlinks=True)
                for name in names
            ]
            sources = hashlib.sha256()
            for file in sorted(file for file in files if file.suffix == ".py"):
                sources.update(f"{file.relative_to(root)}\n".encode() + file.read_bytes())
            ours = f"with sources {sources.hexdigest()[:12]}"
        try:
            torch = metadata.version("torch")
        except metadata.PackageNotFoundError:
            torch = "none"
        return {"torch": torch, "aliasproof": ours}

    return look


def difference(name: str, there: Versions, here: Versions) -> str | None:
    """Why the node of this name cannot be used; None if it can."""
    for package, version in here.items():
        if there[package] == MISSING:
            return f"node {name} has no {package}"
        if there[package] != version:
            return f"node {name} has {package} {there[package]}, and this machine {version}"
    return None
