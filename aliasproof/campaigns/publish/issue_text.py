"""`issue_text`: a finding as an issue for PyTorch's tracker.

The sections are those of the form that the tracker asks for
(`.github/ISSUE_TEMPLATE/pt2-bug-report.yml` of pytorch/pytorch), with its requests to fuzzers.
"""

from __future__ import annotations

import platform
import re
import sys
from collections.abc import Sequence

import torch

from aliasproof.campaigns.failure.finding import Finding
from aliasproof.campaigns.publish.confirmation import Reproduced
from aliasproof.campaigns.publish.reproducer import (
    WITHOUT_GRADIENTS,
    effect,
    first_line,
    headline,
    in_code,
    name_of,
    pass_in_words,
    tells_more,
)
from aliasproof.corpus.bug_files import known_bugs
from aliasproof.ir.devices import CPU, full_name
from aliasproof.ir.ordinary_syntax import with_short_names
from aliasproof.ir.program import Program
from aliasproof.judge.localization import GENERATES_CODE, in_code_generator, without
from aliasproof.oracles.judge import ORACLES
from aliasproof.oracles.oracle import Needs
from aliasproof.oracles.verdict import ON_VALUES
from aliasproof.processes.outcome import DEATHS

LONGEST_LOG = 30  # lines
LONGEST_GRAPH = 40  # lines
NO_LOG = "None: the wrong result is silent."
BY_FUZZER = "by a fuzzer for aliasing and mutation"

# What a target does beyond the layer before it, in words that its maintainers use.
_PARTS = {
    "functionalize": "the graph that `make_fx(torch.func.functionalize(program))` traces",
    "fx-reinplace": "the graph that `torch.fx.passes.reinplace.reinplace` returns",
    "aot": "the inference graph that AOTAutograd makes (mutations of inputs kept in the graph)",
    "aot-epilogue": "AOTAutograd's inference graph, with its runtime wrapper,",
}

# By oracle: the property of eager that is violated.
PROPERTIES = {
    oracle.name: oracle.reason or f"In eager, {oracle.promise}."
    for oracle in ORACLES
    if oracle.needs is Needs.RESULTS
}
_OF_WRITES = (
    "Eager defines the result: a write through a view is seen by every tensor that shares its"
    " memory, and by no other."
)
_OF_OBJECTS = (
    "Whether a result is the tensor that was passed is visible to the caller: by `is`, and by a"
    " later `set_`, `resize_` or assignment of an attribute."
)
OF_ERRORS = "Eager refuses this program, and its caller may rely on the exception."


def issue_text(finding: Finding[Program], shown: Reproduced, origin: str = BY_FUZZER) -> str:
    """The issue, in Markdown: its first line is the title.

    `shown` is the finding's reproducer. `origin` says where or by what it was found.
    """
    log, output = _split_log(finding, shown.output)
    # What the target does, and which property of eager it violates.
    analysis = f"{_what_happens(finding)} {_property(finding)}"
    bug = known_bugs().get(finding.known or "")
    if bug is not None:  # without a report, the title describes the cause
        known = f"It is known: {bug.title_and_link}." if bug.link else f"The cause: {bug.title}."
        analysis = f"{known} {analysis}"
    what = (analysis, *_graph(finding), _ablation(finding))
    name = in_code(name_of(api(finding)))
    called = " called under `torch.no_grad()`," if WITHOUT_GRADIENTS in shown.script else ""
    silent = " No exception is raised." if finding.silent else ""
    does = f"{name} {effect(finding.violation)}, unlike eager.{silent}"
    return in_sections(
        (title(finding), f"For this function,{called} {does}", shown.script),
        output,
        (*what, _how_it_was_found(finding, origin)),
        log,
        versions(finding.torch_version, finding.capability, finding.program.device),
    )


def in_sections(
    shown: tuple[str, str, str], output: str, paragraphs: Sequence[str], log: str, versions: str
) -> str:
    """An issue: title, first sentence, script, its output, and `paragraphs` about it."""
    title, sentence, script = shown
    sections = (
        title,
        "### 🐛 Describe the bug",
        sentence,
        code_block(script, "python"),
        "Expected and actual, as the script prints them:",
        code_block(output),
        *paragraphs,
        "### Error logs",
        log,
        "### Versions",
        code_block(versions),
    )
    return "\n\n".join(sections) + "\n"


def title(finding: Finding[Program]) -> str:
    """What the compiler does after which call, by the API that users call if it shows there."""
    program = with_short_names(finding.program)
    return headline(api(finding), finding.violation, program, finding.wrong_part)


def api(finding: Finding[Program]) -> str:
    """The first backend of `torch.compile` under which the finding shows, or else the target."""
    shows = [backend for backend, answer in finding.user_level.items() if answer == "shows"]
    return f"torch.compile(backend='{shows[0]}')" if shows else finding.target


# --- the analysis ---------------------------------------------------------------------------------


def _property(finding: Finding[Program]) -> str:
    if finding.kind.startswith(("output became an input", "output is no longer the input")):
        return _OF_OBJECTS
    if finding.kind.startswith("does not raise"):
        return OF_ERRORS
    writes = any(call.mutates() for call in finding.program.instructions)
    return _OF_WRITES if finding.oracle == "values" and writes else PROPERTIES[finding.oracle]


