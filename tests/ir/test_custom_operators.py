"""Custom operators: their text defines them, and arguments that overlap are defined."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from aliasproof.eager.definedness import Undefined, Watch
from aliasproof.generators.ops.custom import CUSTOM
from aliasproof.ir import custom_operators
from aliasproof.ir.custom_operators import NAMESPACE, definition
from aliasproof.ir.execution import run
from aliasproof.ir.parsing import parse_source
from aliasproof.ir.printing import source
from aliasproof.ir.program import Input, Instruction, Program, Ref, Storage
from aliasproof.ir.schemas import resolve
from aliasproof.ir.serialization import dumps, loads
from aliasproof.ir.validation import validate
from aliasproof.ir.values import input_tensors

NAMES = [operator.name.split(".")[1] for operator in CUSTOM]


def on_slices(op: str, *slices: tuple[int, int], **kwargs: object) -> Program:
    """A call of an operator on slices (start, length) of one input of four elements."""
    inputs = [
        Input(f"x{index}", 0, torch.float32, (length,), (1,), start)
        for index, (start, length) in enumerate(slices)
    ]
    refs = tuple(Ref(view.name) for view in inputs)
    call = Instruction(f"{NAMESPACE}.{op}.default", refs, tuple(kwargs.items()))  # type: ignore[arg-type]
    storage = Storage(torch.float32, 4, ("1", "2", "4", "8"))
    return Program((storage,), tuple(inputs), (call,), ("x0",))


def test_each_operator_has_a_definition_that_registers_it_in_a_process_with_torch_alone(tmp_path):
    script = tmp_path / "definitions.py"
    texts = ["import torch", *map(definition, NAMES)]
    schemas = [f"print(torch.ops.{NAMESPACE}.{name}.default._schema)" for name in NAMES]
    script.write_text("\n\n".join([*texts, *schemas]))
    command = [sys.executable, "-I", str(script)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    expected = [str(resolve(f"{NAMESPACE}.{name}.default")._schema) for name in NAMES]
    assert done.stdout.splitlines() == expected


def test_a_definition_is_the_text_of_the_function_that_is_registered() -> None:
    text = Path(custom_operators.__file__).read_text()
    assert all(
        statement in text for name in NAMES for statement in definition(name).split("\n\n\n")
    )
    assert definition("double").count("def ") == 2  # the kernel and the fake one
    with pytest.raises(KeyError):
        definition("no_such_operator")


def test_a_program_that_calls_one_is_written_read_and_printed() -> None:
    program = on_slices("add_both", (0, 3), (1, 3))
    validate(program)
    assert loads(dumps(program)) == program
    assert parse_source(source(program), program.storages, program.inputs) == program


@pytest.mark.parametrize(
    ("op", "slices", "expected"),
    [
        # [1, 2, 4] + [2, 4, 8] goes to y, so x is [1, 3, 6]; then [1, 3, 6] + [3, 6, 12] to x.
        ("add_both", [(0, 3), (1, 3)], [4.0, 9.0, 18.0, 12.0]),
        ("add_both", [(0, 4), (0, 4)], [4.0, 8.0, 16.0, 32.0]),
        # The second addition reads what the first one stored.
        ("add_twice", [(0, 3), (1, 3)], [9.0, 18.0, 20.0, 8.0]),
        ("store_sum", [(0, 2), (1, 2), (2, 2)], [6.0, 12.0, 4.0, 8.0]),
    ],
)
def test_arguments_that_overlap_are_defined(op, slices, expected):
    program = on_slices(op, *slices)
    tensors = input_tensors(program)
    with Watch() as watch:
        run(program, tensors)
    assert tensors[0].as_strided((4,), (1,), 0).tolist() == expected
    assert watch.trace.unspecified is None
    assert watch.trace.reads_again == (op == "add_twice")


def test_an_argument_that_overlaps_itself_is_undefined() -> None:
    x, watch = torch.arange(3.0).expand(2, 3), Watch()
    with pytest.raises(RuntimeError, match="single memory location") as refused, watch:
        torch.ops.aliasproof.add_both(x, torch.ones(2, 3))
    with pytest.raises(Undefined, match="overlaps itself"):
        watch.require_defined(refused.value)


@pytest.mark.parametrize("name", NAMES)
def test_fakes_are_true(name: str) -> None:
    """As `torch.library.opcheck` requires, on tensors that are not contiguous."""
    x, y, z = (torch.arange(12.0).view(3, 4).t() + index for index in range(3))
    given: dict[str, tuple[tuple[object, ...], dict[str, object]]] = {
        "double": ((x,), {}),
        "strides": ((x,), {}),
        "location": ((x,), {}),
        "running_sum": (([x, y, z],), {}),
        "add_if": ((x, y, False), {}),
        "store_sum": ((x, y, z), {}),
        "add_out": ((x, y), {"out": z}),
    }
    args, kwargs = given.get(name, ((x, y), {}))
    op = resolve(f"{NAMESPACE}.{name}.default")
    tests = ("test_schema", "test_faketensor")
    torch.library.opcheck(op, args, kwargs, test_utils=tests)
