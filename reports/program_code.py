"""A program as Python source that can be copied and run."""

from __future__ import annotations

from rich.console import Console

from aliasproof.ir.printing import inputs_source, source
from aliasproof.ir.program import Program
from aliasproof.ir.python_program import AnyProgram
from aliasproof.reports.console import print_code


def print_program(console: Console, program: AnyProgram) -> None:
    """Print a program; a program of ATen calls as two functions, the second for its inputs."""
    if not isinstance(program, Program):
        print_code(console, program.source.strip())
        return
    print_code(console, f"aten = torch.ops.aten\n\n{source(program)}\n{inputs_source(program)}")