def _what_happens(finding: Finding[Program]) -> str:
    base = finding.target.split(":")[0]
    part = _PARTS.get(base, in_code(name_of(finding.target)))
    if finding.violation.kind.startswith(DEATHS):
        return f"The process {finding.kind} in {part}."
    if finding.oracle == "errors":
        # The cause of an error is 'error in FILE: FUNCTION' where Python raised it.
        frame = finding.cause.removeprefix("error in ")
        where = f" (`{frame}`)" if frame != finding.cause else ""
        said = first_line(finding.violation)
        message = f"`{said}`." if said else "it has no message."
        if finding.kind.startswith("does not raise"):
            return f"Eager raises `{finding.evidence.get('type')}`: {message}"
        return f"The exception comes from {part}{where}: {message}"
    if base in GENERATES_CODE or tells_more(finding.wrong_part):
        return _after_pass(finding)
    details = _difference(finding)
    earlier = (
        ", while the functionalized graph before it is right" if base == "fx-reinplace" else ""
    )
    return f"The difference is in {part}{earlier}; no generated code is involved{details}."


def _after_pass(finding: Finding[Program]) -> str:
    """A sentence: right before and wrong after a pass, or in the code generator."""
    details = _difference(finding)
    if finding.wrong_part and not in_code_generator(finding.wrong_part):
        words = pass_in_words(finding.wrong_part)
        return (
            f"It is right before {words} and wrong after it, so no generated code is"
            f" involved{details}."
        )
    remedy = without(finding.wrong_part)
    so = f" It is right {remedy}." if remedy else ""
    return f"All graphs are right, and the code that Inductor generates is wrong{details}.{so}"


def _difference(finding: Finding[Program]) -> str:
    """The numbers of the evidence, as the end of a sentence."""
    evidence = finding.evidence
    if "eager" not in evidence or "target" not in evidence:
        return ""
    where = finding.place
    if evidence.get("first wrong index"):  # empty for a tensor without dimensions
        where += f" at index {evidence['first wrong index']}"
    if "seen through" in evidence:
        where += f" ({evidence['seen through']})"
    what = f"in {where}"
    if finding.oracle == "metadata":
        what = finding.kind.split("wrong ")[-1].split("another ")[-1]
        what = f"as {what.replace('shape', 'size and strides')} of {where}"
    values = f"eager has {evidence['eager']} {what}, the compiled function {evidence['target']}"
    if "wrong elements" in evidence:
        values += f" ({evidence['wrong elements']} of {evidence['elements']} elements differ)"
    return f": {values}"


def _graph(finding: Finding[Program]) -> list[str]:
    lines = finding.graph.strip().splitlines()
    if not lines or len(lines) > LONGEST_GRAPH:
        return []
    # Without the statements that free unused values.
    code = "\n".join(re.sub(r";( *\w+ =)+ None\s*$", "", line).rstrip("; ") for line in lines)
    return ["The graph that it makes:", code_block(code, "python")]


def _ablation(finding: Finding[Program]) -> str:
    """Which backends show the finding, as the form asks."""
    lines = [f"- {in_code(name_of(finding.target))} alone: shows"]
    lines += [f'- `backend="{name}"`: {answer}' for name, answer in finding.user_level.items()]
    if not finding.user_level and finding.known is None:  # campaigns try only new findings
        lines.append("- `torch.compile`: not tried")
    return "\n".join(("Ablation:", "", *lines))


def _how_it_was_found(finding: Finding[Program], origin: str) -> str:
    compared = (
        " Values are compared exactly: no operator of the program rounds."
        if finding.exact
        else " Values are compared with the tolerances of `torch.testing.assert_close`."
    )
    found = f"Found {origin}"
    if finding.known is not None and not finding.tried:
        found += "; this is the smallest program that is known to show it."
    else:
        size = len(finding.program)
        what = f"{size} operator{'s' if size != 1 else ''}"
        before = finding.drawn_size
        found += f". Reduced from {before} to {what}." if size < before else "."
        if finding.silent and finding.cause not in ("", finding.kind):
            found += f" The reduction could not leave out: {finding.cause}."
    return found + (compared if finding.oracle in ON_VALUES else "")


# --- logs and versions ----------------------------------------------------------------------------


def _split_log(finding: Finding[Program], output: str) -> tuple[str, str]:
    """The section for error logs, and what the script printed without the log."""
    if finding.silent:
        return NO_LOG, printed_by(output)
    printed = printed_by(output).splitlines()
    # A message of torch can be long: it belongs into the log, and its first line is enough here.
    begin = next((i for i, line in enumerate(printed) if line.startswith("actual:")), 0)
    short = [*printed[: begin + 1], *printed[-1:]]
    return in_log(printed[begin:-1]), "\n".join(short)


def in_log(lines: Sequence[str]) -> str:
    """The first lines of torch's output."""
    more = [f"(and {len(lines) - LONGEST_LOG} more lines)"] if len(lines) > LONGEST_LOG else []
    return code_block("\n".join((*lines[:LONGEST_LOG], *more)))


def printed_by(output: str) -> str:
    """What a reproducer printed, without what torch logs after it."""
    lines = output.splitlines()
    last = max((i for i, line in enumerate(lines) if line.startswith("BUG: ")), default=len(lines))
    return "\n".join(lines[: last + 1])


def versions(torch_version: str, capability: str, device: str = CPU) -> str:
    """The first lines of the output of `torch.utils.collect_env`."""
    return "\n".join(
        (
            f"PyTorch version: {torch_version}",
            f"Git commit: {torch.version.git_version}",
            f"Is debug build: {torch.version.debug}",
            f"CUDA used to build PyTorch: {torch.version.cuda}",
            f"OS: {platform.platform()}",
            f"Python version: {sys.version.split()[0]} ({platform.architecture()[0]} runtime)",
            f"CPU: {platform.processor() or platform.machine()}",
            *([f"CPU capability usage: {capability}"] if capability else []),
            *([] if device == CPU else [f"GPU: {full_name(device)}"]),
        )
    )


def code_block(text: str, language: str = "") -> str:
    return f"```{language}\n{text.strip()}\n```"
