"""`distilled`: the fewest programs that show what campaigns reached (greedy set cover)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

from aliasproof.campaigns.failure.finding import AnyFinding, finding_from_json
from aliasproof.campaigns.run.gate import (
    COSTLY,
    Baseline,
    Entry,
    Seen,
    distilled_programs,
    of_bugs,
    run_entries,
)
from aliasproof.campaigns.run.tasks import shard_of
from aliasproof.campaigns.store.plan import Shard
from aliasproof.campaigns.store.store import Store
from aliasproof.generators.strategies import sample
from aliasproof.ir.devices import CPU
from aliasproof.ir.errors import UserError
from aliasproof.ir.execution import glue

T = TypeVar("T")

COST = 30  # of a program through a compiler that generates code; that through another one is 1


class Fired(NamedTuple):
    """A shard, and the sites that its programs fired."""

    shard: Shard
    sites: frozenset[str]


class Distilled(NamedTuple):
    """The programs that campaigns add, what all show, and how many sites the campaigns reached."""

    added: list[Entry]
    baseline: Baseline
    reached: int


def distilled(stores: Sequence[Store], workers: int, progress: Callable[[str], None]) -> Distilled:
    """What the campaigns in these stores add to the programs of known bugs.

    First the shortest program of each finding that shows something else, then programs that fire
    sites which no other one fires; those of the present corpus are candidates, too. What differs in
    two runs is left out.
    """
    bugs, found = of_bugs(), _findings_of(stores)
    progress(f"running {len(bugs)} programs of known bugs and {len(found)} of findings")
    seen = run_entries([*bugs, *found], {}, workers)
    chosen = _one_per_bug([*bugs, *found], seen)
    entries = list(dict.fromkeys([*bugs, *(entry for entry in chosen if entry in found)]))
    fired = [one for store in stores for one in fired_by_shards(store)]
    own = distilled_programs()
    progress(f"running {len(own)} programs of the present corpus")
    seen |= run_entries([entry for entry in own if entry.name not in seen], {}, workers)
    reached = frozenset[str]().union(
        *(one.sites for one in fired), *(seen[entry.name].sites for entry in own)
    )
    left = reached.difference(*(seen[entry.name].sites for entry in entries))
    shards = cover({one: (one.sites, cost(one.shard.target)) for one in fired}, left)
    drawn = [entry for one in shards for entry in entries_of(one.shard)]
    progress(f"running {len(drawn)} programs of {len(shards)} shards for {len(left)} sites")
    seen |= run_entries(drawn, {}, workers)
    right = [entry for entry in [*own, *drawn] if seen[entry.name].shown is None]
    entries += cover({it: (seen[it.name].sites, cost(it.target)) for it in right}, left)
    progress(f"running the {len(entries)} chosen programs again")
    expected = {name: one.shown for name, one in seen.items() if one.shown is not None}
    again = run_entries(entries, expected, workers)
    same = [entry for entry in entries if again[entry.name].shown == seen[entry.name].shown]
    kept = {
        name: Seen(again[name].shown, again[name].sites & seen[name].sites)
        for name in (entry.name for entry in same)
    }
    added = [entry for entry in same if entry not in bugs]
    return Distilled(added, Baseline.of(kept), len(reached))


def cost(target: str) -> int:
    """About how many times as long as others a program takes through a target."""
    return COST if target.partition(":")[0] == COSTLY else 1


def cover(choices: Mapping[T, tuple[frozenset[str], int]], wanted: Iterable[str]) -> list[T]:
    """Choices that have all that is wanted and that any of them has: always the best by its cost.

    Each choice has its parts and its cost.
    """
    left = set(wanted)
    chosen: list[T] = []
    while choices:
        best = max(choices, key=lambda one: len(choices[one][0] & left) / choices[one][1])
        if not choices[best][0] & left:
            break
        left -= choices[best][0]
        chosen.append(best)
    return chosen


def _one_per_bug(entries: Iterable[Entry], seen: Mapping[str, Seen]) -> list[Entry]:
    """Of the programs that show one bug, the first."""
    chosen: dict[object, Entry] = {}
    for entry in entries:
        shown = seen[entry.name].shown
        if shown is not None:
            chosen.setdefault(shown.known or (shown.symptom, type(entry.program)), entry)
    return list(chosen.values())


def _findings_of(stores: Iterable[Store]) -> list[Entry]:
    """The reduced programs of all findings, the shortest first."""
    found = [finding for store in stores for finding in _reduced(store)]
    found.sort(key=lambda it: (it.size, it.identifier))
    return list(dict.fromkeys(Entry(it.target, it.program) for it in found if it.device == CPU))


def _reduced(store: Store) -> Iterator[AnyFinding]:
    """The results of reductions, also of known bugs."""
    for (text,) in store.all("SELECT reduction FROM failures WHERE reduction IS NOT NULL"):
        reduced = store.json_values(text).get("reduced")
        if reduced is not None:
            yield store.checked(finding_from_json, reduced, str(store.file))


def fired_by_shards(store: Store) -> Iterator[Fired]:
    """The shards of a store that fired sites. Raises `UserError` for a damaged store."""
    for task, text in store.all("SELECT task, result FROM shards ORDER BY rowid"):
        sites = store.json_values(text).get("statistics", {}).get("fired", {})
        shard = store.checked(shard_of, task)
        if shard.device != CPU:
            raise UserError(f"{store.file.parent} is on {shard.device}: the gate is on the CPU")
        if sites and shard.python is None:
            yield Fired(shard, frozenset(map(str, sites)))


def entries_of(shard: Shard) -> Iterator[Entry]:
    """The programs of a shard; those that were compiled as one, as one."""
    drawn = list(sample(shard.features(), shard.seed, shard.count))
    for group in shard.groups():
        programs = [drawn[index] for index in group if index not in shard.skip]
        if programs:
            program = programs[0] if len(programs) == 1 else glue(programs).program
            yield Entry(shard.target, program)


def corpus_text(entries: Iterable[Entry]) -> str:
    """The corpus as a file: one program in a line, in the order of names."""
    return "".join(f"{entry.line()}\n" for entry in sorted(entries, key=lambda it: it.name))
