"""What the reference pass does to a program, as text: source, graphs, decisions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

import torch
from rich.console import Console

from aliasproof.programs.printing import source
from aliasproof.programs.program import Program
from aliasproof.reports.console import (
    FILE_WIDTH,
    print_code,
    print_exactly,
    print_heading,
    print_lines,
)
from aliasproof.reports.program_code import print_program
from aliasproof.reports.storage_timeline import TIMELINE_LEGEND, MemoryPlan

LEGEND = "A letter names a storage. Each graph has its own letters. ! marks a write."
NOTHING_DECIDED = (
    "No op could be in place: no op has an in-place form and an operand that it could write to."
)
WIDEST_CALL = 70  # columns that calls may take before the layouts; longer calls move theirs


@dataclass(frozen=True, slots=True)
class ShownLayout:
    """The layout of a tensor in elements, and the letter of its storage. Symbols are text."""

    dtype: str
    sizes: tuple[int | str, ...]
    strides: tuple[int | str, ...]
    offset: int | str
    contiguous: bool
    storage: str

    def __str__(self) -> str:
        text = f"{self.dtype}[{', '.join(map(str, self.sizes))}]"
        # Most tensors are contiguous at offset 0. What is left out here is the default.
        if not self.contiguous:
            text += f" strides [{', '.join(map(str, self.strides))}]"
        return f"{text} offset {self.offset}" if self.offset else text


@dataclass(frozen=True, slots=True)
class NodeLine:
    """One node of a graph: its name and call, the tensors that it returns, the storages it writes.

    The name is empty for the node that returns.
    """

    name: str
    call: str
    tensors: tuple[ShownLayout, ...] = ()
    writes: tuple[str, ...] = ()

    @property
    def storages(self) -> str:
        """The storages of its tensors and those that it writes. A mark follows the latter."""
        named = dict.fromkeys((*(tensor.storage for tensor in self.tensors), *self.writes))
        return ", ".join(f"{letter}!" if letter in self.writes else letter for letter in named)


@dataclass(frozen=True, slots=True)
class ShownRefusal:
    """A way to be in place that is refused: the condition that fails, its step, and the reason.

    `step` is that of the algorithm, such as `(1b)`; None if the condition names none.
    """

    how: str
    condition: str
    step: str | None
    reason: str

    def __str__(self) -> str:
        named = self.condition if self.step is None else f"{self.step} {self.condition}"
        return f"{self.how}: {named}: {self.reason}"


@dataclass(frozen=True, slots=True)
class ShownDecision:
    """How an op is in place, None if it is not, and the ways that were refused before.

    `into` names the nodes in whose memory its results are.
    """

    node: str
    op: str
    how: str | None
    refused: tuple[ShownRefusal, ...]
    into: tuple[str, ...] = ()

    def __str__(self) -> str:
        head = f"{self.node} = {self.op}"
        refused = [f"    {refusal}" for refusal in self.refused]
        if self.how is None:
            return "\n".join([head, "  not in place because", *refused])
        lines = [head, f"  {self.how} because all conditions hold"]
        return "\n".join([*lines, *(["  refused before that"] if refused else []), *refused])

    def to_json(self) -> dict[str, object]:
        """The decision as JSON values."""
        return {
            "node": self.node,
            "op": self.op,
            "in_place": self.how is not None,
            "how": self.how,
            "into": list(self.into),
            "refused": list(map(asdict, self.refused)),
        }


@dataclass(frozen=True, slots=True)
class Explanation:
    """What the reference pass does to a program, and why.

    `code` is the program, or the source of a user's function; None if there is no source. With a
    `plan`, the decisions are those of planning, and `rewritten` is the planned graph; else, the
    reinplaced one.
    """

    code: Program | str | None
    program: tuple[NodeLine, ...]
    functional: tuple[NodeLine, ...]
    rewritten: tuple[NodeLine, ...]
    decisions: tuple[ShownDecision, ...]
    notes: tuple[str, ...] = ()
    plan: MemoryPlan | None = None

    @property
    def parts(self) -> Mapping[str, str]:
        """The graphs, and the decisions or the plan, as text by title."""
        return self.parts_within(FILE_WIDTH)

    def parts_within(self, width: int) -> Mapping[str, str]:
        """The same, with timelines of at most `width` columns."""
        graphs = {
            "ATen calls": graph_text(self.program),
            "functional graph": graph_text(self.functional),
        }
        if self.plan is not None:
            planned = {"planned graph": graph_text(self.rewritten)}
            return graphs | planned | dict(self.plan.parts(width))
        return graphs | {
            "reinplaced graph": graph_text(self.rewritten),
            "decisions": "\n".join(map(str, self.decisions)) or NOTHING_DECIDED,
        }


def graph_text(lines: Sequence[NodeLine]) -> str:
    """A graph as text: one line per node, with columns for call, layouts and storages."""
    rows = [
        (
            f"{line.name} = {line.call}" if line.name else line.call,
            ", ".join(map(str, line.tensors)),
            line.storages,
        )
        for line in lines
    ]
    # A line without storages (the return) needs no columns, so its length does not count.
    calls = min(max((len(call) for call, _, stored in rows if stored), default=0), WIDEST_CALL)
    layouts = max((len(tensors) for _, tensors, _ in rows), default=0)
    return "\n".join(
        f"{call:{calls}}  {tensors:{layouts}}  {stored}".rstrip() for call, tensors, stored in rows
    )


def print_explanation(console: Console, name: str, explanation: Explanation) -> None:
    """Print the program, its graphs, and the decisions."""
    print_lines(console, f"{name} in torch {torch.__version__}", "bold")
    print_lines(console, LEGEND, "dim")
    if explanation.plan is not None:
        print_lines(console, TIMELINE_LEGEND, "dim")
    if explanation.code is not None:
        print_heading(console, "program")
        if isinstance(explanation.code, Program):
            print_program(console, explanation.code)
        else:
            print_code(console, explanation.code)
    for title, text in explanation.parts_within(console.width).items():
        print_heading(console, title)
        print_exactly(console, text)


def explanation_json(explanation: Explanation) -> dict[str, object]:
    """The explanation as JSON values."""
    code = source(explanation.code) if isinstance(explanation.code, Program) else explanation.code
    rewritten = "reinplaced" if explanation.plan is None else "planned"
    plan = {} if explanation.plan is None else {"plan": explanation.plan.to_json()}
    return {
        "torch": torch.__version__,
        "notes": list(explanation.notes),
        "program": {"source": code, "graph": list(map(asdict, explanation.program))},
        "functional": list(map(asdict, explanation.functional)),
        rewritten: list(map(asdict, explanation.rewritten)),
        "decisions": [decision.to_json() for decision in explanation.decisions],
        **plan,
    }
