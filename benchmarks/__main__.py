"""`python -m benchmarks NAME... [--json FILE]`: run benchmarks and print their tables.

Without a name, the benchmarks are listed. A name is a module in this folder.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
import z3

from aliasproof.ir.errors import UserError
from aliasproof.judge.trial import quiet_torch
from benchmarks import models, planning, rediscovery, sweep
from benchmarks.tables import Figures, as_json, plain

SECONDS = 120  # default time of a search
BENCHMARKS: dict[str, Callable[[argparse.Namespace], Figures]] = {
    "planning": lambda options: planning.measure(options.only),
    "models": lambda options: models.measure(options.only),
    "rediscovery": lambda options: rediscovery.measure(options.seconds or SECONDS, options.only),
    "sweep": lambda options: sweep.measure(
        seconds=options.seconds, resume=options.resume, names=options.only
    ),
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmarks on the command line. Bad arguments end in one line and exit code 2."""
    parser = _parser()
    options = parser.parse_args(arguments)
    unknown = [name for name in options.names if name not in BENCHMARKS]
    if unknown:
        parser.error(f"unknown benchmark '{unknown[0]}'; benchmarks: {', '.join(BENCHMARKS)}")
    if not options.names:
        for name in BENCHMARKS:
            summary = (sys.modules[f"benchmarks.{name}"].__doc__ or "").partition("\n")[0]
            print(f"{name:14}{summary}")
        return
    if options.json is not None:
        try:
            options.json.touch()
        except OSError as error:
            parser.error(
                f"cannot write {options.json}: {error.strerror}; name a file in an existing folder"
                " that you may write to"
            )
    quiet_torch()
    figures: dict[str, object] = {"machine": machine()}
    print(", ".join(f"{name} {value}" for name, value in machine().items()), end="\n\n", flush=True)
    for name in options.names:
        try:
            result = BENCHMARKS[name](options)
        except UserError as error:
            parser.error(f"{name}: {error}")
        for table in result.tables():
            print(plain(table), flush=True)
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
        help=f"which to run: {', '.join(BENCHMARKS)}; default: list them",
    )
    parser.add_argument(
        "--seconds",
        metavar="SECONDS",
        type=int,
        help=f"how long each search takes; default: {SECONDS}. For sweep, begin no other operator"
        " after that; default: no limit",
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
        help="for planning, models, rediscovery (targets) and sweep (operators):"
        " these, by their names in the output",
    )
    parser.add_argument(
        "--json", metavar="FILE", type=Path, help="also write the figures to this file"
    )
    return parser


def machine() -> dict[str, str]:
    """The facts that the figures depend on."""
    return {
        "Python": platform.python_version(),
        "torch": torch.__version__,
        "z3": z3.get_version_string(),
        "cores": str(os.cpu_count()),
    }


if __name__ == "__main__":
    main()
