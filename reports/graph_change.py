"""Two graphs as a diff, in which the calls are marked that a wrong result comes from."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass

_DELETIONS = re.compile(r";  (?:\w+ = )+None$")
_NAME = re.compile(r"[A-Za-z_]\w*")
_CALL = re.compile(r"(\w+)(?:: [^=]*)? = (.*)")
_WRITE = re.compile(r"torch\.ops\.aten\.copy_\.default\((\w+), ")


@dataclass(frozen=True, slots=True)
class ChangedLine:
    """A line of a diff: its sign, '+', '-' or a space; `marked` if it is at fault."""

    sign: str
    text: str
    marked: bool = False


@dataclass(frozen=True, slots=True)
class GraphChange:
    """A graph before and after a step of a compilation. `note` explains the marks."""

    before: str
    after: str
    lines: tuple[ChangedLine, ...]
    note: str = ""


def changed_lines(before: str, after: str) -> Iterator[str]:
    """The lines of two graphs around differences, each prefixed with '-', '+' or a space."""
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=2)
    for line in lines:
        if line[:3] not in ("---", "+++"):
            yield "..." if line.startswith("@@") else line


def graph_change(
    names: tuple[str, str], before: str, after: str, marked: Collection[str] = (), note: str = ""
) -> GraphChange:
    """The change between two graphs, with all lines. `marked` are names of nodes."""
    lines = []
    ours, theirs = readable_code(before).splitlines(), readable_code(after).splitlines()
    # With this many lines of context, the diff contains every line.
    context = len(ours) + len(theirs)
    for line in difflib.unified_diff(ours, theirs, lineterm="", n=context):
        if line.startswith(("---", "+++", "@@")):
            continue
        call = _CALL.match(line[1:].strip())
        at_fault = line[0] != "-" and call is not None and call[1] in marked
        lines.append(ChangedLine(line[0], line[1:], at_fault))
    # Equal graphs have no diff.
    shown = lines or [ChangedLine(" ", line) for line in theirs]
    return GraphChange(*names, tuple(shown), note if any(line.marked for line in shown) else "")


def new_calls(before: str, after: str, place: str) -> list[str]:
    """The nodes that exist only in the later graph, and that the result at a place comes from."""
    ours, behind = set(_calls(before).values()), calls_behind(after, place)
    return [name for name, call in _calls(after).items() if call not in ours and name in behind]


def _calls(code: str) -> dict[str, str]:
    """The calls of a graph, by the names of their results."""
    lines = (line.strip() for line in readable_code(code).splitlines())
    return {call[1]: call[2] for line in lines if (call := _CALL.match(line))}


def calls_behind(code: str, place: str) -> set[str]:
    """The names of the nodes that a result comes from: 'output 1', or 'input 0' afterwards.

    If the graph does not show which result it is, all nodes that any result comes from.
    """
    calls = _calls(code)
    behind: set[str] = set()
    waiting = _results(code, calls, place) or _results(code, calls, "")
    while waiting:
        name = waiting.pop()
        if name in calls and name not in behind:
            behind.add(name)
            waiting += _NAME.findall(calls[name])
    return behind


def _results(code: str, calls: dict[str, str], place: str) -> list[str]:
    """The names that are returned or written back, for one location or for all."""
    lines = [line.strip() for line in readable_code(code).splitlines()]
    head = next((line for line in lines if line.startswith("def ")), "")
    inputs = _NAME.findall(head.partition("(")[2])[1:]
    returned = next((line for line in lines if line.startswith("return ")), "return ")
    outputs = [text.strip() for text in returned.removeprefix("return ").strip("([])").split(",")]
    writes = {name: write[1] for name, call in calls.items() if (write := _WRITE.match(call))}
    names: list[str] = []
    for what, number in re.findall(r"(input|output) (\d+)", place):
        if what == "output":
            names += outputs[int(number) : int(number) + 1]
        elif int(number) < len(inputs):
            names += [name for name, written in writes.items() if written == inputs[int(number)]]
    return [name for name in names if name in calls] if place else [*outputs, *writes]


def readable_code(code: str) -> str:
    """The code of a graph without empty lines and without statements that free values."""
    lines = (_DELETIONS.sub("", line.rstrip()) for line in code.splitlines())
    return "\n".join(line for line in lines if line.strip() and not line.strip().startswith("#"))
