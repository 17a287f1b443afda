"""How Dynamo cuts a `PythonProgram`: whether it is defined, how many graphs, where graphs break."""

from __future__ import annotations

from collections import Counter

import torch
from torch._dynamo.utils import counters

from aliasproof.ir.errors import Rejected
from aliasproof.ir.python_program import PythonProgram
from aliasproof.trials.python_run import run_in_eager, run_python
from aliasproof.trials.python_trial import compiler

ONE, BROKEN, NONE, RAISES = "no graph breaks", "graphs break", "no graph", "raises"


def is_defined(program: PythonProgram) -> bool:
    """Whether it is defined in eager, and does the same while it is watched."""
    try:
        run_in_eager(program)
    except Rejected:
        return False
    return True


def cut_of(program: PythonProgram, counts: Counter[str]) -> str:
    """How Dynamo cuts it, all its calls together. Adds frames, graphs and breaks to `counts`.

    A frame that is compiled again for other arguments counts again.
    """
    torch._dynamo.reset()
    counters.clear()
    run = run_python(program, compiler("dynamo"))
    breaks = sum(counters["graph_break"].values())
    graphs = counters["stats"]["unique_graphs"]
    counts["frames"] += counters["frames"]["total"]
    counts["graphs"] += graphs
    counts["graph breaks"] += breaks
    if run.observation.error is not None:
        return RAISES
    return BROKEN if breaks else ONE if graphs else NONE
