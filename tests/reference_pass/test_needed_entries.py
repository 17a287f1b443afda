"""The entries of the tables of `eager/`, and for each a program that needs it.

`needed_entries.jsonl` has one line per entry: a program that is right with it, and the answer
without it. These were found by a search over the samples of `op_db`, in several layouts: a use of
the operator's result depends on its layout (a view as another dtype, a write after flattening,
`as_strided`), or an operand has gaps. Without a line, the program is a call made of the schema.
"""

import contextlib
import functools
import importlib
import itertools
import json
import pkgutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, TypeAlias

import pytest
import torch
from torch import Tensor
from torch._ops import OpOverload, OpOverloadPacket

from aliasproof import reference_pass
from aliasproof.ir.devices import cpu_capability
from aliasproof.ir.execution import ProgramFunction
from aliasproof.ir.serialization import from_json
from aliasproof.ir.values import input_tensors
from aliasproof.reference_pass import Refused, calls, eager, pipeline
from aliasproof.reference_pass.planning.timeline import Footprint, footprint
from aliasproof.targets.tracing import untraced
from tests.reference_pass.scene import Program, afresh, seen_afresh

FILE = Path(__file__).with_name("needed_entries.jsonl")

# How a program is compiled: as its graph, or by a trace with symbols.
Mode: TypeAlias = Literal["alias", "copy", "strict", "symbolic"]
MODES: dict[Mode, dict[str, Any]] = {
    "alias": {},
    "copy": {"views": "copy"},
    "strict": {"strict": True},
    "symbolic": {"sizes": "symbolic"},
}


@dataclass(frozen=True, slots=True)
class NeededEntry:
    """An entry of a table, a program with its inputs, and its answer without the entry.

    That is "wrong", "raises", "refused", or "costs more" (allocations or bytes). With the entry,
    the program is right; or it is refused, and raises without the entry.
    """

    table: str
    entry: str
    mode: Mode
    without: str
    run: Program
    on: Sequence[Tensor]

    def answer_without(self) -> str:
        """The answer without the entry; if the entry is not needed, the answer with it."""
        return answer_without(self.table, self.entry, self.run, self.on, self.mode)


def answer_without(
    table: str, entry: str, function: Program, inputs: Sequence[Tensor], mode: Mode
) -> str:
    """The answer of a program without an entry; if it is not needed, the answer with it."""
    answer, cost = compiled(function, inputs, mode)
    assert answer in ("right", "refused")
    with left_out(table, entry):
        without, other = compiled(function, inputs, mode)
    is_more = other != cost and other.calls >= cost.calls and other.peak >= cost.peak
    return "costs more" if without == "right" and is_more else without


def compiled(function: Program, inputs: Sequence[Tensor], mode: Mode) -> tuple[str, Footprint]:
    """The answer of a program after all passes, and the allocations of its graph."""
    given = function if mode == "symbolic" else untraced(function)
    try:
        made = pipeline(given, *afresh(tuple(inputs)), **MODES[mode])
        seen = _seen(made, inputs)
    except Refused:
        return "refused", Footprint(0, 0)
    except Exception:  # noqa: BLE001 - whatever a kernel, a fake or a trace raises
        return "raises", Footprint(0, 0)
    return "right" if seen == _seen(function, inputs) else "wrong", footprint(made.graph)


def _seen(function: Program, inputs: Sequence[Tensor]) -> str:
    with torch.no_grad():
        return repr(seen_afresh(function, tuple(inputs)))


# --- the tables -----------------------------------------------------------------------------------


def _tables() -> dict[str, Any]:
    modules = (*_modules(reference_pass), *_modules(calls))
    core = {id(value) for module in modules for value in vars(module).values()}
    return {
        name: value
        for module in _modules(eager)
        for name, value in vars(module).items()
        if isinstance(value, (set, dict)) and value and all(map(_is_operator, value))
        if id(value) not in core
    }


def _modules(package: ModuleType) -> list[ModuleType]:
    # Only `TRAINING` has properties of autograd: `test_training.py` tests these.
    found = [
        each
        for each in pkgutil.iter_modules(package.__path__)
        if not each.ispkg and each.name != "history"
    ]
    return [importlib.import_module(f"{package.__name__}.{each.name}") for each in found]


def _is_operator(entry: object) -> bool:
    return isinstance(entry, (OpOverload, OpOverloadPacket))


# The tables of operators by name: sets and dictionaries that a module of `eager` defines. They are
# read before any test runs, since a run may note what an operator returned.
TABLES = _tables()


@contextlib.contextmanager
def left_out(table: str, entry: str) -> Iterator[None]:
    """A context in which a table has no such entry."""
    value = TABLES[table]
    before = value.copy()
    (operator,) = (each for each in value if str(each) == entry)
    try:
        value.pop(operator) if isinstance(value, dict) else value.remove(operator)
        _forget()
        yield
    finally:
        value.clear()
        value.update(before)
        _forget()


def _forget() -> None:
    """Clear caches of functions that read the tables."""
    for module in _modules(eager):
        for value in vars(module).values():
            if isinstance(value, functools._lru_cache_wrapper):
                value.cache_clear()


# --- calls that are made of a schema --------------------------------------------------------------


