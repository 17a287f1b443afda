"""The gate: a corpus of programs, what each shows, and what changed compared with a baseline."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch

from aliasproof.campaigns.failure.codec import decoded, encoded
from aliasproof.campaigns.failure.finding import AnyFinding, Finding, finding_from_json
from aliasproof.campaigns.failure.recognition import recognised
from aliasproof.campaigns.run.executor import start_pool
from aliasproof.campaigns.run.languages import named, shown_by, with_part
from aliasproof.campaigns.run.shard import recording_for
from aliasproof.campaigns.run.tasks import shard_of
from aliasproof.campaigns.run.worker_calls import cleaned_worker
from aliasproof.campaigns.store.plan import PROGRAM_LIMIT, Shard, takes_python
from aliasproof.campaigns.store.store import Store
from aliasproof.campaigns.store.store_schema import DAMAGE
from aliasproof.corpus.bug_files import all_bugs
from aliasproof.corpus.known_bug import KnownBug
from aliasproof.generators.strategies import sample
from aliasproof.ir.custom_operators import NAMESPACE
from aliasproof.ir.devices import CPU, vector_bits
from aliasproof.ir.errors import UserError
from aliasproof.ir.execution import glue
from aliasproof.ir.program import Program
from aliasproof.ir.python_program import AnyProgram, PythonProgram
from aliasproof.ir.stored_text import writing
from aliasproof.judge.attribution import Symptom
from aliasproof.judge.examination import examine
from aliasproof.judge.trial import Case
from aliasproof.oracles.verdict import Violation
from aliasproof.plugins import plugins
from aliasproof.processes import outcome
from aliasproof.processes.outcome import Death, Raised
from aliasproof.processes.pool import RemoteCall
from aliasproof.targets.registry import target as target_named

FOLDER = Path(__file__).parents[2] / "corpus" / "gate"
PROGRAMS = FOLDER / "programs.jsonl"
COSTLY = "inductor"  # it compiles C++, so its programs start first
SLOW = ("aot-inductor",)  # left out: it compiles a C++ package for each program
RENEWAL = 50  # programs until a worker is replaced
COST = 30  # of a program on a compiler that generates code; 1 on any other

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Entry:
    """A program of the corpus, and the target that compiles it."""

    target: str
    program: AnyProgram

    @property
    def name(self) -> str:
        """A name that depends only on the target and the program."""
        digest = hashlib.sha256(self.line().encode()).hexdigest()[:8]
        return f"{self.target.replace(':', '-')}-{digest}"

    def line(self) -> str:
        return json.dumps({"target": self.target, "program": encoded(self.program)})

    @classmethod
    def of_line(cls, text: str) -> Entry:
        """The entry of a line. Raises `UserError` for a malformed program."""
        data = json.loads(text)
        kind = PythonProgram if isinstance(data["program"], str) else Program
        return cls(str(data["target"]), decoded(kind, data["program"]))


class Shown(NamedTuple):
    """What a program shows: a symptom, and the known bug that it is, if any."""

    symptom: Symptom
    known: str | None = None

    def __str__(self) -> str:
        what = f"{self.symptom.oracle}: {self.symptom.kind} through {self.symptom.target}"
        return f"known bug {self.known} ({what})" if self.known else what


class Seen(NamedTuple):
    """What a program shows, if anything; the sites that it fired; and where it is wrong."""

    shown: Shown | None = None
    sites: frozenset[str] = frozenset()
    place: str = "call"


@dataclass(frozen=True, slots=True)
class Baseline:
    """What the programs of a corpus show in one version of torch, by name, and the sites that fire.

    `vectors` is the width of the vectors of generated code: some bugs show only with some widths.
    """

    torch: str
    vectors: int
    shown: Mapping[str, Shown] = field(default_factory=dict)
    sites: tuple[str, ...] = ()

    @classmethod
    def of(cls, seen: Mapping[str, Seen]) -> Baseline:
        shown = {name: one.shown for name, one in sorted(seen.items()) if one.shown is not None}
        sites = sorted(frozenset().union(*(one.sites for one in seen.values())))
        return cls(release(), vector_bits(), shown, tuple(sites))

    def write(self, path: Path) -> None:
        """Write the baseline. Raises `UserError` if that fails."""
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(encoded(self), indent=1) + "\n", encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> Baseline:
        """Read a baseline. Raises `UserError` if it is malformed, or of another torch."""
        try:
            baseline: Baseline = decoded(cls, json.loads(path.read_text(encoding="utf-8")))
        except (OSError, *DAMAGE) as error:
            raise UserError(f"{path} is no baseline of the gate: {error}") from error
        if baseline.torch != release():
            raise UserError(
                f"{path} is of torch {baseline.torch}, and this is torch {release()}; a baseline"
                " holds for one version: give another file"
            )
        return baseline

    @property
    def bugs(self) -> set[str]:
        return {one.known for one in self.shown.values() if one.known is not None}


def release() -> str:
    """The version of torch without its build, such as 2.13."""
    return ".".join(str(torch.__version__).split(".")[:2])


def shipped_baseline() -> Baseline | None:
    """The baseline of the installed torch for the default targets, if there is one."""
    path = FOLDER / f"torch-{release()}.json"
    return Baseline.read(path) if path.exists() else None


def stated_bugs() -> set[str]:
    """The known bugs that show in the installed torch, according to their files."""
    return {name for name, bug in all_bugs().items() if release() in bug.versions}


def of_bugs() -> list[Entry]:
    """The program of each known bug of torch, through the target that is at fault."""
    bugs = [bug for bug in all_bugs().values() if bug.layer not in plugins()]
    return [
        Entry(bug.targets[0], bug.program)
        for bug in bugs
        if bug.targets[0].partition(":")[0] not in SLOW
    ]


def distilled_programs() -> list[Entry]:
    """The programs that campaigns added because they show or fire what no other program does."""
    lines = PROGRAMS.read_text(encoding="utf-8").splitlines() if PROGRAMS.exists() else []
    return [*map(Entry.of_line, lines)]


def corpus() -> list[Entry]:
    return [*of_bugs(), *distilled_programs()]


def pair_with_targets(entries: Iterable[Entry], targets: Sequence[str]) -> list[Entry]:
    """The programs, each once per target in `targets` that takes its language."""
    programs = dict.fromkeys(entry.program for entry in entries)
    return [
        Entry(name, program)
        for name in targets
        for program in programs
        if isinstance(program, Program) or takes_python(name)
    ]


def run_entries(
    entries: Sequence[Entry],
    expected: Mapping[str, Shown],
    workers: int,
    progress: Callable[[int], None] = lambda done: None,
) -> dict[str, Seen]:
    """What each program shows, by its name, run in worker processes.

    A program that shows what is `expected` is not compared with known bugs, which takes several
    compiles. `progress` gets the number of programs that have run. Raises errors of aliasproof.
    """
    seen: dict[str, Seen] = {}
    targets = list(dict.fromkeys(entry.target for entry in entries))
    with tempfile.TemporaryDirectory() as folder:
        chosen = (Path(folder), targets)
        pool = start_pool(workers, *chosen, limit=PROGRAM_LIMIT, renewal=RENEWAL)
        with pool.at_work():
            for entry in sorted(entries, key=lambda it: it.target.partition(":")[0] != COSTLY):
                call = (entry, expected.get(entry.name))
                pool.submit(RemoteCall(entry, f"{__name__}:{judge_entry.__name__}", call))
            while pool.pending:
                key, ended = pool.take()
                assert isinstance(key, Entry)
                if isinstance(ended, Raised):
                    raise ended.error
                if isinstance(ended, Death):
                    seen[key.name] = Seen(Shown(Symptom(key.target, "errors", ended.violation)))
                else:
                    seen[key.name] = ended.value
                progress(len(seen))
    return seen


def judge_entry(entry: Entry, expected: Shown | None) -> Seen:
    """What a program shows, in a worker. If as `expected`, it is the known bug expected there."""
    outcome.begin(2)
    with cleaned_worker(), recording_for(entry.target) as recorder:
        sites: list[str] = []

        def ran() -> None:  # called before further compiles, which only identify the violation
            sites.extend(recorder.take()[0])

        judge = _shown_by_calls if isinstance(entry.program, Program) else _shown_by_python
        seen = judge(entry, expected, ran)
    # Left out: the first program of a process that calls a custom operator creates its lowering.
    return seen._replace(sites=frozenset(site for site in sites if f"/{NAMESPACE}." not in site))


def _shown_by_calls(entry: Entry, expected: Shown | None, ran: Callable[[], None]) -> Seen:
    program = entry.program
    assert isinstance(program, Program)
    target = target_named(entry.target)
    examination = examine(Case.of(program), target, ran=ran)
    if examination.mistake is not None:
        raise examination.mistake
    symptom = examination.symptom
    if symptom is None or (target.yours and not target_named(symptom.target).yours):
        return Seen()
    place = "graph" if examination.suspicious else examination.violations[0].place
    if expected is not None and symptom == expected.symptom:
        return Seen(expected, place=place)
    if examination.suspicious:
        return Seen(Shown(symptom), place=place)
    outcome.begin(2)
    known = recognised(program, symptom, reduced=True).known
    return Seen(Shown(symptom, known), place=place)


def _shown_by_python(entry: Entry, expected: Shown | None, ran: Callable[[], None]) -> Seen:
    program, target = entry.program, entry.target
    assert isinstance(program, PythonProgram)
    finding = shown_by(program, target)
    ran()
    if finding is None or (target_named(target).yours and finding.target != target):
        return Seen()
    if expected is not None and finding.symptom == expected.symptom:
        return Seen(expected, place=finding.place)
    name = named(with_part(finding))
    known = name.finding.known if name.finding is not None else None
    return Seen() if name.documented else Seen(Shown(finding.symptom, known), place=finding.place)


class Change(NamedTuple):
    """A line about a change from a baseline. A violation has a finding, and fails the gate if new.

    A latent one does not fail it: `check` calls nothing wrong there.
    """

    is_new: bool
    text: str
    finding: AnyFinding | None = None


def changes(
    entries: Iterable[Entry],
    seen: Mapping[str, Seen],
    baseline: Baseline | None,
    stated: Collection[str] = (),
) -> list[Change]:
    """What changed: bugs and sites that are gone, then new violations.

    Without a baseline, violations that are not known bugs are new. Known bugs in `stated` are
    expected although the baseline lacks them.
    """
    before = Baseline(release(), 0) if baseline is None else baseline
    here = Baseline.of(seen)
    new = [
        _changed(shown, _finding(entry, seen[entry.name]))
        for entry in entries
        if (shown := here.shown.get(entry.name)) is not None
        and shown.known not in stated
        and _is_new(shown, entry.name, baseline)
    ]
    gone = [
        Change(False, f"gone: known bug {name}")
        for name in sorted(before.bugs - here.bugs)
        if _could_show(name, here.vectors)
    ]
    gone += [
        Change(False, f"gone: {one}")
        for name, one in before.shown.items()
        if one.known is None and name in seen and name not in here.shown
    ]
    sites = sorted(set(before.sites).difference(here.sites))
    gone += [Change(False, f"site gone: {site}") for site in sites]
    return [*gone, *sorted(new, key=lambda it: it.is_new)]


def _changed(shown: Shown, finding: AnyFinding) -> Change:
    if shown.symptom.latent:
        return Change(False, f"latent, since no values show it: {shown}", finding)
    return Change(True, f"new: {shown}", finding)


def _is_new(shown: Shown, name: str, baseline: Baseline | None) -> bool:
    if baseline is None:
        return shown.known is None
    if shown.known is None:
        return baseline.shown.get(name) != shown
    # The baseline may be from a machine whose vector width does not show the bug.
    return shown.known not in baseline.bugs and _could_show(shown.known, baseline.vectors)


def _could_show(bug: str, vectors: int) -> bool:
    """Whether a known bug could show with this vector width, according to its file."""
    known = all_bugs().get(bug)
    return not isinstance(known, KnownBug) or not known.vector_bits or vectors in known.vector_bits


def _finding(entry: Entry, seen: Seen) -> AnyFinding:
    """What a program shows, in the form that `show`, `minimize` and `bisect` read."""
    assert seen.shown is not None
    symptom, name = seen.shown.symptom, entry.name.replace(os.sep, "_")
    violation = Violation(symptom.oracle, symptom.kind, seen.place)
    program: Any = entry.program  # of either language
    finding: AnyFinding = Finding.of(program, symptom.target, violation, name)
    return finding


# --- distil ---------------------------------------------------------------------------------------
#
# `distill`: the fewest programs that show or fire what campaigns reached (greedy set cover).


class Distilled(NamedTuple):
    """The programs that campaigns add, what all programs show, and how many sites were reached."""

    added: list[Entry]
    baseline: Baseline
    reached: int


def distill(stores: Sequence[Store], workers: int, progress: Callable[[str], None]) -> Distilled:
    """What the campaigns in these stores add to the programs of known bugs.

    First the shortest program of each finding that shows something else, then programs for sites
    that no other program fires; the programs of the present corpus are candidates, too. Results
    that differ between two runs are left out.
    """
    bugs, found = of_bugs(), _findings_of(stores)
    progress(f"running {len(bugs)} programs of known bugs and {len(found)} of findings")
    seen = run_entries([*bugs, *found], {}, workers)
    chosen: dict[object, Entry] = {}
    for entry in [*bugs, *found]:  # of the programs that show the same bug, take the first
        shown = seen[entry.name].shown
        if shown is not None:
            chosen.setdefault(shown.known or (shown.symptom, type(entry.program)), entry)
    entries = list(dict.fromkeys([*bugs, *(it for it in chosen.values() if it in found)]))
    fired = dict(itertools.chain.from_iterable(map(fired_by_shards, stores)))
    own = distilled_programs()
    progress(f"running {len(own)} programs of the present corpus")
    seen |= run_entries([entry for entry in own if entry.name not in seen], {}, workers)
    reached = frozenset[str]().union(*fired.values(), *(seen[entry.name].sites for entry in own))
    left = reached.difference(*(seen[entry.name].sites for entry in entries))
    shards = cover({it: (sites, cost(it.target)) for it, sites in fired.items()}, left)
    drawn = [entry for shard in shards for entry in entries_of(shard)]
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
    """How long a program takes on a target, relative to the fastest targets."""
    return COST if target.partition(":")[0] == COSTLY else 1


def cover(choices: Mapping[T, tuple[frozenset[str], int]], wanted: Iterable[str]) -> list[T]:
    """Greedy set cover of `wanted`: choices that together have all parts that any of them has.

    Each choice has its parts and its cost; the next one is the best by its cost.
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


