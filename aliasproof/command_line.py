"""The command line: options and exit codes. Each command is a module in `aliasproof/commands/`.

Exit codes: 0 nothing wrong, 1 found something, 2 bad input, 3 internal error, 4 nothing judged, 130
interrupted. A command is imported when it is called: `--help` must not wait for torch.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from aliasproof import run_commands
from aliasproof.any_encoding import print_in_any_encoding
from aliasproof.options import (
    AcceptDocumented,
    CandidateLimit,
    File,
    FindingName,
    FunctionName,
    InProcess,
    InputsName,
    Interesting,
    Json,
    KeptOracle,
    KindOfOp,
    Limit,
    Memory,
    MinimizedFile,
    MinimizedTarget,
    MovedTo,
    Output,
    OwnTarget,
    StatusOfOp,
    Strict,
    Targets,
    Workers,
)
from aliasproof.programs.errors import DeviceLost, InternalError, OutOfMemory, UserError, printable
from aliasproof.startup import INTERRUPTED

FOUND, BAD_INPUT, INTERNAL_ERROR = 1, 2, 3

app = typer.Typer(
    add_completion=False,  # no --install-completion and --show-completion
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


app.command(short_help="Search for miscompiles with random programs.")(run_commands.fuzz)
app.command(short_help="Join runs by signature.")(run_commands.merge)
app.command(short_help="List and set the states of findings.")(run_commands.triage)
app.command(short_help="Show a run while it goes on.")(run_commands.watch)
app.command(short_help="Run findings or known bugs again, under several torches.")(
    run_commands.replay
)


@app.command(short_help="Compare your own function with eager.")
def check(
    file: File,
    target: Targets = None,
    function: FunctionName = "program",
    inputs: InputsName = "inputs",
    missed: Annotated[
        bool, typer.Option("--missed", help="Also list what a target could have done in place.")
    ] = False,
    limit: Limit = 60.0,
    memory: Memory = None,
    in_process: InProcess = False,
    accept_documented: AcceptDocumented = False,
    strict: Strict = False,
    device: MovedTo = None,
    json: Json = False,
) -> int:
    """Compare your own function with eager. FILE.py defines program(*tensors) and inputs().

    Exit status: 0 judged and equal to eager; 1 differs, as documented or not; 2 bad input; 3
    internal error; 4 nothing could be judged (eager is undefined or raises, or no target can run
    it).
    """
    from aliasproof.check_request import CheckRequest
    from aliasproof.commands.check import CheckOptions, check_file

    request = CheckRequest(file, (function, inputs), tuple(target or ()), missed, device)
    found = check_file(request, CheckOptions(limit, memory, in_process, json, strict))
    return found.exit_status(accept_documented=accept_documented, strict=strict)


@app.command(short_help="Show a finding and run it again.")
def show(
    finding: FindingName,
    target: OwnTarget = None,
    json: Json = False,
) -> None:
    """Show a finding: program, evidence, eager beside the target, graphs, reproducer.

    The program runs again in the installed torch.
    """
    from aliasproof.commands.show import show_finding

    show_finding(finding, target, as_json=json)


@app.command(short_help="Reduce a program to the instructions that a difference needs.")
def minimize(
    file: MinimizedFile,
    target: MinimizedTarget = None,
    oracle: KeptOracle = None,
    interesting: Interesting = None,
    output: Output = None,
    function: FunctionName = "program",
    inputs: InputsName = "inputs",
    workers: Workers = None,
    limit: CandidateLimit = 60.0,
    device: MovedTo = None,
    json: Json = False,
) -> int:
    """Reduce a function or a program as long as a target shows the same difference from eager.

    A function in FILE.py is recorded as ATen calls. Ctrl-C ends the reduction with the smallest
    program so far.

    Exit status: 0 reduced; 2 bad input, or nothing differs; 4 not judged; 130 interrupted.
    """
    from aliasproof.trials.isolation import start_server

    if device is None:
        start_server(["aliasproof.minimize_session"])  # it imports torch while this process does
    from aliasproof.commands.minimize import MinimizeOptions, minimize_file
    from aliasproof.minimize_request import MinimizeRequest

    request = MinimizeRequest(Path(file), (function, inputs), target, oracle, device)
    options = MinimizeOptions(interesting, output, workers, limit, json)
    return minimize_file(file, request, options)


@app.command(short_help="Show what the reference pass does to a program, and why.")
def explain(
    file: File,
    views: Annotated[
        str,
        typer.Option(
            metavar="alias|copy",
            help="Views in the functional graph: view ops, or view-copy ops.",
        ),
    ] = "alias",
    function: FunctionName = "program",
    inputs: InputsName = "inputs",
    json: Json = False,
) -> None:
    """Show a program, its functional graph and its reinplaced graph.

    For each op, say why it is in place or why not.

    Exit status: 0, or 2 for bad input and for programs that the reference pass refuses.
    """
    from aliasproof.commands.explain import explain_file
    from aliasproof.user_code.user_file import FileNames

    explain_file(file, views, FileNames(function, inputs), as_json=json)


@app.command(short_help="Prove for all sizes that a target adds no aliasing.")
def prove(
    file: File,
    target: Targets = None,
    sizes: Annotated[
        str,
        typer.Option(
            metavar="LOW:HIGH",
            help="Range of each size of the inputs. LOW: has no upper bound.",
        ),
    ] = "1:64",
    limit: Annotated[
        float, typer.Option(metavar="SECONDS", help="Time limit per pair of tensors.")
    ] = 10.0,
    function: FunctionName = "program",
    inputs: InputsName = "inputs",
    json: Json = False,
) -> int:
    """Prove for all sizes that a target adds no aliasing, or find sizes for which it does.

    A target adds aliasing if an input and an output, or two outputs, share a byte that they do not
    share in eager.

    Exit status: 0 nothing refuted, 1 a pair is refuted, 2 bad input.
    """
    from aliasproof.commands.prove import prove_file
    from aliasproof.user_code.user_file import FileNames

    names = FileNames(function, inputs)
    return FOUND if prove_file(file, target, sizes, limit, names, as_json=json) else 0


@app.command(short_help="List the known bugs of torch, and the versions that have them.")
def known(json: Json = False) -> None:
    """List the known bugs of torch: title, issue, program, versions, targets that show them."""
    from aliasproof.commands.known import list_known_bugs

    list_known_bugs(as_json=json)


@app.command(short_help="List the targets.")
def targets(json: Json = False) -> None:
    """List the targets, and what each promises.

    Your own pass or torch.compile backend is a target, too: --target PACKAGE.MODULE:FUNCTION,
    --target FILE.py:FUNCTION, or an entry point of the group 'aliasproof.targets'.
    """
    from aliasproof.commands.targets import list_targets

    list_targets(as_json=json)


@app.command(short_help="List the ops that programs are drawn from, and those that are not.")
def ops(kind: KindOfOp = None, status: StatusOfOp = None, json: Json = False) -> None:
    """List each op that is drawn, and each overload of ATen that gives a view or writes.

    Each of these is drawn, or reachable through another op, or a reason says why it is not.
    """
    from aliasproof.commands.ops import list_ops

    list_ops(kind=kind, status=status, as_json=json)


@app.command(short_help="Show what campaigns draw: ops, dtypes, layouts, scenarios.")
def stats(
    programs: Annotated[int, typer.Option(metavar="NUMBER", help="Draw this many programs.")] = 500,
    seed: Annotated[
        int, typer.Option(metavar="NUMBER", help="Draw what a campaign with this seed draws.")
    ] = 0,
    json: Json = False,
) -> None:
    """Draw programs as a campaign does, and show what they contain.

    A share below 1 % is marked as rare. What can be drawn and was not is marked NEVER.
    """
    from aliasproof.commands.stats import show_drawn

    show_drawn(programs, seed, as_json=json)


@app.command(short_help="Plant wrong passes and show which oracle kills each.")
def faults(
    fault: Annotated[
        list[str] | None,
        typer.Option(
            "--fault",
            metavar="NAME",
            help="A planted fault. Repeat the option for more faults. Default: all.",
        ),
    ] = None,
    programs: Annotated[
        int | None,
        typer.Option(
            metavar="NUMBER", help="A fault survives after this many programs. Default: 5,000."
        ),
    ] = None,
    seed: Annotated[
        int, typer.Option(metavar="NUMBER", help="The same seed gives the same matrix.")
    ] = 0,
    workers: Workers = None,
    json: Json = False,
) -> int:
    """Plant wrong passes and show the kill matrix.

    The matrix shows, for each fault and oracle, the first program on which the oracle reports a
    violation.

    Exit status: 0 if all faults are killed, 1 if a fault survives, 2 for bad input, 3 if the code
    of a fault raises.
    """
    from aliasproof.commands.faults import show_faults

    return FOUND if show_faults(fault or (), programs, seed, workers, as_json=json) else 0


def versions() -> str:
    """The versions of aliasproof, torch and Python. No package is imported for it."""
    from importlib.metadata import PackageNotFoundError, version

    def installed(name: str) -> str:
        # A checkout on PYTHONPATH is not an installed package.
        try:
            return version(name)
        except PackageNotFoundError:
            return "not installed"

    python = ".".join(map(str, sys.version_info[:3]))
    return f"aliasproof {installed('aliasproof')}, torch {installed('torch')}, Python {python}"


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
            return _fail(
                f"{usage_message()} (see 'aliasproof {_command(arguments)}--help')", BAD_INPUT
            )
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


def _command(arguments: Sequence[str]) -> str:
    known = {
        command.name or command.callback.__name__
        for command in app.registered_commands
        if command.callback is not None
    }
    return f"{arguments[0]} " if arguments and arguments[0] in known else ""


def main() -> None:
    """The entry point."""
    print_in_any_encoding()
    # Torch's C++ code writes warnings itself. It reads this level when torch is imported.
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    code = run(sys.argv[1:])
    if code == INTERRUPTED:
        # All is ended and said. To tear down torch would take a second more.
        sys.stdout.flush()
        os._exit(code)
    sys.exit(code)
