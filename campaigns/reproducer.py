"""The reproducer: a script that shows eager and compiled side by side and says whether they differ.

It needs torch alone. For the reference pass, it also imports that pass.
"""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import torch

from oracles.judge import ORACLES
from oracles.verdict import Violation
from programs.printing import inputs_source, source
from programs.program import Program
from targets.target import Target

_EXITS = "Exits 1 while the bug is there, 0 when it is gone."
DEATHS = ("dies", "hangs")  # the kind of a violation starts so if the target ends its process
TIMEOUT = 120  # seconds. A script runs one small program, so one that takes longer hangs.


def render(program: Program, target: Target, violation: Violation, *, exact: bool) -> str:
    """The script for a violation. `exact` says whether outputs are compared without tolerance.

    For a target that dies or hangs, the script runs itself in a child process and reports how the
    child ends.
    """
    if violation.kind.startswith(DEATHS):
        return _script(
            program,
            target,
            f"{target.name}: {violation.kind}",
            ["subprocess", "sys"],
            [_MAIN_DEATH],
        )
    # The title becomes part of a docstring and of a string literal.
    title = re.sub(r"[\\\"\n]", "'", f"{target.name}: {violation.kind} ({violation.place})")
    check = _CHECKS[violation.oracle].replace("TOLERANCE", "rtol=0, atol=0, " if exact else "")
    return _script(program, target, title, ["logging", "sys"], [check, _MAIN])


def _script(
    program: Program, target: Target, title: str, standard: list[str], rest: list[str]
) -> str:
    """A script: title, imports, the program, its inputs, the target's recipe, and the rest."""
    # One block of imports at the top, as in any script, though a recipe brings its own.
    imports, recipe = _split(target.recipe)
    head = (
        f'"""{title}.\n\n{_EXITS}\nNeeds torch alone; seen with {torch.__version__}.\n"""',
        _imports(standard, imports),
        f'aten = torch.ops.aten\nTITLE = "{title}"',
    )
    # A target can change the program and its inputs for both runs.
    if target.conditions is not None and "def conditions(" in recipe:
        recipe += "\n\n\nprogram, inputs = conditions(program, inputs)"
    body = (source(program), inputs_source(program), recipe, *rest)
    return "\n\n".join(head) + "\n\n\n" + "\n\n\n".join(part.strip() for part in body) + "\n"


def _imports(standard: list[str], others: list[str]) -> str:
    """Import lines: the standard library's, then torch's."""
    first = sorted(
        {
            *(f"import {module}" for module in standard),
            *(line for line in others if "torch" not in line),
        }
    )
    return "\n".join([*first, "", "import torch", *(line for line in others if "torch" in line)])


def _split(recipe: str) -> tuple[list[str], str]:
    """The import lines of a recipe, and the rest."""
    lines = recipe.strip().splitlines()
    imports = [line for line in lines if line.startswith(("import ", "from "))]
    return imports, "\n".join(line for line in lines if line not in imports).strip()


# What each oracle compares: see `StandaloneCheck`.
_CHECKS = {oracle.name: oracle.check.source for oracle in ORACLES if oracle.check is not None}

_MAIN = '''
def run(function, args):
    """Outputs, or the exception raised."""
    try:
        with torch.no_grad():
            outputs = function(*args)
    except Exception as error:
        return error
    return [outputs] if isinstance(outputs, torch.Tensor) else list(outputs)


def rows(args, outputs):
    """What a run left behind, as (name, text) pairs."""
    if isinstance(outputs, Exception):
        return [("raises", f"{type(outputs).__name__}: {outputs}")]
    found = [(f"output {index}", output) for index, output in enumerate(outputs)]
    found += [(f"input {index} afterwards", arg) for index, arg in enumerate(args)]
    shown = [(name, " ".join(str(tensor).split())) for name, tensor in found]
    return shown + described(facts(args, outputs))


def main():
    logging.getLogger("torch").setLevel(logging.CRITICAL)
    args_eager, args_compiled = inputs(), inputs()
    eager = run(program, args_eager)
    other = run(lambda *args: compiled(program, inputs())(*args), args_compiled)
    left, right = dict(rows(args_eager, eager)), dict(rows(args_compiled, other))
    width = min(max(len(text) for text in ("eager", *left.values())), 60)
    print(f"{'':20}  {'eager':{width}}  compiled")
    for name in left | right:
        print(f"{name:20}  {left.get(name, ''):{width}}  {right.get(name, '')}")
    if isinstance(eager, Exception) or isinstance(other, Exception):
        same = isinstance(eager, Exception) == isinstance(other, Exception)
    else:
        same = equal(facts(args_eager, eager), facts(args_compiled, other))
    print("gone: both do the same" if same else f"BUG: {TITLE}")
    sys.exit(0 if same else 1)


main()
'''


_MAIN_DEATH = """
def main():
    if "child" in sys.argv:
        with torch.no_grad():
            compiled(program, inputs())(*inputs())
        return
    with torch.no_grad():
        print("eager:", program(*inputs()), flush=True)
    try:
        code = subprocess.run([sys.executable, __file__, "child"], timeout=60).returncode
        ending = f"dies of signal {-code}" if code < 0 else "ends"
    except subprocess.TimeoutExpired:
        ending = "hangs"
    print("compiled:", ending)
    print("gone: both end" if ending == "ends" else f"BUG: {TITLE}")
    sys.exit(0 if ending == "ends" else 1)


main()
"""


@dataclass(frozen=True, slots=True)
class Confirmation:
    """The result of a reproducer in a fresh process.

    `shown` says whether it showed the bug, `output` is what it printed, `ending` how it ended.
    """

    shown: bool
    output: str
    ending: str


def confirm(script: Path, timeout: float = TIMEOUT) -> Confirmation:
    """Run a reproducer in a fresh interpreter, isolated from this project's packages and settings.

    The bug is shown if the script exits 1 and its last line says so. `timeout` is in seconds.
    """
    # -I ignores PYTHONPATH, the working folder and the user's packages.
    command = [sys.executable, "-I", script.name]
    try:
        done = subprocess.run(
            command,
            cwd=script.parent,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
            errors="replace",
            # A session of its own: Ctrl-C ends the search, not the confirmation of its findings.
            start_new_session=True,
        )
    except subprocess.TimeoutExpired:
        return Confirmation(False, "", f"hangs: no end after {timeout:.0f} s")
    ending = (
        f"dies of signal {-done.returncode}" if done.returncode < 0 else f"exits {done.returncode}"
    )
    lines = done.stdout.strip().splitlines()
    # Python itself exits 1 after an uncaught exception, so the exit code alone is not enough.
    shown = done.returncode == 1 and bool(lines) and lines[-1].startswith("BUG: ")
    return Confirmation(shown, done.stdout + done.stderr, ending)
