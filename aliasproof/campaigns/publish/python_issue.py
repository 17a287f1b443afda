"""`python_issue`: a finding of a Python program as an issue for PyTorch's tracker.

It has the sections of `issue_text`.
"""

from __future__ import annotations

from aliasproof.campaigns.publish.headline import first_line
from aliasproof.campaigns.publish.issue_text import (
    LONGEST_LOG,
    OF_ERRORS,
    PROPERTIES,
    code_block,
    printed_by,
    versions,
)
from aliasproof.campaigns.publish.python_reproducer import script, title
from aliasproof.campaigns.store.python_finding import PythonFinding
from aliasproof.judge.python_trial import layers
from aliasproof.targets.registry import backend_source

# Which property of eager is lost, where `issue_text` does not say it.
_STRUCTURE = (
    "What a call leaves in objects, lists and dicts, and which tensors require gradients, is"
    " visible to the caller."
)
_PARTS = {
    "dynamo": "Dynamo, which captures the graph: no backend is involved",
    "aot-eager": "AOTAutograd: the graph runs with eager's kernels, and no code is generated",
    "inductor": "Inductor: AOTAutograd alone (`aot_eager`) is right",
}


def python_issue(finding: PythonFinding, output: str) -> str:
    """The issue, in Markdown: its first line is the title. `output` is what its script printed."""
    silent = " No exception is raised." if finding.silent else ""
    lines = f"{finding.drawn_lines} lines to {finding.program.lines}"
    sections = (
        title(finding),
        "### 🐛 Describe the bug",
        f"For this program, the compiled function differs from eager in `{finding.place}`.{silent}",
        code_block(script(finding), "python"),
        "Expected and actual, as the script prints them:",
        code_block(printed_by(output)),
        f"{_what_is_wrong(finding)} {_property(finding)}",
        "\n".join(("Ablation:", "", *_ablation(finding))),
        f"Found by a fuzzer for aliasing and mutation, and reduced from {lines}.",
        "### Error logs",
        _log(finding),
        "### Versions",
        code_block(versions(finding.torch, finding.capability)),
    )
    return "\n\n".join(sections) + "\n"


def _what_is_wrong(finding: PythonFinding) -> str:
    part = _PARTS.get(finding.target, f"the target {finding.target}")
    if ": " in finding.part or ", " in finding.part:
        part += f". Experiments name the part: {finding.part}"
    if not finding.silent and finding.kind.startswith("does not raise"):
        return f"Eager raises `{first_line(finding.violation)}`. At fault is {part}."
    return f"At fault is {part}."


def _property(finding: PythonFinding) -> str:
    if finding.kind.startswith("does not raise"):
        return OF_ERRORS
    return PROPERTIES.get(finding.oracle, _STRUCTURE)


def _ablation(finding: PythonFinding) -> list[str]:
    """The layers up to the first that is wrong; those above it build on it."""
    *right, wrong = layers(finding.target)
    lines = [
        f"- `backend={backend_source(layer).expression}`: does what eager does" for layer in right
    ]
    return [*lines, f"- `backend={backend_source(wrong).expression}`: shows"]


def _log(finding: PythonFinding) -> str:
    if finding.silent:
        return "None: the wrong result is silent."
    lines = str(finding.evidence.get("message", "")).strip().splitlines()
    more = [f"(and {len(lines) - LONGEST_LOG} more lines)"] if len(lines) > LONGEST_LOG else []
    return code_block("\n".join((*lines[:LONGEST_LOG], *more)))
