"""Every command that a command prints works as it is printed, with all that those print."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import torch
from torch.fx import symbolic_trace

from aliasproof.campaigns.store.finding import Finding
from aliasproof.campaigns.store.run_folder import write_finding
from aliasproof.corpus.known_bugs import KNOWN_BUGS
from aliasproof.programs.stored_graph import StoredGraph

# Of a line, or between backticks, quotes or parentheses.
PRINTED = re.compile(
    r"(?:^|[\s`'(])aliasproof ((?!in\b)[a-z]+ (?:[^`'()\n]|'[^'\n]*')+)", re.MULTILINE
)
MISCOMPILED = """
import torch

def step(x):
    x.expand(3, 4).zero_()
    return x + 0

def inputs():
    return torch.arange(4.)
"""


def write_inputs(folder: Path) -> None:
    """A file, the graph of a model, and a finding, each wrong through `functionalize`."""
    (folder / "it is mine.py").write_text(MISCOMPILED)
    graph = symbolic_trace(lambda w: w.sin() * 2)
    inputs = [torch.ones(2, requires_grad=True)]
    StoredGraph(graph, inputs, {"target": "aot"}).write(folder / "graph-0")
    program = KNOWN_BUGS["expand-inverse"].program
    what = ("functionalize", "values", "wrong value")
    finding = Finding("found", *what, "", {}, program, program, 0, 0, 0, 1, "")
    write_finding(folder / "runs" / "run" / "findings" / "found", finding)


# A command, and its exit status.
FIRST = [
    ("check 'it is mine.py:step' --target aot --in-process", 1),
    ("minimize graph-0 --target aot --workers 1", 2),
    ("show found", 0),
    ("known expand-inverse", 0),
]


@pytest.mark.skipif(not torch.__version__.startswith("2.13."), reason="a bug of torch 2.13")
def test_printed_commands_work_as_they_are_printed(call, tmp_path: Path) -> None:
    write_inputs(tmp_path)
    waiting, done = list(FIRST), list[str]()
    while waiting:
        command, expected = waiting.pop(0)
        outcome = call(*shlex.split(command))
        assert outcome.code == expected, f"aliasproof {command}\n{outcome.err}"
        done.append(command)
        for printed in PRINTED.findall(outcome.out + outcome.err):
            found = printed.strip()
            if found in done or any(found == it for it, _ in waiting):
                continue
            # What differs is a violation of 'check', and what is clean is clean.
            wrong = found.startswith("check") and "graph" not in found
            waiting.append((found, int(wrong)))
    assert {command.split()[0] for command in done[len(FIRST) :]} == {"minimize", "check"}
