"""References of our modules to parts of torch, and a torch in which some of them have moved.

This module is imported before any module of `aliasproof`, also by processes that a command starts.
"""

import ast
import os
from collections.abc import Collection, Iterator
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType

ROOT = Path(__file__).parents[2]
MOVED = "torch_part_moved_in_test"  # the environment variable with its name


def references(tree: ast.Module) -> Iterator[tuple[str, ast.AST]]:
    """Each part of torch that is imported, read, or named in a string, and the node for it."""
    known = {"torch": "torch"}
    nodes = list(ast.walk(tree))
    for node in nodes:
        if isinstance(node, ast.Import):
            for each in node.names:
                yield each.name, each
                known |= {each.asname: each.name} if each.asname else {}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for each in node.names:
                yield f"{node.module}.{each.name}", each
                known[each.asname or each.name] = f"{node.module}.{each.name}"
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value, node
    for node in nodes:
        words: list[str] = []
        value = node
        while isinstance(value, ast.Attribute):
            words.insert(0, value.attr)
            value = value.value
        if words and isinstance(value, ast.Name) and value.id in known:
            yield ".".join((known[value.id], *words)), node


def moved(source: str, parts: Collection[str]) -> ast.Module | None:
    """The module for a torch without these parts; None if it refers to none of them."""
    if not any(part.rpartition(".")[2] in source for part in parts):
        return None
    tree = ast.parse(source)
    found = [(name, node) for name, node in references(tree) if name in parts]
    for name, node in found:
        if isinstance(node, ast.alias):
            node.asname = node.asname or node.name.rpartition(".")[2]
            node.name += "_moved"
        elif isinstance(node, ast.Attribute):
            node.attr += "_moved"
        elif isinstance(node, ast.Constant):
            node.value = f"{name}_moved"
    return tree if found else None


def move(*parts: str) -> None:
    """From now on, modules of ours are imported as if torch had renamed these parts."""
    get_code, read_text = SourceFileLoader.get_code, Path.read_text

    def code(loader: SourceFileLoader, name: str) -> CodeType | None:
        path = Path(loader.get_filename(name)).resolve()
        if name.startswith("aliasproof") and path.is_relative_to(ROOT):
            tree = moved(read_text(path, encoding="utf-8"), parts)
            if tree is not None:
                return compile(tree, str(path), "exec", dont_inherit=True)
        return get_code(loader, name)

    def text(path: Path, *args: object, **kwargs: object) -> str:
        read = read_text(path, *args, **kwargs)  # type: ignore[arg-type]
        for part in parts if path.name == "torch_parts.txt" else ():
            read = read.replace(f"{part}:", f"{part}_moved:").replace(f"{part}.", f"{part}_moved.")
        return read

    SourceFileLoader.get_code = code  # type: ignore[assignment, method-assign]
    Path.read_text = text  # type: ignore[assignment, method-assign]


if MOVED in os.environ:
    move(os.environ[MOVED])
