"""The reading order of the essay is complete, and no file needs one that comes later."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from aliasproof import reference_pass

ROOT = Path(reference_pass.__file__).parent
ASSEMBLES = {"pipeline", "memory_plan", "__init__"}  # not part of the algorithm
FOLDERS = {"calls": "- ", "planning": "- "}


def named(part: str) -> list[str]:
    """The modules that a part of the docstring names, each once."""
    return list(dict.fromkeys(re.findall(r"`([a-z_]+)`", part)))


def parts() -> tuple[list[str], list[str]]:
    """The files of the algorithm, and those of `calls`, in the order of the docstring."""
    text = reference_pass.__doc__ or ""
    order, _, rest = text.partition("It uses the words of")
    words = re.findall(r"^- (.*(?:\n  .*)*)", rest.partition("`pipeline`")[0], re.MULTILINE)
    return named("".join(re.findall(r"^\d+\. (.*(?:\n   .*)*)", order, re.MULTILINE))), named(
        "".join(words)
    )


def modules(folder: Path) -> set[str]:
    return {file.stem for file in folder.glob("*.py")}


def imports(module: str) -> set[str]:
    """The files of the algorithm that one imports when it is loaded."""
    tree = ast.parse((ROOT / f"{module}.py").read_text())
    return {
        node.module.rpartition(".")[2]
        for node in tree.body  # types alone are imported within an `if`
        if isinstance(node, ast.ImportFrom) and node.module
    } & modules(ROOT)


def test_the_reading_order_names_each_file() -> None:
    algorithm, words = parts()
    assert set(algorithm) == modules(ROOT) - ASSEMBLES
    assert set(words) == modules(ROOT / "calls") - ASSEMBLES


def test_no_file_needs_one_that_comes_later() -> None:
    algorithm, _ = parts()
    for index, module in enumerate(algorithm):
        assert imports(module) <= set(algorithm[:index]), module


def lines(folder: Path) -> int:
    return sum(len(file.read_text().splitlines()) for file in folder.glob("*.py"))


def test_the_essay_is_short() -> None:
    assert len(modules(ROOT)) <= 25
    assert lines(ROOT) <= 4_700
    assert lines(ROOT / "calls") <= 1_350
