"""The command `hunt`: `fuzz --language python`."""

from __future__ import annotations

import inspect
from typing import Any, get_type_hints

from aliasproof.commands.fuzz import fuzz
from aliasproof.targets.names import PYTHON

OF_ATEN = ("language", "device", "group", "rules")  # options of `fuzz` that say nothing here


def hunt(**given: Any) -> int:
    """Search with programs as people write them: modules, gradients, closures, loops, state.

    Each program is called as a user calls it, several times; all that the caller can reach
    afterwards must be as in eager. What differs is reduced, and its script runs in a fresh process.
    A finding is a folder with finding.json, issue.md and reproducer.py, which needs torch alone.
    All is stored at once: a run that was ended or killed goes on where it was, with --run DIR.

    It is fuzz --language python, through aot-eager unless --target names another layer of
    torch.compile (identity, dynamo, aot-eager, inductor, reference), or your own pass or backend.
    Exit status: as that of fuzz.
    """
    return fuzz(language=PYTHON, **given)


_SIGNATURE = inspect.signature(fuzz, eval_str=True)
_OPTIONS = [it for it in _SIGNATURE.parameters.values() if it.name not in OF_ATEN]
hunt.__signature__ = _SIGNATURE.replace(parameters=_OPTIONS)  # type: ignore[attr-defined]
hunt.__annotations__ = {**get_type_hints(fuzz, include_extras=True)}
