"""The command line: the commands together, errors and exit codes.

Each command is a module in `aliasproof/commands/`, with its options. Exit codes: 0 nothing wrong, 1
found something, 2 bad input, 3 internal error, 4 nothing judged, 130 interrupted. Commands import
torch when they are called: `--help` must not wait for it.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from aliasproof import torch_parts
from aliasproof.commands import (
    bisect,
    check,
    doctor,
    explain,
    faults,
    fuzz,
    gate,
    known,
    merge,
    minimize,
    ops,
    prove,
    replay,
    report,
    show,
    sites,
    stats,
    targets,
    triage,
    watch,
)
from aliasproof.commands import (
    run as run_script,
)
from aliasproof.commands.options import flag
from aliasproof.commands.startup import INTERRUPTED, print_in_any_encoding, use_own_compiler_cache
from aliasproof.ir.errors import DeviceLost, InternalError, OutOfMemory, UserError, printable

FOUND, BAD_INPUT, INTERNAL_ERROR = 1, 2, 3

COMMANDS: Mapping[str, Mapping[Callable[..., object], str]] = {
    "Search": {
        fuzz.fuzz: "Search for miscompiles with random programs.",
        fuzz.hunt: "Search with Python programs as people write them.",
        gate.gate: "Run the programs that tell most, and print what changed.",
    },
    "Judge": {
        check.check: "Compare your own function with eager.",
        run_script.run: "Run your own script, and check each graph that it compiles.",
        prove.prove: "Prove for all sizes that a target adds no aliasing.",
    },
    "Reduce": {
        minimize.minimize: "Reduce a program to the instructions that a difference needs.",
        bisect.bisect: "Name the layer and the pass that make a program wrong.",
    },
    "Report": {
        show.show: "Show a finding and run it again.",
        report.report: "Write a page on a run or a finding, and what CI systems read.",
        replay.replay: "Run findings or known bugs again, under several torches.",
        triage.triage: "List and set the states of findings.",
        merge.merge: "Join runs by signature.",
        watch.watch: "Show a run while it goes on.",
    },
    "Inspect": {
        doctor.doctor: "Show the versions here, what works, and what is off and why.",
        explain.explain: "Show what the reference pass does to a program, and why.",
        known.known: "List the known bugs of compilers, and show their programs.",
        targets.targets: "List the targets.",
        ops.ops: "List the ops that programs are drawn from, and those that are not.",
        sites.sites: "List where torch may rewrite a program, and what programs fire there.",
        stats.stats: "Show what campaigns draw: ops, dtypes, layouts, scenarios.",
        faults.faults: "Plant wrong passes and show which oracle kills each.",
    },
}


class Grouped(TyperGroup):
    """Lists the commands by what they are for."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        for title, commands in COMMANDS.items():
            with formatter.section(title):
                formatter.write_dl([(command.__name__, text) for command, text in commands.items()])


app = typer.Typer(
    cls=Grouped,
    help=(
        "Finds, reduces and explains miscompiles in compilers that remove mutation from tensor"
        " programs (functionalization) and put it back (reinplacing)."
    ),
    pretty_exceptions_enable=False,  # `run` prints errors
    rich_markup_mode=None,  # plain help takes a third of the time
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback(invoke_without_command=True)
def about(
    context: typer.Context,
    version: Annotated[bool, flag("--version", "Print the versions and exit.")] = False,
) -> None:
    if version:
        print(versions())
        raise typer.Exit
    if context.invoked_subcommand is None:
        print(context.get_help())
        raise typer.Exit


for command, summary in chain.from_iterable(group.items() for group in COMMANDS.values()):
    app.command(short_help=summary)(command)


def versions() -> str:
    """The versions of aliasproof, torch and Python. No package is imported for it."""
    python = ".".join(map(str, sys.version_info[:3]))
    named = [f"{name} {version_of(name) or 'not installed'}" for name in ("aliasproof", "torch")]
    return f"{', '.join(named)}, Python {python}"


def version_of(name: str) -> str | None:
    """The version of a package. A checkout on PYTHONPATH is not an installed one."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(name)
    except PackageNotFoundError:
        return None


def run(arguments: Sequence[str]) -> int:
    """Run a command and return its exit code. Errors are printed to standard error."""
    try:
        code = app(list(arguments), prog_name="aliasproof", standalone_mode=False) or 0
    except UserError as error:
        return _fail(str(error), BAD_INPUT)
    except OutOfMemory as error:
        return _fail("out of memory: " + str(error).partition("\n")[0][:200], FOUND)
    except DeviceLost as error:
        return _fail(f"{error}; nothing more can run on the device in this process", FOUND)
    except (KeyboardInterrupt, typer.Abort):
        return _fail("interrupted", INTERRUPTED)
    except BrokenPipeError:
        # The reader of a pipe ended. At exit, Python flushes standard output, which would raise.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FOUND
    except Exception as error:  # noqa: BLE001 - the last place that can say what happened
        # A usage error of typer. The class with this method moves from version to version.
        usage_message = getattr(error, "format_message", None)
        if usage_message is not None:
            known = {command.__name__ for group in COMMANDS.values() for command in group}
            asked = f"{arguments[0]} " if arguments and arguments[0] in known else ""
            return _fail(f"{usage_message()} (see 'aliasproof {asked}--help')", BAD_INPUT)
        if "torch" in sys.modules and (moved := torch_parts.why_failed(error)) is not None:
            return _fail(moved, BAD_INPUT)
        if not isinstance(error, InternalError):
            traceback.print_exc()
        command = " ".join(("aliasproof", *arguments))
        return _fail(
            f"internal error: {type(error).__name__}: {error}; please report it with the output"
            f" above, the command ({command}), the files that it reads, and {versions()}",
            INTERNAL_ERROR,
        )
    # Typer returns this code for Ctrl-C. Other versions of it raise, see above.
    return _fail("interrupted", INTERRUPTED) if code == INTERRUPTED else int(code)


def _fail(message: str, code: int) -> int:
    print("aliasproof:", printable(" ".join(message.split())), file=sys.stderr)
    return code


def main() -> None:
    """The entry point."""
    print_in_any_encoding()
    use_own_compiler_cache()
    # Torch's C++ code writes warnings itself. It reads this level when torch is imported.
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    code = run(sys.argv[1:])
    if "torch" not in sys.modules:
        sys.exit(code)
    # All is ended and said. To tear down torch would take seconds, and to wait for threads longer.
    with contextlib.suppress(OSError):  # nobody reads it any more
        sys.stdout.flush()
    atexit._run_exitfuncs()
    os._exit(code)
