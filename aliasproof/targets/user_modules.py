"""A file of a user runs once in a process, whatever it is read for.

It may register operators. These cannot be registered again: `torch.library.Library` refuses, and
torch 2.13 can call an operator that was replaced, which ends the process.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

_contents: dict[str, bytes] = {}  # of the files that ran here, by the names of their modules


def module_of(path: Path, name: str) -> ModuleType:
    """The module of a file: the one that this process has, or else a new one of this name.

    Like a script, a file can import modules from its own folder. A file that was changed after it
    ran here runs again. Raises what the file raises, and `OSError` if it cannot be read.
    """
    path = path.resolve()
    content = path.read_bytes()
    module = _present(path, content)
    if module is not None:
        return module
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None  # the name of the file ends in .py
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickle look up the module of a class
    if sys.path[:1] != [str(path.parent)]:
        sys.path.insert(0, str(path.parent))
    # Leave no __pycache__ among the user's files.
    write_bytecode, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    finally:
        sys.dont_write_bytecode = write_bytecode
    _contents[name] = content
    return module


def _present(path: Path, content: bytes) -> ModuleType | None:
    """The module that this process made of a file, by any name, such as that of a test."""
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__dict__", {}).get("__file__")
        if not isinstance(file, str) or not file.endswith(path.name):
            continue  # most of thousands
        if Path(file).resolve() == path and _contents.get(name, content) == content:
            return module
    return None
