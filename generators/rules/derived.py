"""Rule-derived programs: a plain match in a situation, with random calls around it.

The number of a program in the run selects its rule and situation: the numbers walk through all
pairs, so a run of as many programs as there are pairs has each pair.
"""

from __future__ import annotations

import contextlib
import functools
import gzip
import hashlib
import json
import math
import os
import sqlite3
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from aliasproof import eager, generators, ir
from aliasproof.generators.rules.operator_calls import CALLS, operators, plain_call
from aliasproof.generators.rules.pattern_walk import in_place_forms
from aliasproof.generators.rules.plain_matches import (
    USUAL,
    VARIANTS,
    is_frozen,
    is_written,
    out_of_reach,
    plain_match,
    search_function,
)
from aliasproof.generators.rules.situations import (
    BY_NAME,
    NAMES,
    Situation,
    Weaving,
    as_they_are,
)
from aliasproof.generators.scene import Counts, NoChoice, Pick, Scene
from aliasproof.generators.sites.patterns import rules
from aliasproof.ir.errors import UserError
from aliasproof.ir.program import Program, Storage
from aliasproof.ir.serialization import from_json, to_json

# --- kept matches ---------------------------------------------------------------------------------
#
# `look_up`: results of searches for plain matches, so that a campaign need not search.
#
# A search takes as long as many programs. For some versions of torch, the package has a file with
# all matches, written by `tests/generators/ship_matches.py`. For other versions, the result of a
# search depends only on torch, the processor and this code. So all processes of a user share it in
# a SQLite file per combination of these, in the folder `ALIASPROOF_CACHE`, or in the user's cache
# folder. Both files have programs as JSON, which are validated. Programs are drawn with torch as it
# is, never while a bug is patched. If SQLite cannot read or write its file, each process searches
# for itself.


Found = Program | str  # a program, or the reason why there is none
SHARED_FOR = 30.0  # seconds that a process waits for another one to write


@dataclass(frozen=True, slots=True)
class Shipped:
    """The rules of a version of torch in their groups, and their matches as JSON values by key.

    `numbers` has the number of matches of each kind, by rule.
    """

    rules: tuple[tuple[str, ...], ...] = ()
    numbers: Mapping[str, int] = field(default_factory=dict)
    matches: Mapping[str, Any] = field(default_factory=dict)


def shipped_file() -> Path:
    """The package's file for this version of torch; it may not exist."""
    version = torch.__version__.partition("+")[0]
    return Path(__file__).parent / f"matches-{version}.json.gz"


@functools.cache
def shipped() -> Shipped:
    """The package's matches for this torch; none with CUDA, where torch may have other rules."""
    file = shipped_file()
    if torch.cuda.is_available() or not file.exists():
        return Shipped()
    data = json.loads(gzip.decompress(file.read_bytes()))
    return Shipped(tuple(map(tuple, data["rules"])), data["numbers"], data["matches"])


def key_of(rule: str, kind: str, number: int) -> str:
    """The key of a match in files."""
    return json.dumps([rule, kind, number])


def found_to_json(found: Found) -> dict[str, Any]:
    """The result of a search, as JSON values."""
    return {"none": found} if isinstance(found, str) else {"program": to_json(found)}


def _from_json(value: Any) -> Found:
    return str(value["none"]) if "none" in value else from_json(value["program"])


def look_up(search: Callable[[str, str, int], Found], rule: str, kind: str, number: int) -> Found:
    """The result of the search, from a file if it is there."""
    key = key_of(rule, kind, number)
    if key in shipped().matches:
        return _from_json(shipped().matches[key])
    file = _opened(os.getpid())
    # Without the file, each process searches; a damaged entry is replaced.
    with contextlib.suppress(sqlite3.Error, UserError, ValueError, TypeError, KeyError):
        row = file and file.execute("SELECT found FROM matches WHERE of = ?", (key,)).fetchone()
        if row:
            return _from_json(json.loads(row[0]))
    found = search(rule, kind, number)
    with contextlib.suppress(sqlite3.Error):
        if file:
            value = json.dumps(found_to_json(found))
            file.execute("INSERT OR REPLACE INTO matches VALUES (?, ?)", (key, value))
    return found


@functools.cache
def _opened(process: int) -> sqlite3.Connection | None:
    """The file, opened by this process: a fork must not use its parent's connection."""
    with contextlib.suppress(sqlite3.Error, OSError, RuntimeError):
        folder = _folder()
        if folder is None:
            return None
        folder.mkdir(parents=True, exist_ok=True)
        file = sqlite3.connect(
            folder / f"matches-{_version()}.sqlite", timeout=SHARED_FOR, isolation_level=None
        )
        file.execute("PRAGMA journal_mode = WAL")
        file.execute("PRAGMA synchronous = NORMAL")
        file.execute("CREATE TABLE IF NOT EXISTS matches (of TEXT PRIMARY KEY, found TEXT)")
        return file
    return None


def _folder() -> Path | None:
    """The folder of the files; None, so that nothing is stored, if `ALIASPROOF_CACHE` is empty."""
    own = os.environ.get("ALIASPROOF_CACHE")
    if own is not None:
        return Path(own) if own else None
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "aliasproof"


def _version() -> str:
    """A digest of what a search depends on: torch, the processor, sources of three packages."""
    digest = hashlib.sha256()
    about = (torch.__version__, torch.version.git_version, torch.backends.cpu.get_cpu_capability())
    digest.update(repr((*about, torch.cuda.is_available())).encode())
    for package in (eager, generators, ir):
        for source in sorted(Path(package.__path__[0]).rglob("*.py")):
            digest.update(source.read_bytes())
    return digest.hexdigest()[:16]


