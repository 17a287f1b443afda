"""Rules that no linter knows: words, unique names, and the size of files and functions."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = sorted(path.parent for path in ROOT.glob("*/__init__.py"))
SOURCES = [path for package in PACKAGES for path in sorted(package.rglob("*.py"))]
TESTS = sorted((ROOT / "tests").rglob("*.py"))
TEXTS = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]

# --- words ----------------------------------------------------------------------------------------

# Words that readers had to learn here, and the field's words for the same. Only in text that users
# read: messages, help, documentation.
REPLACED = {
    # Those that let into a cluster are meant where Ray calls them so.
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


def strings(path: Path) -> Iterator[str]:
    """The text of a module that users can see: string constants that are not docstrings."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef)
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, documented)
        and node.body
        and isinstance(node.body[0], ast.Expr)
        # The help of a command, and the summary of a planted fault, are docstrings.
        and path.name != "command_line.py"
        and path.parent.name not in {"commands", "faults"}
    }
    for node in ast.walk(tree):
        if not isinstance(node, ast.Constant) or id(node) in docstrings:
            continue
        # A string without a space is a name or a key, not text.
        if isinstance(node.value, str) and " " in node.value.strip():
            yield node.value


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", [*SOURCES, *TEXTS], ids=name)
def test_users_read_the_fields_words(path: Path) -> None:
    texts = strings(path) if path.suffix == ".py" else [path.read_text(encoding="utf-8")]
    found = [
        f"'{match[0]}' in '{text[max(match.start() - 30, 0) : match.end() + 30]}': write {instead}"
        for text in texts
        for pattern, instead in REPLACED.items()
        for match in re.finditer(pattern, text, re.IGNORECASE)
    ]
    assert not found, "\n".join(found)


# --- one name, one meaning ------------------------------------------------------------------------

# The judge and the accused each have their own, on purpose.
PAIRS = {"regions", "metadata", "invariants", "Region", "Facts"}
# Named as the command, and as the package that the command shows.
COMMANDS = {"faults", "targets", "fuzz"}


def test_no_two_modules_have_one_name() -> None:
    homes = defaultdict(list)
    for path in SOURCES:
        if path.name not in {"__init__.py", "__main__.py"}:
            homes[path.stem].append(name(path))
    twice = {stem: paths for stem, paths in homes.items() if len(paths) > 1}
    assert not twice.keys() - PAIRS - COMMANDS, twice


def test_no_two_classes_have_one_name() -> None:
    homes = defaultdict(list)
    for path in SOURCES:
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef):
                homes[node.name].append(name(path))
    twice = {each: paths for each, paths in homes.items() if len(paths) > 1}
    assert not twice.keys() - PAIRS, twice


# --- sizes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [*SOURCES, *TESTS], ids=name)
def test_files_are_short(path: Path) -> None:
    assert path.read_text(encoding="utf-8").count("\n") <= 400


@pytest.mark.parametrize("path", SOURCES, ids=name)
def test_functions_are_short(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    long = [
        node.name
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef)
        and node.end_lineno is not None
        and node.end_lineno - node.lineno >= 40
    ]
    assert not long
