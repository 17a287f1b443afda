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
    out_of_reach,
    plain_match,
    search_function,
    variant_of,
)
from aliasproof.generators.rules.situations import (
    BY_NAME,
    NAMES,
    Situation,
    Weaving,
    as_they_are,
)
from aliasproof.generators.scenario_steps import Steps
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
        own = os.environ.get("ALIASPROOF_CACHE")
        if own == "":  # nothing is stored
            return None
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        folder = Path(own) if own else cache / "aliasproof"
        folder.mkdir(parents=True, exist_ok=True)
        file = sqlite3.connect(
            folder / f"matches-{_version()}.sqlite", timeout=SHARED_FOR, isolation_level=None
        )
        file.execute("PRAGMA journal_mode = WAL")
        file.execute("PRAGMA synchronous = NORMAL")
        file.execute("CREATE TABLE IF NOT EXISTS matches (of TEXT PRIMARY KEY, found TEXT)")
        return file
    return None


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
OF_OPERATORS = "aten."  # prefix of the names of these rules
LATER = 1_000_000  # bound of random program numbers, which only replace impossible pairs


@functools.cache
def rules_of_torch() -> tuple[tuple[str, ...], ...]:
    """The rules of torch that may match a program, in three groups.

    The groups are: patterns written by hand, with operators that have an in-place form; operators
    that are decomposed or lowered; patterns that torch traced. A call of an operator that torch
    decomposes or lowers is a match of the rule that does so.
    """
    names = [*(name for name in rules() if out_of_reach(name) is None), *in_place_forms()]
    traced = tuple(name for name in names if search_function(name) is not None)
    return tuple(name for name in names if name not in traced), operators(), traced


@functools.cache
def groups_of(variant: str) -> tuple[tuple[str, ...], ...]:
    """The groups of rules that take turns in programs of a variant.

    There are many traced patterns, and most differ only in a dtype. A variant with rules of its own
    has one of these in every second turn.
    """
    by_hand, of_operators, traced = shipped().rules or rules_of_torch()
    usual = [tuple(it for it in names if variant_of(it) is None) for names in (by_hand, traced)]
    own = tuple(it for it in (*by_hand, *traced) if variant_of(it) == variant)
    if own:
        return own[::2], usual[0], own[1::2], of_operators
    return usual[0], of_operators, usual[1]


@functools.cache
def match_of(rule: str, kind: str, number: int) -> Program | str:
    """A program with a match of the rule and nothing else, or the reason why there is none."""
    if rule.startswith(OF_OPERATORS):  # the search takes a moment
        return plain_call(rule, kind, number)
    return look_up(plain_match, rule, kind, number)


def pair_of(turn: int, variant: str) -> tuple[str, str]:
    """The rule and the situation of program number `turn`, in a variant of a target."""
    groups = groups_of(variant)
    names = groups[turn % len(groups)]
    # Rules take turns, related ones far apart, and so do situations. Once all pairs of turns came,
    # the situations are shifted by one.
    number, count = turn // len(groups), len(names)
    step = next(k for k in range(int(count * 0.618) or 1, 2 * count) if math.gcd(k, count) == 1)
    shift = number // math.lcm(count, len(NAMES))
    return names[number * step % count], NAMES[(number + shift) % len(NAMES)]


def derived_scene(pick: Pick, turn: int, counts: Counts, variant: str) -> Scene | None:
    """The scene of program number `turn`.

    If its pair is impossible, tries another situation of the rule, and then another rule; None if
    none of `PAIRS_TRIED` pairs fits.
    """
    rule, situation = pair_of(turn, variant)
    for _ in range(PAIRS_TRIED):
        try:
            scene = derive(pick, rule, BY_NAME[situation], counts).steps.scene
        except NoChoice:
            situation = pick.one(NAMES)
            if isinstance(match_of(rule, USUAL, 0), str):
                later = pick.integer(0, LATER)
                rule, _ = pair_of(later, variant)
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
            program = situation.inputs(pick, plain)
            storages = tuple(_filled(pick, storage) for storage in program.storages)
            scene = Scene(storages, program.inputs, pick.integer(0, 99), counts)
            weaving = Weaving(Steps(pick, scene), program)
            if situation.inputs is as_they_are and situation.kind == USUAL and pick.chance(60):
                weaving.compute_operands()
            situation.weave(weaving)
        except NoChoice as error:
            reason = error
        else:
            return weaving
    raise reason


def numbers_of(rule: str) -> int:
    """The number of matches of the rule that a situation can be built around."""
    if rule.startswith(OF_OPERATORS):
        return CALLS
    # A trace takes as long as many walks, and its variants differ only in sizes.
    return shipped().numbers.get(rule) or (1 if search_function(rule) is not None else VARIANTS)


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