TRIES = 4  # for a pair, each with other operands and writes
# Values of storages, as text: all equal, or of both signs.
BOOLS = (("0",), ("1",), ("0", "1"))
FRACTIONS = (("0.5", "-0.25", "1", "0.0", "2"), ("0.0", "1"), ("-1", "0.5", "-2"))
PAIRS_TRIED = 8  # per program
STAYS = 4  # turns per rule; must divide the number of situations
OF_OPERATORS = "aten."  # prefix of the names of these rules
LATER = 1_000_000  # bound of random program numbers, which only replace impossible pairs


def drawn_rules() -> tuple[tuple[str, ...], ...]:
    """The rules that may match a program: those shipped in the package, else those of torch."""
    return shipped().rules or rules_of_torch()


@functools.cache
def rules_of_torch() -> tuple[tuple[str, ...], ...]:
    """The rules of torch that may match a program, in five groups; the last two need a variant.

    The groups are: patterns written by hand, with operators that have an in-place form; operators
    that are decomposed or lowered; patterns that torch traced; patterns of freezing; patterns on
    functions. They take turns. There are many traced patterns, and most differ only in a dtype. A
    call of an operator that torch decomposes or lowers is a match of the rule that does so.
    """
    within = [name for name in rules() if out_of_reach(name) is None]
    frozen = tuple(name for name in within if is_frozen(name))
    written = tuple(name for name in within if is_written(name))
    others = [name for name in (*within, *in_place_forms()) if name not in (*frozen, *written)]
    traced = tuple(name for name in others if search_function(name) is not None)
    by_hand = tuple(name for name in others if name not in traced)
    return by_hand, operators(), traced, frozen, written


@functools.cache
def match_of(rule: str, kind: str, number: int) -> Program | str:
    """A program with a match of the rule and nothing else, or the reason why there is none."""
    if rule.startswith(OF_OPERATORS):  # the search takes a moment
        return plain_call(rule, kind, number)
    return look_up(plain_match, rule, kind, number)


def pair_of(turn: int, *, frozen: bool = False, written: bool = False) -> tuple[str, str]:
    """The rule and the situation of program number `turn`, with these groups of rules.

    A rule stays for some turns, since a search for its matches costs as much as many programs.
    """
    *groups, of_frozen, of_written = drawn_rules()
    groups += [of_frozen] * frozen + [of_written] * written
    names = groups[turn % len(groups)]
    part, within = divmod(turn // len(groups), STAYS)
    parts = len(NAMES) // STAYS  # per rule, each with other situations
    count = len(names) * parts
    # A step coprime to `count` visits each part once in `count` turns, and related parts far apart.
    step = next(k for k in range(int(count * 0.618), 2 * count) if math.gcd(k, count) == 1)
    rule, first = divmod(part * step % count, parts)
    return names[rule], NAMES[first + parts * within]


def derived_scene(
    pick: Pick, turn: int, counts: Counts, *, frozen: bool = False, written: bool = False
) -> Scene | None:
    """The scene of program number `turn`.

    If its pair is impossible, tries another situation of the rule, and then another rule; None if
    none of `PAIRS_TRIED` pairs fits.
    """
    rule, situation = pair_of(turn, frozen=frozen, written=written)
    for _ in range(PAIRS_TRIED):
        try:
            scene = derive(pick, rule, BY_NAME[situation], counts).scene
        except NoChoice:
            situation = pick.one(NAMES)
            if isinstance(match_of(rule, USUAL, 0), str):
                later = pick.integer(0, LATER)
                rule, _ = pair_of(later, frozen=frozen, written=written)
            continue
        counts.pairs[rule, situation] += 1
        return scene
    return None


def derive(pick: Pick, rule: str, situation: Situation, counts: Counts) -> Weaving:
    """A match of the rule in that situation, in a scene. Raises `NoChoice` with the reason."""
    usual = match_of(rule, USUAL, 0)
    if isinstance(usual, str):
        raise NoChoice(usual)
    reason = NoChoice("nothing fits")
    numbers = numbers_of(rule)
    for _ in range(TRIES):
        plain = match_of(rule, situation.kind, pick.integer(0, numbers - 1))
        if isinstance(plain, str):
            raise NoChoice(plain)
        try:
            return _woven(pick, situation.inputs(pick, plain), situation, counts)
        except NoChoice as error:
            reason = error
    raise reason


def numbers_of(rule: str) -> int:
    """The number of matches of the rule that a situation can be built around."""
    if rule.startswith(OF_OPERATORS):
        return CALLS
    # A trace takes as long as many walks, and its variants differ only in sizes.
    return shipped().numbers.get(rule) or (1 if search_function(rule) is not None else VARIANTS)


def _woven(pick: Pick, plain: Program, situation: Situation, counts: Counts) -> Weaving:
    storages = tuple(_filled(pick, storage) for storage in plain.storages)
    scene = Scene(storages, plain.inputs, pick.integer(0, 99), counts)
    weaving = Weaving(pick, scene, plain)
    if situation.inputs is as_they_are and situation.kind == USUAL and pick.chance(60):
        weaving.compute_operands()
    situation.weave(weaving)
    return weaving


def _filled(pick: Pick, storage: Storage) -> Storage:
    """Sometimes, the storage with other values than the usual ones.

    With the usual values, a softmax of integers picks one element, a mask hides a part of each row,
    and no factor is negative; so a rule that is wrong for other values would not show.
    """
    choices = BOOLS if storage.dtype == torch.bool else FRACTIONS
    fits = storage.dtype == torch.bool or storage.dtype.is_floating_point
    if not fits or not storage.length or not pick.chance(30):
        return storage
    return replace(storage, values=pick.one(choices)[: storage.length])