def _findings_of(stores: Iterable[Store]) -> list[Entry]:
    """The reduced programs of all findings, the shortest first."""
    found: list[AnyFinding] = []
    for store in stores:
        # Take the results of reductions, which include known bugs.
        for (text,) in store.all("SELECT reduction FROM failures WHERE reduction IS NOT NULL"):
            reduced = store.json_values(text).get("reduced")
            if reduced is not None:
                found.append(store.checked(finding_from_json, reduced, str(store.file)))
    found.sort(key=lambda it: (it.size, it.identifier))
    return list(dict.fromkeys(Entry(it.target, it.program) for it in found if it.device == CPU))


def fired_by_shards(store: Store) -> Iterator[tuple[Shard, frozenset[str]]]:
    """The shards of a store whose programs fired sites, and these sites.

    Raises `UserError` for a damaged store.
    """
    for task, text in store.all("SELECT task, result FROM shards ORDER BY rowid"):
        sites = store.json_values(text).get("statistics", {}).get("fired", {})
        shard = store.checked(shard_of, task)
        if shard.device != CPU:
            raise UserError(f"{store.file.parent} is on {shard.device}: the gate is on the CPU")
        if sites and shard.python is None:
            yield shard, frozenset(map(str, sites))


def entries_of(shard: Shard) -> Iterator[Entry]:
    """The programs of a shard; programs that were compiled as one are one entry."""
    drawn = list(sample(shard.features(), shard.seed, shard.count))
    for group in shard.groups():
        programs = [drawn[index] for index in group if index not in shard.skip]
        if programs:
            program = programs[0] if len(programs) == 1 else glue(programs).program
            yield Entry(shard.target, program)


def corpus_text(entries: Iterable[Entry]) -> str:
    """The corpus as a file: one program per line, ordered by name."""
    return "".join(f"{entry.line()}\n" for entry in sorted(entries, key=lambda it: it.name))
