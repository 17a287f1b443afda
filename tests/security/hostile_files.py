"""Hostile files: valid ones with random changes, and deliberate traps."""

import copy
import json
import os
import random
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

# Random replacements of values. Each is legal JSON, as Python writes it.
VALUES: tuple[Any, ...] = (
    *(None, True, -1, 0, 2**31, 2**63 - 1, -(2**63), 2**64, 10**30, 4_000_000_000),
    *(0.5, float("nan"), float("inf"), -0.0, 1e308),
    *("", "x0", "..", "../../x", "/etc/passwd", "\x1b[2J", "\u202e", "ﬁ", "\ud800", "a" * 10_000),
    *("aten.clone.default", "aten.from_file.default", "os.system", "__import__('os')", "torch"),
    *([], {}, [[[[[[[[[[[[1]]]]]]]]]]]], {"ref": "nobody"}, {"ref": {"ref": "x0"}}),
    *({"dtype": "qint8"}, {"float": "x"}, [1] * 500, [4_000_000_000, 4], [10**9] * 3),
    *("cuda:0", "cuda:99999999", {"__reduce__": ["os.system", "true"]}),
)
CALLS: tuple[dict[str, Any], ...] = (
    {"op": "aten.full.default", "args": [[2**40], 1], "results": ["big"]},
    {"op": "aten.arange.default", "args": [10**15], "results": ["big"]},
    {"op": "aten.empty.memory_format", "args": [[10**6, 10**6]], "results": ["big"]},
    {"op": "aten.randn.default", "args": [[2**31, 2**31]], "results": ["big"]},
    {"op": "aten.ones.default", "args": [[1] * 3000], "results": ["big"]},
)


def mutated(data: Any, chance: random.Random) -> Any:
    """A copy of a JSON value with one to three changes."""
    changed = copy.deepcopy(data)
    for _ in range(chance.randint(1, 3)):
        _change(changed, chance)
    return changed


def _change(data: Any, chance: random.Random) -> None:
    """Change, remove or double one value somewhere below."""
    places: list[tuple[Any, Any]] = []
    stack = [data]
    while stack:
        node = stack.pop()
        keys = list(node) if isinstance(node, dict) else range(len(node))
        places += [(node, key) for key in keys]
        stack += [node[key] for key in keys if isinstance(node[key], dict | list)]
    if not places:
        return
    node, key = chance.choice(places)
    kind = chance.randrange(8)
    if kind == 0:
        del node[key]
    elif kind == 1 and isinstance(node, list):
        node.insert(key, copy.deepcopy(chance.choice(node)))
    elif kind == 2 and isinstance(data.get("instructions"), list):
        data["instructions"].append(copy.deepcopy(chance.choice(CALLS)))
    elif kind == 3 and isinstance(node, dict):
        node[chance.choice(["more", "", "version", "\x07"])] = node[key]
    else:
        node[key] = copy.deepcopy(chance.choice(VALUES))


def mutated_text(text: str, chance: random.Random) -> bytes:
    """The bytes of a text, some of them changed, cut off or duplicated."""
    data = bytearray(text.encode())
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(data))
        kind = chance.randrange(4)
        if kind == 0:
            data[at] = chance.randrange(256)
        elif kind == 1:
            del data[at:]
            data += b"["
        elif kind == 2:
            data[at:at] = data[at : at + 40]
        else:
            data[at:at] = chance.choice(
                [b"NaN", b"-Infinity", b"\x00", b"\xff", b"[" * 3000, b"9" * 5000]
            )
    return bytes(data)


# --- files ----------------------------------------------------------------------------------------


def program_file(folder: Path, program: dict[str, Any], chance: random.Random) -> Path:
    """A program.json that is changed in its values, or in its bytes."""
    file = folder / "program.json"
    if chance.random() < 0.75:
        file.write_bytes(json.dumps(mutated(program, chance)).encode())
    else:
        file.write_bytes(mutated_text(json.dumps(program), chance))
    return file


