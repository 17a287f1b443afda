"""Programs as tests write them, from a body and inputs, and the torch versions that break them."""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from textwrap import dedent, indent
from typing import Any

import pytest
import torch

from aliasproof.corpus.bug_files import program_with
from aliasproof.ir.lifting import lift_program
from aliasproof.ir.program import Input, Program, Storage
from aliasproof.ir.python_program import PythonProgram
from aliasproof.ir.regions import dense_strides
from aliasproof.ir.values import input_tensors

known_bug = pytest.mark.skipif(
    not torch.__version__.startswith("2.13."), reason="a bug of torch 2.13"
)


def view(
    *sizes: int,
    strides: tuple[int, ...] | None = None,
    offset: int = 0,
    storage: int | None = None,
    dtype: torch.dtype = torch.float32,
) -> Input:
    """An input, dense unless strides are given, in a storage of its own unless one is named."""
    strides = dense_strides(sizes) if strides is None else strides
    return Input("", -1 if storage is None else storage, dtype, sizes, strides, offset)


def program_of(body: str, *views: Input, bytes_of: dict[int, int] | None = None) -> Program:
    """The program with this body, as `source` prints it, and inputs x0, x1, ...

    A storage is as long as its views need; `bytes_of` gives other lengths, in bytes. A storage has
    the dtype of its first view, or uint8 if its length is given.
    """
    named = [replace(tensor, name=f"x{index}") for index, tensor in enumerate(views)]
    given = {index: Storage(torch.uint8, nbytes) for index, nbytes in (bytes_of or {}).items()}
    head = f"def program({', '.join(tensor.name for tensor in named)}):\n"
    return program_with(head + indent(dedent(body).strip(), "    ") + "\n", named, given)


def of_vectors(
    body: str,
    *storages: int,
    sizes: tuple[int, ...] = (4,),
    dtypes: Sequence[torch.dtype] = (torch.float32, torch.float32),
) -> Program:
    """The program with this body and equal tensors, each a whole storage, given by its number."""
    views = (view(*sizes, storage=number, dtype=dtypes[number]) for number in storages)
    return program_of(body, *views)


def without(op: str) -> Callable[[Program], Program]:
    """A wrong rewrite: it drops the calls of this op."""

    def rewrite(program: Program) -> Program:
        kept = tuple(call for call in program.instructions if call.op != op)
        return replace(program, instructions=kept)

    return rewrite


def instead_of(op: str, other: str) -> Callable[[Program], Program]:
    """A wrong rewrite: it calls another op, with the same positional arguments."""

    def rewrite(program: Program) -> Program:
        calls = (
            replace(call, op=other, kwargs=()) if call.op == op else call
            for call in program.instructions
        )
        return replace(program, instructions=tuple(calls))

    return rewrite


def python_of(body: str, x: str = "torch.ones(2)") -> PythonProgram:
    """The Python program that calls a `program(x)` with this body: its x is x1, the result out1."""
    return PythonProgram(
        f"import torch\n\ndef program(x):\n{indent(dedent(body).strip(), '    ')}\n\n"
        f"def calls(program):\n    x1 = {x}\n    out1 = program(x1)\n    return locals()\n"
    )


_INPUT = re.compile(
    r"(\w*)\[([\d, ]*)\](?: strides \[([\d, ]*)\])?(?: offset (\d+))?(?: storage (\d+))?"
)


def programs_in(text: str) -> dict[str, Program]:
    """Programs by name: a line `NAME: [4] int64[2, 4] strides [1, 2]` with inputs, then the body.

    An empty line ends a program, which can have several names with ` / ` between them.
    """
    programs: dict[str, Program] = {}
    for block in text.strip().split("\n\n"):
        head, body = block.replace(" /\n", " / ").split("\n", 1)
        names, _, inputs = head.rpartition(": ")
        views = [_view(*found.groups()) for found in _INPUT.finditer(inputs)]
        programs |= dict.fromkeys(names.split(" / "), program_of(body, *views))
    return programs


def lifted_in(text: str) -> dict[str, Program]:
    """As `programs_in`, but with bodies of functions of x and y, and without empty lines."""
    programs: dict[str, Program] = {}
    for block in re.split(r"\n(?=\S)", text.strip().replace(" /\n", " / ")):
        head, body = block.split("\n", 1)
        names, _, inputs = head.rpartition(": ")
        views = [_view(*found.groups()) for found in _INPUT.finditer(inputs)]
        scope: dict[str, Any] = {"torch": torch}
        exec(f"def function(x, y=None):\n{body}", scope)
        lifted = lift_program(scope["function"], input_tensors(program_of("return ()", *views)))
        programs |= dict.fromkeys(names.split(" / "), lifted.program)
    return programs


def _view(
    dtype: str, sizes: str, strides: str | None, offset: str | None, storage: str | None
) -> Input:
    return view(
        *map(int, re.findall(r"\d+", sizes)),
        strides=None if strides is None else tuple(map(int, re.findall(r"\d+", strides))),
        offset=int(offset or 0),
        storage=None if storage is None else int(storage),
        dtype=getattr(torch, dtype or "float32"),
    )
