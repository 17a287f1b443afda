"""`headline`: a violation in one line, as the title of an issue."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from aliasproof.ir.ordinary_syntax import ordinary_source
from aliasproof.ir.program import Instruction, Program
from aliasproof.judge.localization import FUNCTIONALIZATION
from aliasproof.oracles.output_values import OTHER_ZERO
from aliasproof.oracles.verdict import Violation
from aliasproof.processes.outcome import DEATHS, OUT_OF_MEMORY

LONGEST_CALLS = 72  # characters of the calls that a headline quotes
LONGEST_MESSAGE = 90  # characters of a message that a headline quotes
MOST_CALLS = 3  # that a headline quotes or names

# What users call the targets.
_NAMES = {
    "functionalize": "torch.func.functionalize",
    "fx-reinplace": "torch.fx.passes.reinplace",
    "aot": "AOTAutograd",
    "aot-epilogue": "AOTAutograd",
    "inductor": "torch.compile",
    "inductor-fx": "Inductor without code generation",
    "inductor-reinplace": "Inductor's reinplacing",
    "reference": "reference_pass",
    "reference-copy": "reference_pass",
    "reference-planned": "reference_pass",
}

# Per start of a kind: what the compiled function does.
_EFFECTS = (
    ("wrong value", "returns wrong values"),
    ("wrong number of outputs", "returns another number of outputs"),
    ("input ends wrong", "leaves wrong values in an input"),
    ("bytes outside the inputs change", "changes bytes of a storage outside its inputs"),
    ("storage has another size", "leaves an input with a storage of another size"),
    ("new alias between input and input", "leaves two inputs that share memory"),
    ("new alias between output and output", "returns two outputs that share memory"),
    ("new alias between", "returns an output that shares memory with an input"),
    ("lost alias between input and input", "leaves two inputs that no longer share memory"),
    ("lost alias between output and output", "returns two outputs that no longer share memory"),
    ("lost alias between", "returns an output that no longer shares memory with an input"),
    ("output overlaps itself", "returns an output that overlaps itself"),
    ("output became an input", "returns an input in place of a new tensor"),
    ("output is no longer the input itself", "returns another tensor in place of an input"),
    ("two outputs became one object", "returns one object for two outputs"),
    ("two outputs are no longer one object", "returns two objects for one output"),
    ("wrong storage offset", "returns an output with a wrong storage offset"),
    ("wrong stride", "returns an output with wrong strides"),
    ("wrong ", "returns an output with a wrong {rest}"),
    ("input ends with another ", "leaves an input with another {rest}"),
    ("dies", "{kind}"),
    ("hangs", "hangs"),
    (OUT_OF_MEMORY, OUT_OF_MEMORY),
)


def headline(compiler: str, violation: Violation, program: Program, blamed: str = "") -> str:
    """Who does what, after which write, and by which pass, if one is blamed.

    Nothing is cut, and no number is left out.
    """
    by = f" ({pass_in_words(blamed)})" if tells_more(blamed) else ""
    said = _message(violation)
    return f"{name_of(compiler)} {effect(violation)}{said} {_after(program)}{by}"


def tells_more(blamed: str) -> bool:
    """Whether a blamed pass says more than the name of the compiler."""
    return blamed not in ("", FUNCTIONALIZATION) and not blamed.startswith("stage: ")


def in_code(name: str) -> str:
    """A name as Markdown: what can be imported is code."""
    return f"`{name}`" if name.startswith("torch.") else name


def first_line(violation: Violation) -> str:
    """The first line of the message of an error; empty if it has none."""
    lines = str(violation.evidence.get("message", "")).strip().splitlines()
    return lines[0] if lines else ""


def _message(violation: Violation) -> str:
    """The message of an error, if it is short."""
    raises = violation.oracle == "errors" and violation.kind.startswith("raises ")
    line = first_line(violation) if raises else ""
    return f" '{line}'" if 0 < len(line) <= LONGEST_MESSAGE else ""


def pass_in_words(blamed: str) -> str:
    """A blamed pass or part as a maintainer says it: 'Inductor's pass remove_noop_ops'."""
    part, _, name = blamed.partition(": ")
    if part in ("pre_grad", "joint_graph", "post_grad", "partitioner"):
        return f"Inductor's {part} pass {name}" if part != "partitioner" else f"partitioner: {name}"
    if part in ("AOTAutograd", "Dynamo"):
        return f"{part}'s {name}"
    return f"Inductor's {blamed}"


