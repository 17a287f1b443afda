"""`connect`: joins a Ray cluster, with an authentication token.

Ray sends tasks and results pickled, so whoever may connect to a cluster runs code on its nodes. An
authentication token decides who may connect (docs/cluster.md).
"""

from __future__ import annotations

import importlib
import importlib.util
import logging
import os
import re
import socket
from collections.abc import Callable, Mapping
from typing import TypeAlias

from aliasproof.campaigns.run.executor import MakeExecutor
from aliasproof.ir.errors import UserError

MODE = "RAY_AUTH_MODE"
PORTS = {"": 6379, "ray://": 10001}
SECONDS = 5.0  # that the head has to answer
AUTO = "auto"


def connect(address: str, workers: int | None) -> MakeExecutor:
    """Join the cluster at this address: `auto`, `HOST:PORT` or `ray://HOST:PORT`.

    A campaign then runs `workers` tasks at the same time on each node; None for one per CPU that
    Ray has there. Raises `UserError` if Ray is not installed, if nobody answers, or if there is no
    authentication token.
    """
    if importlib.util.find_spec("ray") is None:
        raise UserError("--cluster needs Ray: pip install 'aliasproof[cluster]'")
    _require_answer(address)
    # Set before the import of Ray, which reads it.
    os.environ.setdefault(MODE, "token")
    if os.environ[MODE].lower() == "disabled":
        raise UserError(
            f"{MODE}=disabled: everyone who reaches the cluster could run code on it; start its"
            f" nodes with {MODE}=token, and unset it here"
        )
    _join(address)
    cluster = importlib.import_module("aliasproof.campaigns.run.cluster")
    # Cluster workers write nothing into the folder of the run.
    return lambda plan, folder, note: cluster.ClusterWorkers(plan, workers, note)


def _join(address: str) -> None:
    ray = importlib.import_module("ray")
    if ray.is_initialized():
        return
    try:
        ray.init(address, log_to_driver=False, logging_level=logging.CRITICAL)
    except ray.exceptions.AuthenticationError as error:
        raise UserError(
            "--cluster needs the authentication token of the cluster: put it into RAY_AUTH_TOKEN,"
            " into a file that RAY_AUTH_TOKEN_PATH names, or into ~/.ray/auth_token; 'ray"
            " get-auth-token --generate' makes one"
        ) from error
    except (ConnectionError, RuntimeError, ValueError) as error:
        said = " ".join(str(error).split())
        if address == AUTO:
            raise UserError(f"--cluster auto: {said}; give the address of the head") from error
        raise UserError(
            f"--cluster {address}: {said}; is the authentication token that of the cluster, and"
            " does a node of the cluster run on this machine (ray start --address=HOST:PORT"
            " --num-cpus=0)?"
        ) from error


def _require_answer(address: str) -> None:
    """Raises `UserError` unless something listens. Ray itself would try for minutes."""
    given = os.environ.get("RAY_ADDRESS", AUTO) if address == AUTO else address
    if given == AUTO:
        return
    match = re.fullmatch(r"(ray://)?\[?([\w.:-]+?)\]?(?::(\d+))?", given)
    if match is None:
        raise UserError(f"--cluster {given}: give auto, HOST:PORT or ray://HOST:PORT")
    scheme, host, port = match[1] or "", match[2], match[3]
    try:
        socket.create_connection((host, int(port or PORTS[scheme])), SECONDS).close()
    except (OSError, OverflowError) as error:
        raise UserError(
            f"--cluster {address}: nobody answers at {host} ({error}); give the address that 'ray"
            " start --head' prints"
        ) from error


# --- cluster versions -----------------------------------------------------------------------------
#
# The versions of a node of a cluster: only equal ones give equal results.


Versions: TypeAlias = Mapping[str, str]

MISSING = "none"


def version_reader() -> Callable[[], dict[str, str]]:
    """Return a function that returns the versions of the machine on which it runs.

    It is a nested function, which Ray sends with its code: it must run where aliasproof has another
    version, or is missing.
    """

    def look() -> dict[str, str]:
        import hashlib  # noqa: PLC0415 - the function must bring all that it needs
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
