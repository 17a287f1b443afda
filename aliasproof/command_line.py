"""The command line: options and exit codes. What a command does stands in the module that it imports.

Exit codes: 0 nothing wrong, 1 something found, 2 bad input (one line on standard error), 3 a
mistake of aliasproof itself, 130 interrupted. Torch is imported within the commands, so that
`--help` answers at once.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from programs.errors import InternalError, UserError

FOUND, BAD_INPUT, OUR_MISTAKE, INTERRUPTED = 1, 2, 3, 130

app = typer.Typer(
    add_completion=False,
    help="Finds, reduces and explains the miscompiles of tensor compilers that remove mutation and put it back.",
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # the plain help takes a third of the time
    context_settings={"help_option_names": ["-h", "--help"]},
)

Targets = Annotated[
    list[str] | None,
    typer.Option(
        "--target",
        "-t",
        metavar="TARGET",
        help="What to test; give it again for more. See 'aliasproof targets'.",
    ),
]
File = Annotated[
    Path, typer.Argument(metavar="FILE", help="FILE.py, PROGRAM.json or the folder of a finding.")
]
FunctionName = Annotated[
    str, typer.Option(metavar="NAME", help="The function in FILE.py, called with the inputs.")
]
InputsName = Annotated[
    str,
    typer.Option(metavar="NAME", help="The function in FILE.py that returns its inputs: tensors."),
]
Workers = Annotated[
    int | None, typer.Option(metavar="NUMBER", help="Worker processes (one a core unless told).")
]
Json = Annotated[bool, typer.Option("--json", help="Write one JSON object to standard output.")]


@app.callback(invoke_without_command=True)
def about(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", help="Print the versions and exit.")
    ] = False,
) -> None:
    if version:
        print(versions())
        raise typer.Exit
    if context.invoked_subcommand is None:
        print(context.get_help())
        raise typer.Exit


@app.command(short_help="Look for miscompiles with random programs.")
def fuzz(
    target: Targets = None,
    seconds: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS", help="Stop drawing programs after this time (90 unless told)."
        ),
    ] = None,
    programs: Annotated[
        int | None,
        typer.Option(
            metavar="NUMBER", help="Stop after this many programs a target, whatever it takes."
        ),
    ] = None,
    seed: Annotated[
        int,
        typer.Option(
            metavar="NUMBER", help="With the same seed and --programs, the same findings."
        ),
    ] = 0,
    run: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="A new folder for what is found (runs/<date>-<time> unless told)."
        ),
    ] = None,
    workers: Workers = None,
    json: Json = False,
    fail_on_findings: Annotated[
        bool, typer.Option("--fail-on-findings", help="Exit 1 if there is a finding.")
    ] = False,
) -> int:
    """Look for miscompiles with random programs; reduce, confirm and keep each in a folder of its own."""
    from aliasproof.fuzzing import Options, run_campaign

    options = Options(tuple(target or ()), seconds, programs, seed, run, workers)
    found = run_campaign(options, as_json=json)
    return FOUND if fail_on_findings and found else 0


@app.command(short_help="Hold your own function against eager.")
def check(
    file: File,
    target: Targets = None,
    function: FunctionName = "program",
    inputs: InputsName = "inputs",
    missed: Annotated[
        bool, typer.Option("--missed", help="Also list what targets could have done in place.")
    ] = False,
    json: Json = False,
) -> int:
    """Hold your own function against eager. FILE.py defines program(*tensors) and inputs().

    Exit status: 0 nothing wrong, 1 a target broke a promise, 2 bad input.
    """
    from aliasproof.verdicts import check_file

    return (
        FOUND
        if check_file(file, target or None, function, inputs, missed=missed, as_json=json)
        else 0
    )


@app.command(short_help="Show a finding and run it again.")
def show(
    finding: Annotated[
        str,
        typer.Argument(metavar="FINDING", help="Its folder, or its name if it lies under runs/."),
    ],
) -> None:
    """Show a finding: program, evidence, eager against target, graphs, reproducer; run again in the installed torch."""
    from aliasproof.showing import show_finding

    show_finding(finding)


@app.command(short_help="Show what the reference pass makes of a program, and why.")
def explain(
    file: File,
    views: Annotated[
        str,
        typer.Option(
            metavar="alias|copy",
            help="Views in the functional graph: aliases, or copies of what they show.",
        ),
    ] = "alias",
    function: FunctionName = "program",
    inputs: InputsName = "inputs",
    json: Json = False,
) -> None:
    """Show a program, its functional graph and its reinplaced graph, and why each op is in place or is kept.

    Exit status: 0, or 2 for bad input and for programs that the reference pass refuses.
    """
    from aliasproof.explaining import explain_file

    explain_file(file, views, function, inputs, as_json=json)


@app.command(short_help="Prove for all sizes that a target adds no aliasing.")
def prove(
    file: File,
    target: Targets = None,
    sizes: Annotated[
        str,
        typer.Option(
            metavar="LOW:HIGH",
            help="Which sizes a size of the inputs may take; LOW: for no upper bound.",
        ),
    ] = "1:64",
    limit: Annotated[
        float, typer.Option(metavar="SECONDS", help="Time for each pair of tensors.")
    ] = 10.0,
    function: FunctionName = "program",
    inputs: InputsName = "inputs",
    json: Json = False,
) -> int:
    """Prove for all sizes that inputs and outputs share no byte that they do not share in eager, or give the sizes.

    Exit status: 0 nothing refuted, 1 a pair is refuted, 2 bad input.
    """
    from aliasproof.proving import prove_file

    return (
        FOUND
        if prove_file(file, target or None, sizes, limit, (function, inputs), as_json=json)
        else 0
    )


@app.command(short_help="List what can be tested.")
def targets(json: Json = False) -> None:
    """List what can be tested, and what each target promises."""
    from aliasproof.listing import list_targets

    list_targets(as_json=json)


@app.command(short_help="List the ops that programs are drawn from.")
def ops(json: Json = False) -> None:
    """List the ops that programs are drawn from, with what their schemas say."""
    from aliasproof.listing import list_ops

    list_ops(as_json=json)


@app.command(short_help="Plant wrong passes and show which oracle kills each.")
def faults(
    fault: Annotated[
        list[str] | None,
        typer.Option(
            "--fault",
            metavar="NAME",
            help="A planted fault; give it again for more (all unless told).",
        ),
    ] = None,
    programs: Annotated[
        int | None,
        typer.Option(
            metavar="NUMBER", help="Give a fault up after this many programs (5,000 unless told)."
        ),
    ] = None,
    seed: Annotated[
        int, typer.Option(metavar="NUMBER", help="With the same seed, the same matrix.")
    ] = 0,
    workers: Workers = None,
    json: Json = False,
) -> int:
    """Plant wrong passes and show the kill matrix: for each fault and oracle, the programs until the first kill.

    Exit status: 0 if all are killed, 1 if a fault survives, 2 for bad input.
    """
    from aliasproof.faulting import show_faults

    return FOUND if show_faults(fault or (), programs, seed, workers, as_json=json) else 0


def versions() -> str:
    """Versions of aliasproof, torch and Python, read off the installed packages: none is imported."""
    from importlib.metadata import PackageNotFoundError, version

    def installed(name: str) -> str:
        try:
            return version(name)
        except PackageNotFoundError:
            return "not installed"

    python = ".".join(map(str, sys.version_info[:3]))
    return f"aliasproof {installed('aliasproof')}, torch {installed('torch')}, Python {python}"


def run(arguments: Sequence[str]) -> int:
    """Run a command and return its exit code; whatever went wrong has been said on standard error."""
    try:
        code = app(list(arguments), prog_name="aliasproof", standalone_mode=False) or 0
    except UserError as error:
        return _fail(str(error), BAD_INPUT)
    except (KeyboardInterrupt, typer.Abort):
        return _fail("interrupted", INTERRUPTED)
    except BrokenPipeError:  # the reader of a pipe has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FOUND
    except Exception as error:  # noqa: BLE001 - the last place that can say what happened
        usage_message = getattr(
            error, "format_message", None
        )  # of typer, which has moved the class that has it
        if usage_message is not None:
            return _fail(
                f"{usage_message()} (see 'aliasproof {_command(arguments)}--help')", BAD_INPUT
            )
        if not isinstance(error, InternalError):
            traceback.print_exc()
        command = " ".join(("aliasproof", *arguments))
        return _fail(
            f"a mistake of aliasproof itself: {type(error).__name__}: {error}; please report it with what stands above,"
            f" the command ({command}), the files it reads and {versions()}",
            OUR_MISTAKE,
        )
    return _fail("interrupted", INTERRUPTED) if code == INTERRUPTED else int(code)


def _fail(message: str, code: int) -> int:
    print("aliasproof:", " ".join(message.split()), file=sys.stderr)
    return code


def _command(arguments: Sequence[str]) -> str:
    known = {
        each.name or each.callback.__name__
        for each in app.registered_commands
        if each.callback is not None
    }
    return f"{arguments[0]} " if arguments and arguments[0] in known else ""


def main() -> None:
    """The entry point."""
    os.environ.setdefault(
        "TORCH_CPP_LOG_LEVEL", "ERROR"
    )  # read when torch is loaded; its C++ warns past Python
    sys.exit(run(sys.argv[1:]))
