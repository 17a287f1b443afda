"""Names of a user's own targets: `package.module:function`, `FILE.py:function`, and entry points.

Such a name says which code to import. So it must be *granted*: given on the command line, or
declared as an entry point by an installed package. A name that was only read from a file, such as
the target in a `finding.json`, is never imported.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import pkgutil
import re
import site
import sys
import sysconfig
import traceback
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType

from aliasproof.ir.errors import UserError, did_you_mean

# --- user modules ---------------------------------------------------------------------------------
#
# A user's file runs once per process, for whatever it is read.
#
# It may register operators, and these cannot be registered again: `torch.library.Library` refuses,
# and torch 2.13 can call an operator that was replaced, which kills the process.


_contents: dict[str, bytes] = {}  # of the files that ran here, by the name of the module


def module_of(path: Path, name: str) -> ModuleType:
    """The module of a file: the loaded one, or else a new one of this name.

    Like a script, a file can import modules from its own folder. A file that changed after it ran
    here runs again. Raises what the file raises, and `OSError` if it cannot be read.
    """
    path = path.resolve()
    content = path.read_bytes()
    # One that this process loaded, under any name, such as that of a test.
    for loaded, module in list(sys.modules.items()):
        file = getattr(module, "__dict__", {}).get("__file__")
        if not isinstance(file, str) or not file.endswith(path.name):
            continue  # fast path for most of thousands of modules
        if Path(file).resolve() == path and _contents.get(loaded, content) == content:
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


# --- user names -----------------------------------------------------------------------------------


GROUP = "aliasproof.targets"  # of entry points
EXPECTED = "PACKAGE.MODULE:FUNCTION or FILE.py:FUNCTION"
NAME_IT = "make it a name at the top level of a FILE.py, and give --target FILE.py:NAME"
LONGEST_MESSAGE = 300  # characters of an exception's message, in a message of ours

_granted: set[str] = set()


@dataclass(frozen=True, slots=True)
class CodeName:
    """The name of a user's target, and the location of its code: module or file, and attribute."""

    name: str
    module: str
    attribute: str

    @property
    def source(self) -> str:
        """The location as `module:name`. For an entry point, `name` is different."""
        return f"{self.module}:{self.attribute}"

    @property
    def in_file(self) -> bool:
        """Whether `module` is the path of a file."""
        return self.module.endswith(".py")


def code_name(name: str) -> CodeName | None:
    """The code that a name denotes, without its variants; None if it has not that form."""
    match = re.match(r"([^:]+\.py|[^:]+):([A-Za-z_][\w.]*)(?=:|$)", name)
    if match is None:
        return None
    module, attribute = match.groups()
    if module.endswith(".py"):  # ./passes.py and passes.py are the same file
        module = os.path.normpath(module)
    return CodeName(f"{module}:{attribute}", module, attribute)


def grant(names: Iterable[str]) -> None:
    """Let this process import the code of these names."""
    _granted.update(code.name for code in map(code_name, names) if code is not None)


def is_granted(code: CodeName) -> bool:
    """Whether this process may import the code."""
    return code.name in _granted


def require_grant(code: CodeName) -> None:
    """Raises `UserError` unless this process may import the code."""
    if not is_granted(code):
        raise UserError(
            f"target '{code.name}' is code of your own, and code that a file names is not imported;"
            f" if you trust it, add --target {code.name}"
        )


# --- entry points ---------------------------------------------------------------------------------


def installed() -> dict[str, EntryPoint]:
    """The entry points of installed packages, by name."""
    return {point.name: point for point in entry_points(group=GROUP)}


def of_entry_point(name: str) -> CodeName | None:
    """The code that an entry point of this name declares; None if there is none."""
    point = installed().get(name)
    return None if point is None else CodeName(name, point.module, point.attr)


# --- import ---------------------------------------------------------------------------------------


def load(code: CodeName) -> object:
    """Import the code of a name. Raises `UserError` if it cannot be imported."""
    # Standard output is only for the results of a command.
    with contextlib.redirect_stdout(sys.stderr):
        try:
            if code.in_file:
                require_file(code)
                # Not the file's own name: a package of another project may have this.
                name = re.sub(r"\W", "_", code.module.removesuffix(".py"))
                value: object = module_of(Path(code.module), f"aliasproof_target_{name}")
            else:
                value = _module(code)
            for part in code.attribute.split("."):
                if not hasattr(value, part):
                    known = [it for it, its in vars(value).items() if callable(its)]
                    own = [it for it in known if not it.startswith("_")]
                    hint = did_you_mean(part, known) or _as_file(code)
                    listed = f"; it defines {', '.join(own[:8])}" if own and not hint else hint
                    raise UserError(f"target '{code.name}': {code.module} has no '{part}'{listed}")
                value = getattr(value, part)
        except UserError:
            raise
        except SyntaxError as error:
            where = f"{error.filename}, line {error.lineno}"
            raise UserError(f"target '{code.name}': {where}: not Python: {error.msg}") from error
        except (Exception, SystemExit) as error:
            frame = frame_of_user(error)
            at = "" if frame is None else f" ({frame})"
            raised = f"{type(error).__name__}: {' '.join(str(error).split())}"[:LONGEST_MESSAGE]
            raise UserError(f"target '{code.name}': its import raises {raised}{at}") from error
    return value


