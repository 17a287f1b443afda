"""`issue_text`: a finding as an issue for PyTorch's tracker.

The sections are those of the form that the tracker asks for
(`.github/ISSUE_TEMPLATE/pt2-bug-report.yml` of pytorch/pytorch), with its requests to fuzzers.
"""

from __future__ import annotations

import platform
import sys

import torch

from aliasproof.campaigns.publish.headline import effect, headline, name_of, pass_in_words
from aliasproof.campaigns.publish.user_level import Reproduced
from aliasproof.campaigns.store.finding import Finding
from aliasproof.corpus.known_bugs import KNOWN_BUGS
from aliasproof.processes.outcome import DEATHS
from aliasproof.programs.devices import CPU, full_name
from aliasproof.programs.ordinary_syntax import with_short_names
from aliasproof.trials.code_generation import GENERATES_CODE, in_code_generator, without
from aliasproof.trials.passes import FUNCTIONALIZATION

LONGEST_LOG = 30  # lines
LONGEST_GRAPH = 40  # lines

# What a target adds to the one before it, in words that its maintainers use.
_PARTS = {
    "functionalize": "the graph that `make_fx(torch.func.functionalize(program))` traces",
    "fx-reinplace": "the graph that `torch.fx.passes.reinplace.reinplace` returns",
    "aot": "the inference graph that AOTAutograd makes (mutations of inputs kept in the graph)",
    "aot-epilogue": "AOTAutograd's inference graph, with its runtime wrapper,",
}

# Which property of eager is lost, by oracle.
_PROPERTIES = {
    "values": "Eager defines the result: a write through a view is seen by every tensor that shares"
    " its memory, and by no other.",
    "inputs": "A write in place belongs to the result: the caller sees it in its own tensors, and"
    " nothing else of them may change.",
    "aliasing": "Which tensors share memory is visible to the caller: a later write in place to one"
    " of them changes the other.",
    "objects": "Whether two tensors are one object is visible to the caller: what changes the"
    " metadata of one, such as `t_` or `resize_`, changes the other.",
    "metadata": "The layout of a result is visible to the caller, for example in `view`,"
    " `as_strided` and `is_contiguous`.",
    "errors": "Eager runs this program, and no documentation excludes it.",
}


def issue_text(finding: Finding, shown: Reproduced) -> str:
    """The issue, in Markdown: its first line is the title. `shown` is the finding's reproducer."""
    log, output = _split_log(finding, shown.output)
    return "\n".join(
        (
            title(finding),
            "",
            "### 🐛 Describe the bug",
            "",
            _first_sentence(finding),
            "",
            _code_block(shown.script, "python"),
            "",
            "Expected and actual, as the script prints them:",
            "",
            _code_block(output),
            "",
            _analysis(finding),
            *_graph(finding),
            "",
            *_ablation(finding),
            "",
            _how_it_was_found(finding),
            "",
            "### Error logs",
            "",
            log,
            "",
            "### Versions",
            "",
            _code_block(_versions(finding)),
            "",
        )
    )


def title(finding: Finding) -> str:
    """Who does what, after which call, by the API that users call if the bug shows there."""
    program = with_short_names(finding.program)
    return headline(api(finding), finding.violation, program, finding.blamed)


def api(finding: Finding) -> str:
    """The first backend of `torch.compile` under which the finding shows, or else the target."""
    shows = [backend for backend, answer in finding.user_level.items() if answer == "shows"]
    return f"torch.compile(backend='{shows[0]}')" if shows else finding.target


def _first_sentence(finding: Finding) -> str:
    name = name_of(api(finding))
    silent = " No exception is raised." if finding.silent else ""
    return f"`{name}` {effect(finding.violation)}, where eager does not.{silent}"


# --- the analysis ---------------------------------------------------------------------------------


def _analysis(finding: Finding) -> str:
    """Two sentences: what the target does, and which property of eager is lost."""
    return f"{_what_happens(finding)} {_PROPERTIES[finding.oracle]}"


def _what_happens(finding: Finding) -> str:
    base = finding.target.split(":")[0]
    part = _PARTS.get(base, f"`{finding.target}`")
    bug = KNOWN_BUGS.get(finding.known or "")
    if bug is not None:
        return f"It is known: {bug.title} ({bug.link or 'no issue was found in the tracker'})."
    if finding.violation.kind.startswith(DEATHS):
        return f"The process {finding.kind} in {part}."
    if finding.oracle == "errors":
        # The cause of an error is 'error in FILE: FUNCTION' where Python raised it.
        frame = finding.cause.removeprefix("error in ")
        where = f" (`{frame}`)" if frame != finding.cause else ""
        return f"The exception comes from {part}{where}: {_message(finding)}"
    if base in GENERATES_CODE or finding.blamed not in ("", FUNCTIONALIZATION):
        return _after_pass(finding)
    details = _difference(finding)
    earlier = (
        ", while the functionalized graph before it is right" if base == "fx-reinplace" else ""
    )
    return f"It is {part} that differs{earlier}, so no generated code is involved{details}."


