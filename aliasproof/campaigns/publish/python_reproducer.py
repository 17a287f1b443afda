"""The script that shows a finding of a Python program with torch alone."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from aliasproof.campaigns.store.python_finding import PythonFinding
from aliasproof.oracles.aliasing import MEMORY
from aliasproof.programs.custom_operators import definitions_in
from aliasproof.trials.python_trial import backend_of

SCRIPT = "reproducer.py"
SECONDS = 120  # that a script may take
_THERE = """
def there(value):
    try:
        return value() is not None
    except (AttributeError, LookupError):
        return False
"""
_MAIN = '''

def shown(transform):
    """What a run leaves there; each run is in a process of its own."""
    try:
        left = calls(transform(program))
    except Exception as error:
        return f"{{type(error).__name__}}: {{error}}".partition("\\n")[0]
    left = {{**globals(), **left}}
    return {expression}


if len(sys.argv) == 1:
    for how in ("eager", "compiled"):
        print(f"{{how + ':':9}}", end=" ", flush=True)
        subprocess.run([sys.executable, __file__, how], check=False)
elif sys.argv[1] == "eager":
    print(shown(lambda program: program))
else:
    print(shown(lambda program: torch.compile(program, backend="{backend}")))
'''


def script(finding: PythonFinding) -> str:
    """The text of the script. It prints one line for eager and one for the compiled program."""
    backend = backend_of(finding.target)
    helper = {"aliasing": MEMORY, "structure": _THERE}.get(finding.oracle, "")
    main = _MAIN.format(expression=_expression(finding), backend=backend)
    imports = "import subprocess\nimport sys\n"
    source = finding.program.source.strip()
    # The operators of ours that it calls come after its imports.
    operators = "".join(f"\n\n{text}\n" for text in definitions_in(source))
    source = source.replace("import torch\n", f"import torch\n{operators}", 1)
    return f"{imports}\n{source}\n{helper}{main}"


def _expression(finding: PythonFinding) -> str:
    """What is printed of `left`, the names that the caller has afterwards."""
    places = [_of_left(place) for place in re.split(r", (?![^\[(]*[\])])", finding.place)]
    if finding.oracle == "errors":
        return '"returns"'
    if finding.oracle == "aliasing" and len(places) == 2:
        return f"bool(memory({places[0]}) & memory({places[1]}))"
    if finding.oracle == "objects" and len(places) == 2:
        return f"{places[0]} is {places[1]}"
    if finding.oracle in ("values", "inputs"):
        return f"getattr(it := {places[0]}, 'tolist', lambda: it)()"
    if finding.kind == "another order":
        parent, _, _ = places[0].rpartition("[" if places[0].endswith("]") else ".")
        return f"[*(it if isinstance(it := {parent}, dict) else vars(it))]"
    if finding.oracle == "structure" and not finding.evidence:
        return f"there(lambda: {places[0]})"
    first = places[0]
    return (
        f"(type(it := {first}).__name__, it.dtype, tuple(it.shape), it.stride(), it.requires_grad,"
        " it.is_leaf)"
    )


def _of_left(place: str) -> str:
    """A path such as 'out[0].grad' as an expression on `left`."""
    match = re.match(r"\w+", place)
    return f'left["{match[0]}"]{place[match.end() :]}' if match else place


def confirm(finding: PythonFinding) -> tuple[bool, str]:
    """Run the script in a fresh process: whether its two lines differ, and what it printed."""
    with tempfile.TemporaryDirectory(prefix="aliasproof-") as folder:
        path = Path(folder) / SCRIPT
        path.write_text(script(finding), encoding="utf-8")
        environment = {**os.environ, "PYTHONWARNINGS": "ignore"}
        try:
            ended = subprocess.run(
                [sys.executable, str(path)],
                capture_output=True,
                text=True,
                timeout=SECONDS,
                check=False,
                env=environment,
            )
        except subprocess.TimeoutExpired:
            return False, f"no answer within {SECONDS} s"
    shown = [line for line in ended.stdout.splitlines() if line.strip()]
    said = {line.partition(":")[0]: line.partition(":")[2].strip() for line in shown}
    differ = {"eager", "compiled"} <= said.keys() and said["eager"] != said["compiled"]
    return differ, ended.stdout + ended.stderr[-2000:]
