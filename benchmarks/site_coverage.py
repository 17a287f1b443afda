"""What drawn programs reach in the compiler: the sites that they fire, and the lines that they run.

`python -m benchmarks site_coverage --programs 300 --seed 1 --target inductor-fx`. Programs are
those of a campaign with that seed. They run in worker processes, where `coverage` (its tracer on
`sys.settrace`) notes the lines and branches of the modules that rewrite programs. Counted are
those inside of functions: what a module does when it is imported is no program's, and neither is
what torch does once per process to make its patterns. Lines that run there, and in no program, are
left out of what there is, too.

Several targets with commas between count as one: `--target inductor-fx,inductor-fx:grad`. Each runs
so many programs.
"""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aliasproof.campaigns.run.executor import start_pool
from aliasproof.campaigns.run.fired_sites import fired_by_shard
from aliasproof.campaigns.run.site_counts import FiredSites
from aliasproof.campaigns.store.plan import Plan, Shard
from aliasproof.generators.sites.all_sites import all_sites
from aliasproof.processes.outcome import Death, Raised
from aliasproof.processes.pool import RemoteCall
from benchmarks.tables import Table, percent

PROGRAMS, SEED, TARGET = 300, 1, "inductor-fx"
# Where programs are rewritten, or wrapped, before code is generated.
MODULES = (
    "torch._inductor.fx_passes.joint_graph",
    "torch._inductor.fx_passes.post_grad",
    "torch._inductor.fx_passes.pre_grad",
    "torch._inductor.fx_passes.reinplace",
    "torch._inductor.fx_passes.pad_mm",
    "torch._inductor.pattern_matcher",
    "torch._inductor.constant_folding",
    "torch._higher_order_ops.auto_functionalize",
    "torch._functorch._aot_autograd.runtime_wrappers",
)
COULD = "What could fire has fired, or is a gap: aliasproof sites says which."


@dataclass(frozen=True, slots=True)
class ReachedCode:
    """Of how many there are, how many ran."""

    lines: int
    lines_run: int
    branches: int
    branches_run: int


@dataclass(frozen=True, slots=True)
class SiteCoverage:
    """Sites by kind (how many there are, how many fired), and lines by module."""

    target: str
    seed: int
    programs: int
    discarded: int
    lost: int
    kinds: Mapping[str, tuple[int, int]]
    without_reason: Mapping[str, int]
    modules: Mapping[str, ReachedCode]
    fired: Mapping[str, int]

    def tables(self) -> list[Table]:
        """The figures for people."""
        ran = (
            f"{self.programs} programs of seed {self.seed} on {self.target}, {self.discarded}"
            f" discarded, {self.lost} ended their process"
        )
        kinds = []
        for kind, (number, fired) in self.kinds.items():
            could = fired + self.without_reason[kind]
            cells = (number, could, fired)
            kinds.append((kind, *map(str, cells), percent(fired / could) if could else "-"))
        lines = [
            (
                name.removeprefix("torch."),
                f"{reached.lines_run} of {reached.lines}",
                percent(reached.lines_run / reached.lines),
                f"{reached.branches_run} of {reached.branches}",
                percent(reached.branches_run / max(reached.branches, 1)),
            )
            for name, reached in self.modules.items()
        ]
        counts = sorted(self.fired.items(), key=lambda item: -item[1])
        patterns = [f"{count} {name}" for name, count in counts if "/" in name and "(" in name]
        return [
            Table("sites", ("kind", "sites", "could fire", "fired", ""), kinds, [ran, COULD]),
            Table("code in functions", ("module", "lines", "", "branches", ""), lines, [ran]),
            Table("patterns by programs that fired them", ("pattern",), [(it,) for it in patterns]),
        ]


def measure(
    programs: int | None, seed: int | None, target: str | None, rules: int | None = None
) -> SiteCoverage:
    """Run the programs, and count what they reach."""
    programs, seed, target = programs or PROGRAMS, SEED if seed is None else seed, target or TARGET
    by_target = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in target.split(","):
            plan = Plan((name,), seed=seed, programs=programs, rules=rules)
            by_target[name] = _fired_by(plan, Path(folder))
        modules = _modules(Path(folder))
    return _counted(by_target, seed, modules)


