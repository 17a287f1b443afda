"""The functions: which there are, and each with a world of its own.

A file `functions_*.py` beside this one is ordinary code. A function `f_inputs` in it makes the
inputs of `f`, which is a function, or a module. So `aliasproof check functions_caches.py --function
ring_buffer --inputs ring_buffer_inputs` checks one of them.
"""

from __future__ import annotations

import ast
import importlib.util
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

FOLDER = Path(__file__).parent
INPUTS = "_inputs"
NEEDS_TRANSFORMERS = "transformers"
SEED = 20
_CALLED_AS = "people_functions_loaded"


@dataclass(frozen=True, slots=True)
class World:
    """A file that was run anew, a function of it, and what its `inputs` function returned."""

    file: ModuleType
    function: Callable[..., Any]
    inputs: Any


def names() -> list[str]:
    """All functions, as 'caches.ring_buffer'; those of `transformers` only if it is installed."""
    found = []
    for path in sorted(FOLDER.glob("functions_*.py")):
        group = path.stem.partition("_")[2]
        if group == NEEDS_TRANSFORMERS and importlib.util.find_spec(group) is None:
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        defined = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
        found += [f"{group}.{name.removesuffix(INPUTS)}" for name in defined if _makes(name)]
    return found


def _makes(name: str) -> bool:
    return name.endswith(INPUTS)


def path_of(name: str) -> Path:
    """The file of a function."""
    return FOLDER / f"functions_{name.partition('.')[0]}.py"


def world(name: str) -> World:
    """The function in a fresh world: nothing that a run leaves behind is there."""
    path, function = path_of(name), name.partition(".")[2]
    spec = importlib.util.spec_from_file_location(f"{_CALLED_AS}_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    file = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = file  # dataclasses look up the module of a class
    torch.manual_seed(SEED)
    spec.loader.exec_module(file)
    torch.manual_seed(SEED)
    return World(file, getattr(file, function), getattr(file, function + INPUTS)())
