"""`python -m benchmarks [NAME]... [--json FILE]`: run benchmarks and print their tables.

Without a name, all of them run, except `scenario_yield`, `ablation`, `sweep`, `models`, and those
that need `--checkout`. A name is that of the module in this folder.
"""

from __future__ import annotations

import argparse
import functools
import json
import logging
import os
import platform
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch
import z3

from aliasproof.programs.errors import UserError
from benchmarks import (
    ablation,
    against_torch,
    backend_cost,
    campaign_cost,
    causes,
    check_cost,
    generation,
    glued,
    lemma_table,
    limitations,
    long_reductions,
    models,
    nnsmith,
    overlap,
    pass_cost,
    proof_rates,
    pytorch_tests,
    scenario_yield,
    stage_oracles,
    sweep,
    throughput,
)
from benchmarks.tables import Figures, show, written

# These take the seconds of a search, and run only if they are named.
SEARCHES: dict[str, Callable[[float], Figures]] = {
    "scenario_yield": scenario_yield.measure,
    "ablation": ablation.measure,
}
BENCHMARKS: dict[str, Callable[[], Figures]] = {
    "throughput": throughput.measure,
    "glued": glued.measure,
    "campaign_cost": campaign_cost.measure,
    "stage_oracles": stage_oracles.measure,
    "generation": generation.measure,
    "overlap": overlap.measure,
    "lemma_table": lemma_table.measure,
    "pass_cost": pass_cost.measure,
    "against_torch": against_torch.measure,
    "backend_cost": backend_cost.measure,
    "proof_rates": proof_rates.measure,
    "long_reductions": long_reductions.measure,
    "check_cost": check_cost.measure,
    "limitations": limitations.measure,
    "causes": causes.measure,
}


SECONDS = 120  # of a search, by default
SWEEP = "sweep"  # it takes hours, so it is not run by default
MODELS = "models"  # it needs an extra, so it is not run by default
# These need a checkout, so they are not run by default.
NNSMITH, PYTORCH_TESTS = "nnsmith", "pytorch_tests"


def main(arguments: Sequence[str] | None = None) -> None:
    """Run what the command line asks for. Bad arguments end in one line and exit code 2."""
    parser = _parser()
    options = parser.parse_args(arguments)
    benchmarks = dict(BENCHMARKS)
    for name, search in SEARCHES.items():
        benchmarks[name] = functools.partial(search, options.seconds or SECONDS)
    benchmarks[SWEEP] = functools.partial(
        sweep.measure, seconds=options.seconds, resume=options.resume, names=options.only
    )
    benchmarks[MODELS] = functools.partial(models.measure, options.only)
    if options.checkout is not None:
        benchmarks[NNSMITH] = functools.partial(
            nnsmith.measure, options.checkout, options.python, options.seconds or SECONDS
        )
        benchmarks[PYTORCH_TESTS] = functools.partial(pytorch_tests.measure, options.checkout)
    for name in {NNSMITH, PYTORCH_TESTS} & {*options.names} - benchmarks.keys():
        parser.error(f"{name} needs --checkout PATH: a clone of its repository")
    unknown = [name for name in options.names if name not in benchmarks]
    if unknown:
        parser.error(f"unknown benchmark '{unknown[0]}'; benchmarks: {', '.join(benchmarks)}")
    if options.json is not None:
        _require_writable(options.json, parser)
    figures: dict[str, object] = {"machine": machine()}
    print(", ".join(f"{name} {value}" for name, value in machine().items()), end="\n\n", flush=True)
    left_out = {*SEARCHES, SWEEP, MODELS, NNSMITH, PYTORCH_TESTS}
    for name in options.names or [name for name in benchmarks if name not in left_out]:
        try:
            with measurement_settings():
                result = benchmarks[name]()
        except UserError as error:
            parser.error(f"{name}: {error}")
        for table in result.tables():
            show(table)
        figures[name] = written(result)
    if options.json is not None:
        options.json.write_text(json.dumps(figures, indent=2) + "\n")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Print the performance tables. Compare figures of one run with each other.",
    )
    parser.add_argument(
        "names",
        metavar="NAME",
        nargs="*",
        help=f"which to run: "
        f"{', '.join((*BENCHMARKS, *SEARCHES, SWEEP, MODELS, NNSMITH, PYTORCH_TESTS))}; default:"
        " all except the last six",
    )
    parser.add_argument(
        "--checkout",
        metavar="PATH",
        type=Path,
        help=f"for {NNSMITH}: a clone of https://github.com/ise-uiuc/nnsmith; for {PYTORCH_TESTS}:"
        " a clone of https://github.com/pytorch/pytorch at the tag of the installed torch",
    )
    parser.add_argument(
        "--python",
        metavar="PYTHON",
        type=Path,
        default=Path(sys.executable),
        help=f"for {NNSMITH}: the Python that runs it; {nnsmith.INSTALL}".replace("%", "%%"),
    )
    parser.add_argument(
        "--seconds",
        metavar="SECONDS",
        type=int,
        help=f"how long each search takes: for {NNSMITH}, each of the two per backend; for"
        " scenario_yield, per target; for ablation, per target and configuration; default:"
        f" {SECONDS}. For {SWEEP}, begin no other operator after that; default: no limit",
    )
    _add_sweep_options(parser)
    parser.add_argument(
        "--json", metavar="FILE", type=Path, help="also write the figures to this file"
    )
    return parser


def _add_sweep_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--resume",
        metavar="FILE",
        type=Path,
        help=f"for {SWEEP}: keep the results by operator in this file, and go on where it ends",
    )
    parser.add_argument(
        "--only",
        metavar="NAME",
        nargs="+",
        default=(),
        help=f"for {SWEEP}: these operators and modules; for {MODELS}: these models and optimizers;"
        " by their names in the output",
    )


@contextmanager
def measurement_settings() -> Iterator[None]:
    """One thread, so that figures compare, and no warnings of compilers about odd programs."""
    logger = logging.getLogger("torch")
    level, threads = logger.level, torch.get_num_threads()
    logger.setLevel(logging.CRITICAL)
    torch.set_num_threads(1)
    try:
        yield
    finally:
        logger.setLevel(level)
        torch.set_num_threads(threads)


def machine() -> dict[str, str]:
    """What the figures depend on."""
    return {
        "Python": platform.python_version(),
        "torch": torch.__version__,
        "z3": z3.get_version_string(),
        "cores": str(os.cpu_count()),
    }


def _require_writable(path: Path, parser: argparse.ArgumentParser) -> None:
    try:
        path.touch()
    except OSError as error:
        parser.error(
            f"cannot write {path}: {error.strerror}; name a file in an existing folder that you may"
            " write to"
        )


if __name__ == "__main__":
    main()
