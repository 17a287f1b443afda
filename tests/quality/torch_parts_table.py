"""Writes `aliasproof/torch_parts.txt`: the private parts of torch, and the features that need each.

Run it by `python -m tests.quality.torch_parts_table` after a change to the parts of torch that a
module uses. Parts that a patch replaces are not in the table: the patch declares and checks them.
"""

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping

from aliasproof.targets.names import OF_TORCH
from aliasproof.torch_parts import EVERYTHING, TABLE
from tests.quality.torch_references import ROOT, references

ROOMS = ("aliasproof", "generators", "oracles", "reference_pass", "reports")
PRIVATE = re.compile(r"torch(\.\w+)*\.(_(?!_)\w*|__torch_dispatch__)(\.\w+)*")
# The feature of a module, by the prefix of its name. Other modules belong to everything.
FEATURES = {
    "generators.sites": "sites",
    "generators.rules": "rules",
    "oracles.proofs": "proofs",
    "checks.proving": "proofs",
    "judge.localization": "attribution",
    "judge.compile_steps": "attribution",
    "checks.bisecting": "attribution",
    "running_model": "models",
    "reference_pass.backend": "models",
}


def sources() -> dict[str, ast.Module]:
    """All modules of the package, by name."""
    found = {}
    for room in ROOMS:
        for path in sorted((ROOT / room).rglob("*.py")):
            words = path.relative_to(ROOT).with_suffix("").parts
            name = ".".join(words).removesuffix(".__init__")
            found[name if room == "aliasproof" else f"aliasproof.{name}"] = ast.parse(
                path.read_text(encoding="utf-8")
            )
    return found


def imported(tree: ast.Module, modules: Iterable[str]) -> set[str]:
    """Our modules that a module imports at import time."""
    nodes = [node for node in tree.body if isinstance(node, ast.ImportFrom) and node.module]
    names = {f"{node.module}.{each.name}" for node in nodes for each in node.names}
    return (names | {node.module or "" for node in nodes}) & {*modules}


def closure(name: str, imports: Mapping[str, set[str]]) -> set[str]:
    """A module, and all modules that it imports, directly or not."""
    seen: set[str] = set()
    left = {name}
    while left:
        module = left.pop()
        seen.add(module)
        left |= imports[module] - seen
    return seen


def features() -> dict[str, set[str]]:
    """The features that need each module."""
    trees = sources()
    imports = {name: imported(tree, trees) for name, tree in trees.items()}
    shared = closure("aliasproof.targets.user_targets", imports)
    shared |= closure("aliasproof.targets.variants", imports)
    found: dict[str, set[str]] = defaultdict(set)
    for target, place in OF_TORCH.items():
        module = f"aliasproof.targets.{place.partition('.')[0]}"
        for name in closure(module, imports) - shared:
            if name.startswith(("aliasproof.targets.", "aliasproof.reference_pass")):
                found[name].add(f"target {target}")
    for name in trees:
        room = name.removeprefix("aliasproof.")
        layer = re.match(r"(corpus\.patches|compilers)\.(\w+)", room)
        if layer is not None and layer[2] != "functional_module":  # of all compilers beyond torch
            found[name].add(f"{'target' if layer[1] == 'compilers' else 'patches'} {layer[2]}")
        found[name] |= {each for begin, each in FEATURES.items() if room.startswith(begin)}
        found[name] = found[name] or {EVERYTHING}
    return found


def table() -> str:
    """The text of the table."""
    needed: dict[str, set[str]] = defaultdict(set)
    of_module = features()
    for name, tree in sources().items():
        for part in filter(PRIVATE.fullmatch, (part for part, _ in references(tree))):
            needed[part] |= of_module[name]
    return "".join(f"{part}: {', '.join(sorted(needed[part]))}\n" for part in sorted(needed))


if __name__ == "__main__":
    TABLE.write_text(table(), encoding="utf-8")
