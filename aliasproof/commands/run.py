"""The command `run`: a script of a user, unchanged, with a check of each graph that it compiles."""

from __future__ import annotations

import runpy
import sys
import threading
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from aliasproof.commands.options import argument, flag, option, target_option, whole_number
from aliasproof.commands.startup import INTERRUPTED
from aliasproof.ir.errors import UserError
from aliasproof.reports.console import notes, print_lines
from aliasproof.running_model.running_graph import Watcher

if TYPE_CHECKING:  # they import torch, or numpy
    from aliasproof.running_model.verifying import Way

DIFFERS = 1

Script = Annotated[str, argument("SCRIPT.py", "A script that compiles by torch.compile.")]
Arguments = Annotated[list[str] | None, argument("-- ARGS", "The arguments of the script.")]
RunTarget = Annotated[
    str | None,
    target_option("Compile with this target. Default: with what the script compiles with."),
]
Calls = Annotated[
    int | None, whole_number("Judge the first calls of each graph. Default: all of them.", 1)
]
Raise = Annotated[bool, flag("--raise", "Raise an error in the script at the first difference.")]
Out = Annotated[Path, option("DIR", "Where graphs that differ are stored.", "--out", "-o")]
AsModule = Annotated[
    bool,
    typer.Option("--module", "-m", help="SCRIPT.py is the name of a module, as for python -m."),
]
Fail = Annotated[
    bool,
    flag("--fail-on-differences", "Exit with status 1 if a graph differs or nothing was judged."),
]
Verify = Annotated[
    bool,
    flag("--verify", "Instead, compare the script in eager with it as it is."),
]


def run(
    script: Script,
    arguments: Arguments = None,
    target: RunTarget = None,
    calls: Calls = None,
    on_difference: Raise = False,
    out: Out = Path("aliasproof-graphs"),
    module: AsModule = False,
    fail: Fail = False,
    verify: Verify = False,
) -> int:
    """Run a script as Python does, and compare each graph that torch.compile makes with eager.

    The model goes on with what eager computes. Each graph that differs has one line on standard
    error, and is stored with its inputs for `aliasproof check` and `aliasproof minimize`. A summary
    follows at the end.

    Exit status: that of the script. 1 if it raises, or with --fail-on-differences if a graph
    differs or nothing was judged; 2 bad input.
    """
    if not module and not Path(script).is_file():
        raise UserError(f"{script} is not a file; give a script, or a module with -m")
    if verify:
        if target is not None or calls is not None or on_difference:
            raise UserError(
                "--verify runs the script as it is, and judges no graph: leave out --target,"
                " --calls and --raise, or --verify"
            )
        return _verify(script, arguments or [], as_module=module, fail=fail)
    watcher = Watcher()  # before torch starts threads
    from aliasproof.torch_parts import require

    require("models")
    from aliasproof.running_model.checking_backend import checking_compiled
    from aliasproof.running_model.model_check import print_summary

    with checking_compiled(
        target,
        calls=calls,
        on_difference="raise" if on_difference else "continue",
        out=out,
        summary=False,
    ) as check:
        check.running = watcher.running
        status = _run(script, arguments or [], as_module=module)
    watcher.end()
    print_summary(check, _nothing(script, status))
    # A graph differs, or nothing was judged.
    fails = bool(check.differences) or not check.judged
    return DIFFERS if fail and fails and status == 0 else status


def _verify(script: str, arguments: list[str], *, as_module: bool, fail: bool) -> int:
    from aliasproof.running_model.verifying import verify

    def run_once(tensors: Path, way: Way) -> int:
        from aliasproof.running_model.held_tensors import recording

        with recording(tensors, way):
            return _run(script, arguments, as_module=as_module)

    status, agree, line = verify(run_once)
    print_lines(notes(), f"aliasproof: {line}")
    return DIFFERS if fail and not agree and status == 0 else status


def _nothing(script: str, status: int) -> str:
    if status:
        return f"NOT CHECKED: {script} ended with status {status} before a graph was compiled"
    return (
        f"NOT CHECKED: {script} compiled nothing in its own process (what it starts is not"
        " checked): compile the model in it, as by model = torch.compile(model), and call it"
    )


def _run(script: str, arguments: list[str], *, as_module: bool) -> int:
    """The exit status of a script, which runs in this process."""
    sys.argv = [script, *arguments]
    sys.path.insert(0, str(Path.cwd() if as_module else Path(script).resolve().parent))
    try:
        if as_module:
            runpy.run_module(script, run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(script, run_name="__main__")
    except SystemExit as ending:
        return _status(ending.code)
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - any error of the script is reported as Python does
        _print_error(error)
        return INTERRUPTED if isinstance(error, KeyboardInterrupt) else 1
    finally:
        # As Python does before it ends. It tells executors first, whose threads would else wait.
        shutdown: Any = vars(threading)["_shutdown"]
        shutdown()
        sys.stdout.flush()
    return 0


def _status(code: object) -> int:
    """The exit status of `sys.exit(code)`."""
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF
    print(code, file=sys.stderr)
    return 1


def _print_error(error: BaseException) -> None:
    """The traceback, without the frames of this module and of `runpy`."""
    # `runpy` is frozen in some builds of Python.
    ours, stack = (__file__, runpy.__file__, "<frozen runpy>"), error.__traceback__
    while stack is not None and stack.tb_frame.f_code.co_filename in ours:
        stack = stack.tb_next
    traceback.print_exception(error.with_traceback(stack))