def name_of(compiler: str) -> str:
    """The name of a target or backend for people; variants of a target follow in parentheses."""
    target, _, variants = compiler.partition(":")
    if target not in _NAMES:
        return compiler
    return _NAMES[target] + (f" ({variants.replace(':', ', ')})" if variants else "")


def effect(violation: Violation) -> str:
    """What the compiled function does differently, as a verb phrase."""
    kind = violation.kind
    if violation.oracle == "errors" and not kind.startswith(DEATHS):
        error = str(violation.evidence.get("type", "an error"))
        return f"does not raise {error}" if kind.startswith("does not") else f"raises {error}"
    if kind == "input ends with another shape" and _only_strides(violation.evidence):
        return "leaves an input with other strides"
    if kind == OTHER_ZERO:
        of_input = violation.place.startswith("input")
        return f"leaves a {kind} in an input" if of_input else f"returns a {kind}"
    for start, phrase in _EFFECTS:
        if kind.startswith(start):
            return phrase.format(kind=kind, rest=kind.removeprefix(start))
    return f"does not do what eager does ({kind})"


def _only_strides(evidence: Mapping[str, object]) -> bool:
    """Whether two layouts, `[sizes, strides]`, have the same sizes."""
    return str(evidence.get("eager")).split("]")[0] == str(evidence.get("target")).split("]")[0]


def _after(program: Program) -> str:
    """The calls of the program in ordinary syntax, or its writes, or the names of its operators.

    A reduced program has no call that can be left out; arithmetic without a call tells nothing. If
    the writes are too many, those that give a tensor another storage or layout are named, and the
    last ones.
    """
    lines = [line.strip() for line in ordinary_source(program, near=True).splitlines()[1:]]
    writers = [_name(call) for call in program.instructions if call.mutates()]
    write = "|".join((r"\w_\(", "out=", *(rf"\b{re.escape(name)}\(" for name in writers)))
    writes = [line for line in lines if re.search(write, line)]
    when = "after" if writers else "for"
    calls = [line for line in lines if re.search(r"[(\[]", line)] if writes else []
    only = lines if len(lines) == 1 and len(program.outputs) < 2 else []
    for statements in (calls, writes, only):
        quoted = list(dict.fromkeys(_with_definitions(statements, lines)))
        text = _listed(quoted)
        if 0 < len(quoted) <= MOST_CALLS and len(text) <= LONGEST_CALLS and "aten." not in text:
            return f"{when} {text}"
    used = list(dict.fromkeys(map(_name, _writers_with_operands(program) or program.instructions)))
    telling = sorted(used, key=lambda name: (name in writers, name.startswith(("set_", "resize_"))))
    named = [name for name in used if name in telling[-MOST_CALLS:]]
    return f"{when} {_listed(named) or 'a function without calls'}"


def _name(call: Instruction) -> str:
    return call.op.split(".")[-2]


_ASSIGNED = re.compile(r"^(?:return |([\w, ()]+) = )")


def _with_definitions(calls: Sequence[str], lines: Sequence[str]) -> Iterator[str]:
    """These statements, and those that make the temporaries in them, without names not used."""
    kept, used = set(calls), set[str]()
    for line in reversed(lines):
        made = _ASSIGNED.match(line)
        names = set(re.findall(r"\w+", made[1] or "")) if made else set()
        if line in kept or names & used:
            kept.add(line)
            used.update(re.findall(r"\w+", _ASSIGNED.sub("", line)))
    for line in lines:
        made = _ASSIGNED.match(line)
        named = made and used.intersection(re.findall(r"\w+", made[1] or ""))
        if line in kept:
            yield line if named else _ASSIGNED.sub("", line)


def _writers_with_operands(program: Program) -> list[Instruction]:
    """The instructions that write, and those whose results they use."""
    used: set[str] = set()
    chosen = []
    for call in reversed(program.instructions):
        if call.mutates() or used.intersection(call.results):
            used.update(call.refs)
            chosen.append(call)
    return chosen[::-1]


def _listed(texts: list[str]) -> str:
    *first, last = texts or [""]
    return f"{', '.join(first)} and {last}" if first else last
