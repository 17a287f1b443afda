"""`python -m benchmarks [NAME]... [--json FILE]`: run benchmarks and print their tables.

Without a name, `throughput` and `pass_cost` run. A name is that of the module in this folder.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import platform
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch
import z3

from aliasproof.ir.errors import UserError
from benchmarks import (
    minimization,
    model_checks,
    models,
    pass_cost,
    people,
    planning,
    rediscovery,
    sharing,
    site_coverage,
    sweep,
    throughput,
)
from benchmarks.optimizer_steps import OPTIMIZER_STEPS
from benchmarks.tables import Figures, as_json, show

SECONDS = 120  # of a search, by default
# These run if no name is given.
BENCHMARKS: dict[str, Callable[[], Figures]] = {
    "throughput": throughput.measure,
    "pass_cost": pass_cost.measure,
}
# These run only if they are named: a search takes its seconds, the sweep hours, the shared memory
# of many programs, checked models and the functions of people minutes; the models need an extra.
NAMED_ALONE: dict[str, Callable[[argparse.Namespace], Figures]] = {
    "sweep": lambda options: sweep.measure(
        seconds=options.seconds, resume=options.resume, names=options.only
    ),
    "minimization": lambda options: minimization.measure(options.seconds),
    "models": lambda options: models.measure(options.only),
    "model_checks": lambda options: model_checks.measure(options.only),
    "optimizer_checks": lambda options: model_checks.measure(options.only, OPTIMIZER_STEPS),
    "sharing": lambda options: sharing.measure(options.only),
    "people": lambda options: people.measure(options.only),
    "planning": lambda options: planning.measure(options.only),
    "rediscovery": lambda options: rediscovery.measure(options.seconds or SECONDS, options.only),
    "site_coverage": lambda options: site_coverage.measure(
        options.programs, options.seed, options.target, options.rules
    ),
}
NAMES = (*BENCHMARKS, *NAMED_ALONE)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run what the command line asks for. Bad arguments end in one line and exit code 2."""
    parser = _parser()
    options = parser.parse_args(arguments)
    unknown = [name for name in options.names if name not in NAMES]
    if unknown:
        parser.error(f"unknown benchmark '{unknown[0]}'; benchmarks: {', '.join(NAMES)}")
    if options.json is not None:
        _require_writable(options.json, parser)
    figures: dict[str, object] = {"machine": machine()}
    print(", ".join(f"{name} {value}" for name, value in machine().items()), end="\n\n", flush=True)
    for name in options.names or BENCHMARKS:
        try:
            with single_threaded():
                result = NAMED_ALONE[name](options) if name in NAMED_ALONE else BENCHMARKS[name]()
        except UserError as error:
            parser.error(f"{name}: {error}")
        for table in result.tables():
            show(table)
        figures[name] = as_json(result)
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
        help=f"which to run: {', '.join(NAMES)}; default: {', '.join(BENCHMARKS)}",
    )
    parser.add_argument(
        "--seconds",
        metavar="SECONDS",
        type=int,
        help=f"how long each search takes; default: {SECONDS}. For sweep and minimization, begin no"
        " other operator or program after that; default: no limit",
    )
    parser.add_argument(
        "--resume",
        metavar="FILE",
        type=Path,
        help="for sweep: keep the results by operator in this file, and go on where it ends",
    )
    parser.add_argument(
        "--only",
        metavar="NAME",
        nargs="+",
        default=(),
        help="for sweep: these operators and modules; for models: these models and optimizers;"
        " for sharing: these programs; for people: these functions; by their names in the output",
    )
    _add_programs(parser)
    parser.add_argument(
        "--json", metavar="FILE", type=Path, help="also write the figures to this file"
    )
    return parser


def _add_programs(parser: argparse.ArgumentParser) -> None:
    for name, kind, what in (
        ("programs", int, f"run so many programs; default: {site_coverage.PROGRAMS}"),
        ("seed", int, f"those of a campaign with this seed; default: {site_coverage.SEED}"),
        ("rules", int, "of a hundred, so many are derived from rules; default: as a campaign"),
        (
            "target",
            str,
            f"on this target, or on several with commas between; default: {site_coverage.TARGET}",
        ),
    ):
        text = f"for site_coverage: {what}"
        parser.add_argument(f"--{name}", metavar=name.upper(), type=kind, help=text)


@contextmanager
def single_threaded() -> Iterator[None]:
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
