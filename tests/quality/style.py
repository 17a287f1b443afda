"""Rules that no linter has: words, the total size, and the names by which rooms are imported.

`make lint` runs it. Another folder than this repository may be given: `python style.py FOLDER`.
"""

import ast
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]

# Words of a private dialect, and the field's words for them. Only for text that users read:
# messages, help, documentation.
REPLACED = {
    # Ray calls secrets of a cluster tokens: these are allowed.
    r"(?<!authentication )(?<!auth-)(?<!=)\btokens?\b": "symbolic value, value hash",
    r"lets? numbers into|in(to)? the open": "reads tensor data",
    r"\bhazards?\b": "aliasing scenario (generators), clobbers (the oracle)",
    r"\b(spoil\w*|bur(y|ies|ied))\b": "clobbers, attributes",
    r"\b(regrets?|second thoughts?)\b": "backtracking",
    r"\b(goes|go|depends?|hangs?) (by|on) (the )?numbers\b": "is data-dependent",
    r"\b(lies|lie|lay|stands|stood)\b": "is at; layout, location",
    r"\b(anchored|how-manieth)\b": "reachable only by as_strided; index",
    r"\bheld (by|tensors?)\b": "captured tensor",
    r"to be had|\bbut for\b|\bwhat it holds\b": "is valid on, except, contents",
    r"\b(no|one|a) (single )?meaning\b": "undefined in eager, defined in eager",
    r"right in numbers": "values match",
    r"\bsame place\b|\bplaced\b": "same location, located",
}
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef)
KINDS = (*DOCUMENTED, ast.Constant, ast.Import, ast.ImportFrom)


class Module(NamedTuple):
    """A file with Python code, below a folder."""

    path: Path
    text: str
    tree: ast.Module
    nodes: Sequence[ast.AST]  # of KINDS


class Mistake(NamedTuple):
    path: Path
    line: int
    rule: str
    advice: str


# --- words ----------------------------------------------------------------------------------------


def replaced_words(path: Path, line: int, text: str) -> Iterator[Mistake]:
    """The replaced words in a text that begins at this line."""
    for pattern, instead in REPLACED.items():
        for match in re.finditer(pattern, text, re.IGNORECASE):
            context = " ".join(text[max(match.start() - 30, 0) : match.end() + 30].split())
            advice = f"'{match[0]}' in '{context}': write {instead}"
            yield Mistake(path, line + text.count("\n", 0, match.start()), "word", advice)


def user_strings(module: Module) -> Iterator[ast.Constant]:
    """The text of a module that users can see: string constants that are not docstrings."""
    docstrings = {
        id(node.body[0].value)
        for node in module.nodes
        if isinstance(node, DOCUMENTED)
        and node.body
        and isinstance(node.body[0], ast.Expr)
        # The help of a command, and the summary of a planted fault, are docstrings.
        and module.path.name != "command_line.py"
        and module.path.parent.name != "faults"
    }
    for node in module.nodes:
        if not isinstance(node, ast.Constant) or id(node) in docstrings:
            continue
        # A string without a space is a name or a key, not text.
        if isinstance(node.value, str) and " " in node.value.strip():
            yield node


# --- size -----------------------------------------------------------------------------------------


def over_budget(root: Path, sources: Iterable[Module]) -> Iterator[Mistake]:
    """More lines of source, benchmarks included, than `source_lines` in pyproject.toml allows."""
    project = root / "pyproject.toml"
    budget = tomllib.loads(project.read_text(encoding="utf-8"))["tool"]["style"]["source_lines"]
    lines = sum(module.text.count("\n") for module in sources)
    if lines > budget:
        advice = f"{lines} lines of source, at most {budget}: remove some, or say what they buy"
        yield Mistake(project.relative_to(root), 1, "size", advice)


# --- imports --------------------------------------------------------------------------------------


def imports_past_the_package(module: Module, rooms: set[str]) -> Iterator[Mistake]:
    """A room at the top of the repository is imported from `aliasproof`, or it is loaded twice."""
    for node in module.nodes:
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module is not None:
            names = [node.module]
        else:
            continue
        for name in names:
            if name.split(".")[0] in rooms:
                advice = f"import 'aliasproof.{name}': '{name}' would be loaded a second time"
                yield Mistake(module.path, node.lineno, "import", advice)


# --- all ------------------------------------------------------------------------------------------


def modules_below(root: Path, folders: Iterable[Path]) -> list[Module]:
    paths = [path for folder in folders for path in sorted(folder.rglob("*.py"))]
    modules = []
    for path in paths:
        text = path.read_text(encoding="utf-8")
        tree = ast.parse(text, path)
        nodes = [node for node in ast.walk(tree) if isinstance(node, KINDS)]
        modules.append(Module(path.relative_to(root), text, tree, nodes))
    return modules


def mistakes(root: Path) -> Iterator[Mistake]:
    """All mistakes in the packages, tests and documents of a repository."""
    sources = modules_below(root, sorted(path.parent for path in root.glob("*/__init__.py")))
    tests = modules_below(root, [root / "tests"])
    rooms = {path.name for path in (root / "aliasproof").iterdir() if path.is_symlink()}
    yield from over_budget(root, sources)
    for module in sources:
        for node in user_strings(module):
            yield from replaced_words(module.path, node.lineno, str(node.value))
    for module in [*sources, *tests]:
        yield from imports_past_the_package(module, rooms)
    for path in [*sorted(root.glob("*.md")), *sorted((root / "docs").glob("*.md"))]:
        yield from replaced_words(path.relative_to(root), 1, path.read_text(encoding="utf-8"))


def main(arguments: Sequence[str]) -> int:
    reported = list(mistakes(Path(arguments[0]) if arguments else ROOT))
    for path, line, rule, advice in reported:
        print(f"{path}:{line}: {rule}: {advice}")
    return 1 if reported else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