def _fired_by(plan: Plan, folder: Path) -> FiredSites:
    total = FiredSites()
    pool = start_pool(1, folder, plan.targets)
    with pool.at_work():
        for shard in plan.shards():
            pool.submit(RemoteCall("", f"{__name__}:run_shard", (shard, str(folder))))
            _, outcome = pool.take()
            if isinstance(outcome, Raised):
                raise outcome.error
            if isinstance(outcome, Death):
                total.add(FiredSites(shard.count, lost=shard.count))
            else:
                total.add(outcome.value)
    return total


def _counted(
    by_target: Mapping[str, FiredSites], seed: int, modules: Mapping[str, ReachedCode]
) -> SiteCoverage:
    """The figures of all targets. A gap of one of them that fires in another is none."""
    total = FiredSites()
    kind_of: dict[str, str] = {}
    gaps: set[str] = set()
    for name, fired in by_target.items():
        total.add(fired)
        listed: Any = fired.to_json(name, seed)["sites"]
        kind_of |= {site["name"]: site["kind"] for site in listed}
        gaps |= {site["name"] for site in listed if not site["fired"] and site["reason"] is None}
    kinds = Counter(kind_of.values())
    fire = Counter(kind for name, kind in kind_of.items() if total.fired[name])
    silent = Counter(kind for name, kind in kind_of.items() if name in gaps - total.fired.keys())
    return SiteCoverage(
        ",".join(by_target),
        seed,
        total.programs,
        total.discarded,
        total.lost,
        {kind: (number, fire[kind]) for kind, number in kinds.items()},
        {kind: silent[kind] for kind in kinds},
        modules,
        dict(total.fired),
    )


def run_shard(shard: Shard, folder: str) -> FiredSites:
    """What the programs of a shard fire. The lines that run go to a file in the folder."""
    all_sites()  # to read them runs the passes, which is no program's doing
    name = re.sub(r"\W", "_", shard.target)
    tracer = _tracer(Path(folder) / f".coverage.{name}.{shard.seed}")
    tracer.start()
    try:
        return fired_by_shard(shard)
    finally:
        tracer.stop()
        tracer.save()


def _tracer(data_file: Path) -> Any:
    from coverage import Coverage  # noqa: PLC0415 - of the extra `dev`, and no other benchmark's

    return Coverage(
        data_file=str(data_file),
        branch=True,
        include=list(_files()),
        config_file=False,
    )


def _files() -> dict[str, str]:
    """The files of the modules, with their names."""
    specs = {name: importlib.util.find_spec(name) for name in MODULES}
    return {spec.origin: name for name, spec in specs.items() if spec is not None and spec.origin}


def note_imports(file: str) -> None:
    """Write the lines that run when torch is imported and its patterns are made, in this process.

    They are read in a process of their own, before anything else imports these modules.
    """
    tracer = _tracer(Path(file))
    tracer.start()
    all_sites()
    tracer.stop()
    tracer.save()


def _modules(folder: Path) -> dict[str, ReachedCode]:
    """The lines and branches in functions, of all files of data in a folder."""
    tracer = _tracer(folder / ".coverage")
    tracer.combine([str(folder)])
    imports = folder / "imports"
    command = f"from {__name__} import note_imports; note_imports({str(imports)!r})"
    subprocess.run([sys.executable, "-c", command], check=True)
    ran, at_import = _functions(tracer), _functions(_read(imports))
    return {name: _reached(functions, at_import[name]) for name, functions in ran.items()}


def _read(file: Path) -> Any:
    tracer = _tracer(file)
    tracer.load()
    return tracer


def _functions(tracer: Any) -> dict[str, list[Any]]:
    """The report on each function, by module."""
    names = _files()
    with tempfile.NamedTemporaryFile("r", suffix=".json") as report:
        tracer.get_data().touch_files(list(names))  # the report has also those that nothing reached
        tracer.json_report(outfile=report.name)
        files = json.load(report)["files"]
    return {
        # The function without a name is the module itself.
        names[str(Path(file).absolute())]: [it for name, it in figures["functions"].items() if name]
        for file, figures in files.items()
    }


def _reached(ran: Sequence[Any], at_import: Sequence[Any]) -> ReachedCode:
    lines = {line for it in ran for line in it["executed_lines"]}
    alone = {line for it in at_import for line in it["executed_lines"]} - lines
    there = {line for it in ran for line in (*it["executed_lines"], *it["missing_lines"])} - alone
    taken, missed = (
        [it for function in ran for it in function[key] if it[0] not in alone]
        for key in ("executed_branches", "missing_branches")
    )
    return ReachedCode(len(there), len(lines), len(taken) + len(missed), len(taken))
