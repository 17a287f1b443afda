"""`python_issue`: a finding of a Python program as an issue for PyTorch's tracker.

It has the sections of `issue_text`.
"""

from __future__ import annotations

import ast
import dataclasses
import re

from aliasproof.campaigns.failure.finding import Finding
from aliasproof.campaigns.publish.confirmation import (
    OTHER_EVIDENCE,
    Confirmation,
    Run,
    confirm,
    run_text,
)
from aliasproof.campaigns.publish.issue_text import (
    BY_FUZZER,
    NO_LOG,
    OF_ERRORS,
    PROPERTIES,
    in_log,
    in_sections,
    printed_by,
    versions,
)
from aliasproof.campaigns.publish.reproducer import (
    CHECKS,
    LONGEST_MESSAGE,
    at_fault,
    effect,
    first_line,
)
from aliasproof.ir.custom_operators import definitions_in
from aliasproof.ir.python_program import (
    COMPILED,
    CONTROL_FLOW,
    PythonProgram,
    draws,
    mechanisms,
    words,
)
from aliasproof.judge.python_case import layers
from aliasproof.oracles.bounds import GUARDED_BUFFERS
from aliasproof.targets.dynamo import DRAWING_AS_EAGER, DRAWS_AS_EAGER
from aliasproof.targets.registry import backend_source

# Kinds of syntax, as a reader knows them.
_KEYWORDS = {
    **{kind: kind.lower() for kind in ("For", "In", "Is", "Raise", "Try", "While")},
    "Delete": "del",
    "GeneratorExp": "a generator",
    "IsNot": "is not",
}
LONGEST_BODY = 80  # characters of a program that a title quotes
# By kind: what the compiled program does, where `effect` only speaks of results.
_EFFECTS = {
    "wrong value": "leaves wrong values in {place}",
    "something is missing": "leaves out {place}",
    "something is new": "leaves {place}, which is not there in eager",
    "another order": "leaves another order of {place}",
    "another type, or gradients": "leaves {place} with another type, or other gradients",
}
_THERE = """
def there(value):
    try:
        return value() is not None
    except (AttributeError, LookupError):
        return False
"""
_HELPERS = {"structure": _THERE, "uninitialised": GUARDED_BUFFERS}
_MAIN = '''

def shown(transform):
    """What a run leaves there; each run is in a process of its own."""
    try:
        left = {{**globals(), **calls(transform(program))}}
        return {expression}
    except Exception as error:
        text = f"{{type(error).__name__}}: {{error}}"
        return text.replace(" raised:\\n", " raised: ").partition("\\n")[0]


def run(transform):
    """What is shown in a fork of this process: no run sees what another one left in torch."""
    reader, writer = os.pipe()
    if (child := os.fork()) == 0:
        os.write(writer, str(shown(transform)).encode())
        os._exit(0)
    os.close(writer)
    with open(reader) as printed:
        text = printed.read()
    return text or f"ends with status {{os.waitpid(child, 0)[1]}}"


print("expected:", expected := run(lambda program: program), flush=True)
print("actual:  ", actual := run(lambda program: torch.compile(program, {compiled})))
print(f"BUG: {{__doc__.splitlines()[0]}}" if expected != actual else "gone: both do the same")
sys.exit(int(expected != actual))
'''


def script(finding: Finding[PythonProgram]) -> str:
    """The text of the script. It prints one line for eager and one for the compiled program.

    It exits 1, and says so in its last line, if they differ.
    """
    helper = _HELPERS.get(finding.oracle) or CHECKS[finding.oracle].of_kind(finding.kind).helper
    backend = backend_source(finding.target)
    compiled = f"backend={backend.expression}"
    setting = ""
    if draws(finding.program):  # the compiled program must draw random numbers as eager does
        if finding.target == "inductor":
            compiled += f", options={DRAWS_AS_EAGER}"
        else:
            setting = DRAWING_AS_EAGER
    main = _MAIN.format(expression=_expression(finding), compiled=compiled)
    imports = f"import os\nimport sys\n{backend.lines}{setting}"
    said = title(finding).replace("\\", "/").replace('"', "'")
    source = finding.program.source.strip()
    # The custom operators that the program calls are defined after its imports.
    operators = "".join(f"\n\n{text}\n" for text in definitions_in(source))
    source = source.replace("import torch\n", f"import torch\n{operators}", 1)
    if finding.capability:
        said += (
            f".\n\nSeen with torch {finding.torch_version} on a CPU with {finding.capability}.\n"
        )
    return f'"""{said}"""\n\n{imports}\n{source}\n{helper}{main}'


def title(finding: Finding[PythonProgram]) -> str:
    """What the compiler does for which program, in one line."""
    place, violation = finding.place, finding.violation
    does = _EFFECTS.get(finding.kind, "").format(place=f"`{place}`") or effect(violation)
    line = first_line(violation)
    said = f": {line}," if finding.oracle == "errors" and 0 < len(line) <= LONGEST_MESSAGE else ""
    backend = backend_source(finding.target).expression.replace('"', "'")
    return f"torch.compile(backend={backend}) {does}{said} for {_what(finding)}"