def _module(code: CodeName) -> ModuleType:
    here = str(Path.cwd())
    if here not in sys.path and "" not in sys.path:
        sys.path.insert(0, here)  # as `python -m` does
    try:
        return importlib.import_module(code.module)
    except ModuleNotFoundError as error:
        # A module that the user's code imports may be missing, too.
        missing = error.name or ""
        if missing != code.module and not code.module.startswith(f"{missing}."):
            raise
        # The modules in the package, or folder, of the one that does not exist.
        parent, dot, _ = missing.rpartition(".")
        path = getattr(sys.modules.get(parent), "__path__", ()) if parent else [here]
        near = did_you_mean(
            missing, (f"{parent}{dot}{it.name}" for it in pkgutil.iter_modules(path))
        )
        raise UserError(
            f"target '{code.name}': there is no module '{missing}' in this folder or among the"
            f" installed packages{_as_file(code) or near or f'; give {EXPECTED}'}"
        ) from error


def _as_file(code: CodeName) -> str:
    """Advice if a package of the same name hides the file in this folder that the user means."""
    path = Path(*code.module.split(".")).with_suffix(".py")
    imported = getattr(sys.modules.get(code.module), "__file__", None)
    hidden = path.is_file() and str(path.resolve()) != imported
    return f"; for the file, give {path}:{code.attribute}" if hidden else ""


def require_file(code: CodeName) -> None:
    """Raises `UserError` if the code is in a file that does not exist."""
    if code.in_file and not Path(code.module).is_file():
        raise UserError(f"target '{code.name}': there is no file {code.module}; give {EXPECTED}")


def name_of_object(value: object) -> str | None:
    """The name by which a command imports an object of this process; None if no module has it."""
    for name, module in [("__main__", sys.modules["__main__"]), *sys.modules.items()]:
        if name.partition(".")[0] == "torch":  # backends of torch have names of their own
            continue
        for attribute, it in [*getattr(module, "__dict__", {}).items()]:
            if it is value:
                source: str | None = name
                if name == "__main__":  # a module or a file that runs; None in a notebook
                    spec = getattr(module, "__spec__", None)
                    source = getattr(module, "__file__", None) if spec is None else spec.name
                return None if source is None else f"{source}:{attribute}"
    return None


def folder_of(code: CodeName) -> str | None:
    """The folder that a script must add to `sys.path` to import this code; None if none."""
    if code.in_file:
        return str(Path(code.module).resolve().parent)
    origin = getattr(sys.modules[code.module], "__file__", None)
    if origin is None:
        return None
    path = Path(origin)
    ups = len(code.module.split(".")) - (path.name != "__init__.py")
    folder = str(path.resolve().parents[ups])
    # A fresh interpreter searches these anyway.
    return None if folder in {*site.getsitepackages(), _STANDARD} else folder


def source_of(code: CodeName, value: object) -> str:
    """The text of the file of this code, and of the files in its folder that it imports."""
    module = sys.modules.get(getattr(value, "__module__", None) or code.module)
    path = Path(code.module if code.in_file else getattr(module, "__file__", None) or "")
    if path.suffix != ".py" or not path.is_file():
        return ""
    text = path.read_text(encoding="utf-8", errors="replace")
    imports = "\n".join(re.findall(r"^[ \t]*(?:from|import)\b.*", text, re.MULTILINE))
    beside = [it for it in sorted(path.parent.glob("*.py")) if it != path]
    names = {*re.findall(r"\w+", imports)}
    read = [it.read_text(encoding="utf-8", errors="replace") for it in beside if it.stem in names]
    return "\n".join((text, *read))


# --- frames ---------------------------------------------------------------------------------------

_STANDARD = sysconfig.get_paths()["stdlib"]


def frame_of_user(error: BaseException) -> str | None:
    """The innermost frame of an exception in the user's code, as `FILE:LINE in FUNCTION`.

    Must be called by the function that called the user's code, whose frame is skipped.
    """
    torch = sys.modules.get("torch")
    of_torch = "<" if torch is None else str(Path(str(torch.__file__)).parent)
    for frame in reversed(traceback.extract_tb(error.__traceback__)[1:]):
        file = frame.filename
        standard = file.startswith(_STANDARD) and "-packages" not in file
        if not (file.startswith(("<", of_torch)) or file == __file__ or standard):
            return f"{file}:{frame.lineno} in {frame.name}"
    return None