def called(entry: Any, tensors: Iterator[Tensor]) -> Any:
    """A call with these tensors, and no arguments that have defaults."""
    names = ("Tensor", "default", "Scalar")
    op = entry
    if isinstance(entry, OpOverloadPacket):
        op = getattr(entry, next(each for each in names if each in entry.overloads()))
    given = {"number": 1, "int": 1, "float": 0.5, "bool": True, "List[int]": [1]}
    required = [
        str(argument.type)
        for argument in op._schema.arguments
        if not (argument.has_default_value() or argument.kwarg_only)
    ]
    return op(*(next(tensors) if kind == "Tensor" else given[kind] for kind in required))


def on_a_written_part(entry: Any, x: Tensor, y: Tensor) -> Any:
    part = x[:, :3]
    part.mul_(2)
    return called(entry, iter((part, y)))


def on_nothing(entry: Any, x: Tensor) -> Any:
    """Without elements, fakes have other strides."""
    return called(entry, itertools.repeat(x.as_strided((1, 0, 3), (6, 6, 2), 0)))


# By table: the program, its inputs, and the answer without the entry.
PARTS = torch.arange(1.0, 25).view(4, 6), torch.arange(1.0, 13).view(4, 3)
MADE: dict[str, tuple[Callable[..., Any], tuple[Tensor, ...], str]] = {
    "CORRECTIONS": (on_nothing, (torch.ones(0),), "wrong"),
    "_MOVE": (on_a_written_part, PARTS, "costs more"),
    "_ROUND_ONCE": (on_a_written_part, PARTS, "costs more"),
}


def needed_entries() -> list[NeededEntry]:
    """The entries of the file, and those whose calls are made."""
    found = []
    for row in map(json.loads, FILE.read_text().splitlines()):
        program = from_json(row.pop("program"))
        found.append(NeededEntry(**row, run=ProgramFunction(program), on=input_tensors(program)))
    lines = {(row.table, row.entry) for row in found}
    for table, (run, on, without) in MADE.items():
        for entry in TABLES[table]:
            if (table, str(entry)) not in lines:
                made = functools.partial(run, entry)
                found.append(NeededEntry(table, str(entry), "copy", without, made, on))
    return found


# --- the tests ------------------------------------------------------------------------------------


aten = torch.ops.aten

TABLE = "_COMPLEX_PRODUCTS"
# Operators that are right in torch since a release: the entry is for earlier ones.
RIGHT_SINCE = {"aten.max_unpool2d.default": "2.14"}
# A scalar kernel multiplies complex numbers in one order, wherever the result is.
WITHOUT_VECTORS = cpu_capability() == "DEFAULT"
# A `Program` cannot have complex numbers as arguments.
OF_COMPLEX_NUMBERS: dict[str, Callable[[Tensor], Tensor]] = {
    "aten.mul.Scalar": lambda x: aten.mul.Scalar(x + 1, 0.7 + 0.3j),
    "aten.addcdiv.default": lambda x: aten.addcdiv.default(x + 1, x, x + 2, value=0.7 + 0.3j),
}
# Without the entry, these are put in place, and round their scalar there.
OF_ROUNDED_SCALARS: dict[str, Callable[[Tensor], Tensor]] = {
    "aten.mul_.Scalar": lambda x: aten.mul.Scalar(x + 1, 0.3),
    "aten._foreach_mul_.Scalar": lambda x: aten._foreach_mul.Scalar([x + 1], 0.3)[0],
    "aten._foreach_mul_.ScalarList": lambda x: aten._foreach_mul.ScalarList([x + 1], [0.3])[0],
}


def test_each_entry_has_a_program():
    entries = [(table, str(entry)) for table, value in TABLES.items() for entry in value]
    found = [(row.table, row.entry) for row in needed_entries()]
    found += [(TABLE, entry) for entry in OF_COMPLEX_NUMBERS]
    found += [("ROUND_SCALARS", entry) for entry in OF_ROUNDED_SCALARS]
    assert sorted(found) == sorted(entries)


@pytest.mark.parametrize("entry", OF_ROUNDED_SCALARS)
def test_without_the_entry_a_scalar_is_rounded(entry):
    operands = [torch.arange(1, 65).to(torch.bfloat16)]
    function = OF_ROUNDED_SCALARS[entry]
    assert answer_without("ROUND_SCALARS", entry, function, operands, "alias") == "wrong"


@pytest.mark.vectors
def test_without_an_entry_its_program_has_another_answer(subtests: pytest.Subtests):
    for row in needed_entries():
        if row.table == TABLE and WITHOUT_VECTORS:
            continue
        with subtests.test(f"{row.table}: {row.entry}"):
            since = RIGHT_SINCE.get(row.entry)
            is_right = since is not None and torch.__version__ >= since
            assert row.answer_without() == ("right" if is_right else row.without)


@pytest.mark.vectors
@pytest.mark.skipif(WITHOUT_VECTORS, reason="vectorised kernels alone show it")
@pytest.mark.parametrize("entry", OF_COMPLEX_NUMBERS)
def test_without_a_complex_product_its_bits_are_others(entry):
    torch.manual_seed(0)
    function = OF_COMPLEX_NUMBERS[entry]
    # In the remainder of a vector loop, whose length depends on the processor.
    operands = [[torch.randn(size, dtype=torch.complex64)] for size in (5, 6, 7, 12, 13, 14, 15)]
    answers = [answer_without(TABLE, entry, function, operand, "alias") for operand in operands]
    assert "wrong" in answers