def _after_pass(finding: Finding) -> str:
    """What is right before and wrong after a pass, or in the code generator."""
    details = _difference(finding)
    if finding.blamed and not in_code_generator(finding.blamed):
        words = pass_in_words(finding.blamed)
        return (
            f"It is right before {words} and wrong after it, so no generated code is"
            f" involved{details}."
        )
    remedy = without(finding.blamed)
    so = f" It is right {remedy}." if remedy else ""
    return f"All graphs are right, and the code that Inductor generates is wrong{details}.{so}"


def _message(finding: Finding) -> str:
    lines = str(finding.evidence.get("message", "")).strip().splitlines()
    return f"`{lines[0]}`." if lines and lines[0] else "it has no message."


def _difference(finding: Finding) -> str:
    """The numbers of the evidence, as the end of a sentence."""
    evidence = finding.evidence
    if "eager" not in evidence or "target" not in evidence:
        return ""
    where = finding.place
    if evidence.get("first wrong index"):  # empty for a tensor without dimensions
        where += f" at index {evidence['first wrong index']}"
    values = f"eager has {evidence['eager']} in {where}, the compiled function {evidence['target']}"
    if "wrong elements" in evidence:
        values += f" ({evidence['wrong elements']} of {evidence['elements']} elements differ)"
    return f": {values}"


def _graph(finding: Finding) -> list[str]:
    lines = finding.graph.strip().splitlines()
    if not lines or len(lines) > LONGEST_GRAPH:
        return []
    code = "\n".join(line.rstrip("; ") for line in lines)
    return ["", "The graph:", "", _code_block(code, "python")]


def _ablation(finding: Finding) -> list[str]:
    """Which backends show it, as the form asks."""
    target = name_of(finding.target)
    lines = ["Ablation:", "", f"- `{target}` alone: shows"]
    lines += [f'- `backend="{name}"`: {answer}' for name, answer in finding.user_level.items()]
    return lines


def _how_it_was_found(finding: Finding) -> str:
    compared = (
        "Outputs are compared exactly: the program only moves and combines small numbers, so that"
        " no rounding is involved."
        if finding.exact
        else "Outputs are compared with the default tolerances of `torch.testing.assert_close`."
    )
    kept = (
        f", which keep what cannot be left out ({finding.cause})"
        if finding.cause and finding.silent
        else ""
    )
    return (
        "Found by a fuzzer for aliasing and mutation, and reduced from"
        f" {len(finding.original)} to {len(finding.program)} operators{kept}. {compared}"
    )


# --- logs and versions ----------------------------------------------------------------------------


def _split_log(finding: Finding, output: str) -> tuple[str, str]:
    """The section for error logs, and what the script printed without the log."""
    lines = output.splitlines()
    last = max((i for i, line in enumerate(lines) if line.startswith("BUG: ")), default=len(lines))
    printed = lines[: last + 1]  # the rest is what torch logs
    if finding.silent:
        return "None: the wrong result is silent.", "\n".join(printed)
    # A message of torch can be long: it belongs into the log, its first line is enough above.
    begin = next((i for i, line in enumerate(printed) if line.startswith("actual:")), 0)
    log = printed[begin:-1]
    more = [f"(and {len(log) - LONGEST_LOG} more lines)"] if len(log) > LONGEST_LOG else []
    short = [*printed[: begin + 1], *printed[-1:]]
    return _code_block("\n".join((*log[:LONGEST_LOG], *more))), "\n".join(short)


def _versions(finding: Finding) -> str:
    """What `torch.utils.collect_env` says first."""
    return "\n".join(
        (
            f"PyTorch version: {finding.torch_version}",
            f"Git commit: {torch.version.git_version}",
            f"Is debug build: {torch.version.debug}",
            f"CUDA used to build PyTorch: {torch.version.cuda}",
            f"OS: {platform.platform()}",
            f"Python version: {sys.version.split()[0]} ({platform.architecture()[0]} runtime)",
            f"CPU: {platform.processor() or platform.machine()}",
            *_gpu(finding.program.device),
        )
    )


def _gpu(device: str) -> list[str]:
    """The model of the GPU, for findings on one."""
    return [] if device == CPU else [f"GPU: {full_name(device)}"]


def _code_block(text: str, language: str = "") -> str:
    return f"```{language}\n{text.strip()}\n```"
