"""What the reference pass does to a program, as text: source, graphs, decisions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass

import torch
from rich.console import Console

from aliasproof.ir.printing import inputs_source, source
from aliasproof.ir.program import Program
from aliasproof.ir.python_program import AnyProgram
from aliasproof.reports.console import (
    FILE_WIDTH,
    print_code,
    print_exactly,
    print_heading,
    print_lines,
)
from aliasproof.reports.node_lines import NodeLine, graph_text
from aliasproof.reports.storage_strips import STRIP_LEGEND, strip_text, strips_of_graph
from aliasproof.reports.storage_timeline import TIMELINE_LEGEND, MemoryPlan

# --- a program as source --------------------------------------------------------------------------
#
# A program as Python source that can be copied and run.


def print_program(console: Console, program: AnyProgram) -> None:
    """Print a program; a program of ATen calls as two functions, the second for its inputs."""
    if not isinstance(program, Program):
        print_code(console, program.source.strip())
        return
    print_code(console, f"aten = torch.ops.aten\n\n{source(program)}\n{inputs_source(program)}")


LEGEND = "A letter names a storage. Each graph has its own letters. ! marks a write."
NOTHING_DECIDED = (
    "No op could be in place: no op has an in-place form and an operand that it could write to."
)


@dataclass(frozen=True, slots=True)
class ShownRefusal:
    """A form of reuse that was refused: the condition that fails, its step, and the reason.

    `step` is a step of the algorithm, such as `(1b)`; None if the condition names none.
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
    """How an op runs in place, None if it does not, and the forms that were refused before.

    `into` names the nodes whose memory its results use.
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
    `plan`, the decisions are those of planning, and `rewritten` is the planned graph; without, it
    is the reinplaced graph.
    """

    code: Program | str | None
    program: tuple[NodeLine, ...]
    functional: tuple[NodeLine, ...]
    rewritten: tuple[NodeLine, ...]
    decisions: tuple[ShownDecision, ...]
    notes: tuple[str, ...] = ()
    plan: MemoryPlan | None = None

    def parts(self, width: int = FILE_WIDTH) -> Mapping[str, str]:
        """The graphs, and the decisions or the plan, as text by title.

        Timelines have at most `width` columns.
        """
        graphs = {
            "ATen calls": graph_text(self.program),
            "bytes of the ATen calls": strip_text(strips_of_graph(self.program), width),
            "functional graph": graph_text(self.functional),
        }
        if self.plan is not None:
            planned = {"planned graph": graph_text(self.rewritten)}
            return graphs | planned | dict(self.plan.parts(width))
        return graphs | {
            "reinplaced graph": graph_text(self.rewritten),
            "decisions": "\n".join(map(str, self.decisions)) or NOTHING_DECIDED,
        }


def print_explanation(console: Console, name: str, explanation: Explanation) -> None:
    """Print the program, its graphs, and the decisions."""
    print_lines(console, f"{name} in torch {torch.__version__}", "bold")
    print_lines(console, LEGEND, "dim")
    print_lines(console, STRIP_LEGEND, "dim")
    if explanation.plan is not None:
        print_lines(console, TIMELINE_LEGEND, "dim")
    if explanation.code is not None:
        print_heading(console, "program")
        if isinstance(explanation.code, Program):
            print_program(console, explanation.code)
        else:
            print_code(console, explanation.code)
    for title, text in explanation.parts(console.width).items():
        print_heading(console, title)
        print_exactly(console, text)


def explanation_json(explanation: Explanation) -> dict[str, object]:
    code = source(explanation.code) if isinstance(explanation.code, Program) else explanation.code
    rewritten = "reinplaced" if explanation.plan is None else "planned"
    plan = {} if explanation.plan is None else {"plan": explanation.plan.to_json()}
    return {
        "torch": torch.__version__,
        "notes": list(explanation.notes),
        "program": {"source": code, "graph": list(map(asdict, explanation.program))},
        "bytes": list(map(asdict, strips_of_graph(explanation.program))),
        "functional": list(map(asdict, explanation.functional)),
        rewritten: list(map(asdict, explanation.rewritten)),
        "decisions": [decision.to_json() for decision in explanation.decisions],
        **plan,
    }