def _what(finding: Finding[PythonProgram]) -> str:
    """The body of `program`, or the part of it that is special."""
    tree = ast.parse(finding.program.source)
    functions = [it for it in tree.body if isinstance(it, ast.FunctionDef)]
    lines = [ast.unparse(it) for made in functions if made.name == COMPILED for it in made.body]
    text = "; ".join(lines)
    if lines and "\n" not in text and len(text) <= LONGEST_BODY:
        return text
    special = mechanisms(finding.program) | (words(finding.program) & CONTROL_FLOW)
    named = ", ".join(sorted(_KEYWORDS.get(word, word) for word in special))
    return f"a program with {named}" if named else "a program of several statements"


def _expression(finding: Finding[PythonProgram]) -> str:
    """The expression to print, on `left`: the names that the caller has afterwards."""
    places = [_of_left(place) for place in re.split(r", (?![^\[(]*[\])])", finding.place)]
    if finding.oracle == "errors":
        return '"returns"'
    if finding.oracle in ("values", "inputs", "uninitialised"):
        return f"getattr(it := {places[0]}, 'tolist', lambda: it)()"
    if finding.kind == "another order":
        parent, _, _ = places[0].rpartition("[" if places[0].endswith("]") else ".")
        return f"[*(it if isinstance(it := {parent}, dict) else vars(it))]"
    if finding.kind.startswith("something is "):  # missing, or new
        return f"there(lambda: {places[0]})"
    if finding.oracle == "structure":  # it need not be a tensor in both runs
        facts = "('requires_grad', 'is_leaf')"
        return f"[type(it := {places[0]}).__name__, *(getattr(it, fact, None) for fact in {facts})]"
    if finding.oracle != "metadata":
        return at_fault(CHECKS[finding.oracle].of_kind(finding.kind).facts, places)
    return (
        f"(type(it := {places[0]}).__name__, it.dtype, tuple(it.shape), it.stride(),"
        " it.requires_grad, it.is_leaf)"
    )


def _of_left(place: str) -> str:
    """A path such as 'out[0].grad' as an expression on `left`."""
    match = re.match(r"\w+", place)
    return f'left["{match[0]}"]{place[match.end() :]}' if match else place


def confirm_python(finding: Finding[PythonProgram], run: Run = confirm) -> Confirmation:
    """Run the script in a fresh process: whether it shows the finding, and what it printed."""
    confirmation = run_text(script(finding), run)
    # For an error, the script must have printed its type.
    error = f"{finding.evidence.get('type', '')}: " if finding.oracle == "errors" else ""
    if confirmation.shown and error not in confirmation.output:
        return dataclasses.replace(confirmation, shown=False, ending=OTHER_EVIDENCE)
    return confirmation


_PARTS = {
    "dynamo": "Dynamo, which captures the graph: no backend is involved",
    "aot-eager": "AOTAutograd: the graph runs with eager's kernels, and no code is generated",
    "inductor": "Inductor: AOTAutograd alone (`aot_eager`) is right",
}


def python_issue(finding: Finding[PythonProgram], output: str, origin: str = BY_FUZZER) -> str:
    """The issue, in Markdown: its first line is the title. `output` is what its script printed."""
    silent = " No exception is raised." if finding.silent else ""
    lines = f"{finding.drawn_size} lines to {finding.size}"
    place = f"For this program, the compiled function differs from eager in `{finding.place}`."
    message = str(finding.evidence.get("message", "")).strip().splitlines()
    no_error = finding.kind.startswith("does not raise")
    lost = OF_ERRORS if no_error else PROPERTIES[finding.oracle]
    part = _PARTS.get(finding.target, f"the target {finding.target}")
    if ": " in finding.wrong_part or ", " in finding.wrong_part:
        part += f". Experiments name the part: {finding.wrong_part}"
    raised = f"Eager raises `{first_line(finding.violation)}`. " if no_error else ""
    return in_sections(
        (title(finding), f"{place}{silent}", script(finding)),
        printed_by(output),
        (
            f"{raised}At fault is {part}. {lost}",
            "\n".join(("Ablation:", "", *_ablation(finding))),
            f"Found {origin}, and reduced from {lines}.",
        ),
        NO_LOG if finding.silent else in_log(message),
        versions(finding.torch_version, finding.capability),
    )


def _ablation(finding: Finding[PythonProgram]) -> list[str]:
    """The layers up to the first that is wrong; those above it build on it."""
    *right, wrong = layers(finding.target)
    lines = [
        f"- `backend={backend_source(layer).expression}`: does what eager does" for layer in right
    ]
    return [*lines, f"- `backend={backend_source(wrong).expression}`: shows"]