def finding_folder(folder: Path, finding: Path, chance: random.Random) -> Path:
    """A finding one of whose two files is changed."""
    made = folder / "aot-values-1"
    made.mkdir()
    for name in ("program.json", "finding.json"):
        (made / name).write_text((finding / name).read_text())
    file = made / chance.choice(["finding.json", "finding.json", "program.json"])
    data = json.loads(file.read_text())
    if chance.random() < 0.75:
        file.write_text(json.dumps(mutated(data, chance)))
    else:
        file.write_bytes(mutated_text(json.dumps(data), chance))
    return made


def run_with_store(folder: Path, store: Path, chance: random.Random) -> Path:
    """A run whose store has changed values, changed bytes, or code."""
    run = folder / "run"
    run.mkdir()
    data = bytearray(store.read_bytes())
    if chance.random() < 0.3:
        for _ in range(chance.randint(1, 20)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        (run / "store.sqlite").write_bytes(data)
        return run
    (run / "store.sqlite").write_bytes(data)
    connection = sqlite3.connect(run / "store.sqlite")
    with connection:
        chance.choice(_CHANGES_OF_STORES)(connection, chance)
    connection.close()
    return run


def _change_of_json(connection: sqlite3.Connection, chance: random.Random) -> None:
    table, column = chance.choice(
        [("runs", "plan"), ("runs", "spent"), ("shards", "result"), ("failures", "failure")]
        + [("findings", "finding"), ("findings", "confirmation")] * 2
    )
    for row, text in connection.execute(f"SELECT rowid, {column} FROM {table}").fetchall():  # noqa: S608
        if text is not None:
            changed = json.dumps(mutated(json.loads(text), chance))
            connection.execute(f"UPDATE {table} SET {column} = ? WHERE rowid = ?", (changed, row))  # noqa: S608


def _change_of_names(connection: sqlite3.Connection, chance: random.Random) -> None:
    name = chance.choice(["../../outside", "/outside", "", ".", "a/b", "\x1b[2J", "known-x"])
    connection.execute("UPDATE occurrences SET finding = ?", (name,))
    text = connection.execute("SELECT finding FROM findings").fetchone()[0]
    data = json.loads(text)
    data["finding"]["identifier"] = name
    connection.execute("UPDATE findings SET identifier = ?, finding = ?", (name, json.dumps(data)))


def _change_of_types(connection: sqlite3.Connection, chance: random.Random) -> None:
    column = chance.choice(["state", "finding", "script"])
    connection.execute(f"UPDATE findings SET {column} = ?", (b"\xff\x00",))  # noqa: S608


def _code(connection: sqlite3.Connection, chance: random.Random) -> None:
    connection.execute(
        "CREATE TRIGGER again AFTER INSERT ON runs BEGIN INSERT INTO runs SELECT * FROM runs; END"
    )


def _endless_view(connection: sqlite3.Connection, chance: random.Random) -> None:
    connection.execute("DROP TABLE triage")
    connection.execute(
        "CREATE VIEW triage AS WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n)"
        " SELECT x AS finding, x AS state, x AS link, x AS note FROM n"
    )


_CHANGES_OF_STORES = (
    *(_change_of_json,) * 4,
    _change_of_names,
    _change_of_types,
    _code,
    _endless_view,
)


def _giant(path: Path, outside: Path) -> None:
    with path.open("wb") as file:
        file.truncate(2**40)  # without blocks on the disk


TRAPS: dict[str, Callable[[Path, Path], None]] = {
    "pipe": lambda path, outside: os.mkfifo(path),
    "link": lambda path, outside: path.symlink_to(outside / "secret.json"),
    "loop": lambda path, outside: path.symlink_to(path.name),
    "giant": _giant,
    "folder": lambda path, outside: path.mkdir(),
    "endless": lambda path, outside: path.symlink_to("/dev/zero"),
}
