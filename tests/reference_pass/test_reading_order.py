"""The reading order of the essay is complete, and no file needs a later one."""

import ast
import re
from pathlib import Path

from aliasproof import reference_pass

ROOT = Path(reference_pass.__file__).parent
ASSEMBLES = {"pipeline", "memory_plan", "__init__"}  # not part of the algorithm


def named(part: str) -> list[str]:
    """The modules that a part of the docstring names, each once."""
    return list(dict.fromkeys(re.findall(r"`([a-z_]+)`", part)))


def algorithm() -> list[str]:
    """The files of the algorithm, in the order of the docstring."""
    text = (reference_pass.__doc__ or "").partition("It uses the words of")[0]
    return named("".join(re.findall(r"^\d+\. (.*(?:\n   .*)*)", text, re.MULTILINE)))


def listed(after: str) -> set[str]:
    """The files in the list after a sentence of the docstring."""
    text = (reference_pass.__doc__ or "").partition(after)[2].split("\n\n")[1]
    return set(named("".join(re.findall(r"^- (.*?):", text, re.MULTILINE | re.DOTALL))))


def modules(folder: Path) -> set[str]:
    return {file.stem for file in folder.glob("*.py")}


def imports(module: str) -> set[str]:
    """The files of the algorithm that a module imports when it is loaded."""
    tree = ast.parse((ROOT / f"{module}.py").read_text())
    return {
        node.module.rpartition(".")[2]
        for node in tree.body  # imports of types are inside an `if`
        if isinstance(node, ast.ImportFrom) and node.module
    } & modules(ROOT)


def test_the_reading_order_names_each_file() -> None:
    assert set(algorithm()) == modules(ROOT) - ASSEMBLES
    assert listed("It uses the words of `calls`") == modules(ROOT / "calls") - ASSEMBLES
    assert listed("The folder `planning` goes on") == modules(ROOT / "planning") - ASSEMBLES


def test_no_file_needs_one_that_comes_later() -> None:
    order = algorithm()
    for index, module in enumerate(order):
        assert imports(module) <= set(order[:index]), module


def lines(folder: Path) -> int:
    files = [folder / f"{module}.py" for module in modules(folder) - ASSEMBLES]
    return sum(len(file.read_text().splitlines()) for file in files)


def needed_by(module: str) -> set[str]:
    """The files that are loaded with a module: its imports, and theirs."""
    found, pending = set(), [module]
    while pending:
        name = pending.pop()
        if name in found:
            continue
        found.add(name)
        tree = ast.parse((ROOT / f"{name.replace('.', '/')}.py").read_text())
        named = [node.module or "" for node in tree.body if isinstance(node, ast.ImportFrom)]
        prefix = "aliasproof.reference_pass."
        pending += [name.removeprefix(prefix) for name in named if name.startswith(prefix)]
    return found


def test_the_essay_is_short() -> None:
    assert len(modules(ROOT)) <= 20
    assert lines(ROOT) <= 3_000
    assert sum(map(lines, (ROOT, ROOT / "calls", ROOT / "planning"))) <= 7_034
    files = [ROOT / f"{name.replace('.', '/')}.py" for name in needed_by("reinplace")]
    assert sum(len(file.read_text().splitlines()) for file in files) <= 2_200
