"""What drawn programs reach in the compiler: the sites that they fire, and the lines that they run.

`python -m benchmarks site_coverage --programs 300 --seed 1 --target inductor-fx`. Programs are
those of a campaign with that seed. They run in worker processes, where `coverage` (its tracer on
`sys.settrace`) notes the lines and branches of the modules that rewrite programs. Counted are
those inside of functions: what a module does when it is imported is no program's, and neither is
what torch does once per process to make its patterns.
"""

from __future__ import annotations

import importlib.util
import json
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aliasproof.campaigns.run.fired_sites import fired_by_shard
from aliasproof.campaigns.run.local_workers import start_pool
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
    total = FiredSites()
    with tempfile.TemporaryDirectory() as folder:
        pool = start_pool(1, Path(folder), [target])
        with pool.at_work():
            for shard in Plan((target,), seed=seed, programs=programs, rules=rules).shards():
                pool.submit(RemoteCall("", f"{__name__}:run_shard", (shard, folder)))
                _, outcome = pool.take()
                if isinstance(outcome, Raised):
                    raise outcome.error
                if isinstance(outcome, Death):
                    total.add(FiredSites(shard.count, lost=shard.count))
                else:
                    total.add(outcome.value)
        modules = _modules(Path(folder))
    listed: Any = total.to_json(target, seed)["sites"]
    kinds = dict.fromkeys(site["kind"] for site in listed)
    of = {kind: [site for site in listed if site["kind"] == kind] for kind in kinds}
    silent = [site for site in listed if not site["fired"] and site["reason"] is None]
    return SiteCoverage(
        target,
        seed,
        total.programs,
        total.discarded,
        total.lost,
        {kind: (len(sites), sum(it["fired"] > 0 for it in sites)) for kind, sites in of.items()},
        {kind: sum(site["kind"] == kind for site in silent) for kind in kinds},
        modules,
        dict(total.fired),
    )


def run_shard(shard: Shard, folder: str) -> FiredSites:
    """What the programs of a shard fire. The lines that run go to a file in the folder."""
    all_sites()  # to read them runs the passes, which is no program's doing
    tracer = _tracer(Path(folder) / f".coverage.{shard.seed}")
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


def _modules(folder: Path) -> dict[str, ReachedCode]:
    """The lines and branches in functions, of all files of data in a folder."""
    tracer, report = _tracer(folder / ".coverage"), folder / "report.json"
    tracer.combine([str(folder)])
    tracer.get_data().touch_files(list(_files()))  # the report has also those that nothing reached
    tracer.json_report(outfile=str(report))
    names = _files()
    return {
        names[str(Path(file).absolute())]: _reached(figures)
        for file, figures in json.loads(report.read_text())["files"].items()
    }


def _reached(figures: Mapping[str, Any]) -> ReachedCode:
    # The function without a name is the module itself.
    summaries = [it["summary"] for name, it in figures["functions"].items() if name]
    keys = ("num_statements", "covered_lines", "num_branches", "covered_branches")
    return ReachedCode(*(sum(summary[key] for summary in summaries) for key in keys))
