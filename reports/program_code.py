"""A program as Python source that can be copied and run."""

from __future__ import annotations

from rich.console import Console

from aliasproof.ir.printing import inputs_source, source
from aliasproof.ir.program import Program
from aliasproof.reports.console import print_code


def print_program(console: Console, program: Program) -> None:
    """Print a program and its inputs, as two functions."""
    print_code(console, f"aten = torch.ops.aten\n\n{source(program)}\n{inputs_source(program)}")
