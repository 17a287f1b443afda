"""The Python form: it runs, computes what the program computes, and reads back as that program."""

import itertools
import math
from dataclasses import replace
from textwrap import indent
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from torch import fx

from aliasproof.eager.rounding import readable
from aliasproof.generators.features import swarm
from aliasproof.generators.strategies import programs, sample
from aliasproof.ir.errors import UserError
from aliasproof.ir.execution import as_graph, run
from aliasproof.ir.ordinary_syntax import ordinary_source
from aliasproof.ir.parsing import parse_source
from aliasproof.ir.printing import buffer_source, inputs_source, source
from aliasproof.ir.program import Input, Instruction, Program, Ref, Storage
from aliasproof.ir.serialization import dumps, from_json, loads, to_json
from aliasproof.ir.validation import ELEMENT_DTYPES, validate
from aliasproof.ir.values import FILLS, fill, input_tensors, storage_data, texts_of
from tests.short_programs import of_vectors

X, Y, V = Ref("x"), Ref("y"), Ref("v")
INPUTS = (Input("x", 0, torch.float32, (2, 3), (3, 1), 2), Input("y", 1, torch.int64, (2,), (1,)))
EVERY_KIND = Program(
    (Storage(torch.float32, 8), Storage(torch.int64, 3)),
    INPUTS,
    (
        Instruction("aten.index.Tensor", (X, (None, Y)), results=("v",)),
        Instruction("aten.clamp_.default", (V, -math.inf, math.nan)),
        Instruction("aten.clamp_.default", (V,), (("max", math.inf), ("min", None))),
        Instruction("aten.sum.dim_IntList", (X, (), True), (("dtype", torch.float64),), ("w",)),
        Instruction("aten.add.Scalar", (X, 2**64 - 1, -0.0), results=("a",)),
        Instruction("aten.add.Scalar", (X, -(2**63), 1e-300), results=("b",)),
        Instruction("aten.bernoulli_.float", (X,), (("p", 1),)),
        Instruction("aten.uniform.default", (X,), (("from", 0.5), ("to", 0.5)), ("u",)),
        Instruction("aten.random_.from", (X, 0, 1)),
        Instruction("aten.split.Tensor", (X, 1), results=("c", "d")),
        Instruction("aten.split.Tensor", (X, 2), results=("e",)),
        Instruction("aten.topk.default", (X, 1), results=("f", "g")),
        Instruction("aten.cat.default", ((X, Ref("c"), Ref("d")),), (("dim", 0),), ("h",)),
    ),
    ("v", "u", "h", "x"),
    seed=5,
)


def test_the_program_of_the_design_document() -> None:
    body = (
        "    v0 = aten.expand.default(x0, [3, 4])\n"
        "    aten.zero_.default(v0)\n"
        "    v1 = aten.add.Scalar(x0, 0)\n"
        "    return (v1,)\n"
    )
    program = of_vectors(body, 0)
    assert program.instructions[0].args == (Ref("x0"), (3, 4))
    assert source(program) == "def program(x0):\n" + body
    assert inputs_source(program) == (
        "def inputs():\n"
        "    x0 = torch.arange(1, 5, dtype=torch.float32)\n"
        "    return (x0,)\n"
    )  # fmt: skip


def check_reads_back(program: Program) -> None:
    storages, seed = program.storages, program.seed
    again = parse_source(source(program), storages, program.inputs, seed, program.fill)
    assert again == program
    assert repr(again) == repr(program)  # which differs for True and 1, 1 and 1.0, -0.0 and 0.0


def check_runs_alike(program: Program) -> None:
    """The printed functions make the program's inputs, and compute the same from them."""
    namespace: dict[str, Any] = {"torch": torch, "aten": torch.ops.aten}
    exec(inputs_source(program) + source(program), namespace)
    printed, expected = namespace["inputs"](), input_tensors(program)
    assert list(map(layout, printed)) == list(map(layout, expected))
    assert sharing(printed) == sharing(expected)
    torch.manual_seed(0)
    returned = namespace["program"](*printed)
    assert type(returned) is tuple
    torch.manual_seed(0)
    for one, other in zip(returned, run(program, expected), strict=True):
        torch.testing.assert_close(readable(one), readable(other), rtol=0, atol=0, equal_nan=True)
    assert list(map(layout, printed)) == list(map(layout, expected))


def layout(tensor: torch.Tensor) -> tuple:
    storage = bytes(tensor.untyped_storage().tolist())
    return (
        tensor.dtype,
        tensor.shape,
        tensor.stride(),
        tensor.storage_offset(),
        tensor._base,
        storage,
    )


def sharing(tensors: list[torch.Tensor]) -> list[int]:
    addresses = [each.untyped_storage()._cdata for each in tensors]
    return [addresses.index(each) for each in addresses]


def test_every_kind_of_argument_is_printed_and_read() -> None:
    validate(EVERY_KIND)
    check_reads_back(EVERY_KIND)
    check_runs_alike(EVERY_KIND)


def test_operators_of_other_namespaces_are_printed_in_full() -> None:
    program = Program(
        EVERY_KIND.storages,
        INPUTS,
        (Instruction("prims.neg.default", (X,), results=("v",)),),
        ("v",),
    )
    assert "v = torch.ops.prims.neg.default(x)" in source(program)
    check_reads_back(program)


@given(programs())
@settings(max_examples=50, deadline=None)
def test_generated_programs_are_printed_and_read(program: Program) -> None:
    check_reads_back(program)
    check_runs_alike(program)


F32 = torch.float32
LAYOUTS = [
    ([], []),
    ([Storage(F32, 0)], [Input("x", 0, F32, (0, 3), (3, 1), 0)]),
    ([Storage(F32, 0)], [Input("x", 0, F32, (0, 3), (3, 1), 9)]),
    ([Storage(F32, 1)], [Input("x", 0, F32, (), ())]),
    ([Storage(F32, 6)], [Input("x", 0, F32, (2, 3), (3, 1))]),
    ([Storage(F32, 6)], [Input("x", 0, F32, (3, 2), (1, 3))]),
    ([Storage(F32, 6)], [Input("x", 0, F32, (1, 6), (99, 1))]),
    ([Storage(F32, 6)], [Input("x", 0, F32, (6,), (1,)), Input("s0", 0, F32, (6,), (1,))]),
    (
        [Storage(F32, 9), Storage(F32, 4)],
        [Input("x", 1, F32, (2,), (2,), 1), Input("y", 1, F32, (3,), (0,))],
    ),
    (
        [Storage(F32, 4)],
        [Input("x", 0, torch.complex64, (2,), (1,)), Input("y", 0, torch.int8, (5,), (3,), 1)],
    ),
    ([Storage(torch.bool, 64)], [Input("x", 0, torch.bool, (8, 8), (8, 1))]),
    ([Storage(torch.int64, 64)], [Input("x", 0, torch.int64, (8, 8), (8, 1))]),
]


@pytest.mark.parametrize("seed", [0, 7])
@pytest.mark.parametrize(("storages", "inputs"), LAYOUTS)
def test_printed_inputs_equal_the_inputs_of_the_program(storages, inputs, seed):
    program = Program(tuple(storages), tuple(inputs), (), (), seed)
    validate(program)
    check_runs_alike(program)


@pytest.mark.parametrize("dtype", sorted(ELEMENT_DTYPES, key=str))
def test_a_printed_buffer_has_the_data_of_the_storage(dtype, subtests):
    for length, seed, kind in itertools.product(
        (0, 1, 2, 3, 17, 64, 257), (0, 1, 12345, -7), FILLS
    ):
        program = Program((Storage(dtype, length),) * 3, (), (), (), seed, kind)
        with subtests.test(length=length, seed=seed, kind=kind):
            for index in range(3):
                check_prints_exactly(program, index)


def check_prints_exactly(program: Program, index: int) -> None:
    text = buffer_source(program, index)
    printed = eval(text, {"torch": torch})  # noqa: S307 - our own text
    expected = storage_data(program, index)
    assert printed.dtype == expected.dtype
    assert printed.untyped_storage().tolist() == expected.untyped_storage().tolist()


@pytest.mark.parametrize("dtype", sorted(ELEMENT_DTYPES, key=str))
def test_values_of_a_storage_are_printed_exactly(dtype: torch.dtype) -> None:
    named = texts_of(fill(Storage(dtype, 9), 0, 0, "special"))
    for length in (0, 1, 9, 17, 18, 60):
        program = Program((Storage(dtype, length, named),), (), (), ())
        validate(program)
        check_prints_exactly(program, 0)


def test_values_that_python_would_fold_are_printed_exactly() -> None:
    odd = ("-0.0", "nan", "inf", "-inf", "1e20", "0.1", "9007199254740994", "-3")
    storages = (Storage(torch.float64, 8, odd), Storage(torch.float32, 3, ("-0.0", "1", "2")))
    parts = ("(-0-0j)", "inf+nanj", "(nan-infj)", "(1-0j)", "-1e20j", "(1+2j)")
    program = Program((*storages, Storage(torch.complex64, 6, parts)), (), (), ())
    for index in range(3):
        check_prints_exactly(program, index)


def test_long_storages_of_repeated_values_print_short() -> None:
    for length in (64, 65):
        program = Program((Storage(torch.float32, length, ("inf", "-0.0")),), (), (), ())
        assert len(buffer_source(program, 0)) < 80
    constant = Program((Storage(torch.int64, 64, ("3",)),), (), (), ())
    assert buffer_source(constant, 0) == "torch.tensor([3] * 64, dtype=torch.int64)"


@pytest.mark.parametrize("dtype", [F32, torch.int64, torch.bool, torch.complex64, torch.bfloat16])
def test_long_storages_print_short(dtype: torch.dtype) -> None:
    for seed in (0, 5, 12345):
        assert len(buffer_source(Program((Storage(dtype, 256),), (), (), (), seed), 0)) < 140


BAD_SOURCES = [
    (1, "def program(x, y)\n  return ()"),
    (1, "x = 1"),
    (1, "\0"),
    (1, "(" * 10_000),
    (1, "def other(x, y):\n  return ()"),
    (1, "def program(x):\n  return ()"),
    (1, "def program(x, y=1):\n  return ()"),
    (1, "def program(x, *y):\n  return ()"),
    (2, "def program(x, y):\n  pass"),
    (2, "def program(x, y):\n  return x"),
    (2, "def program(x, y):\n  return (x + y,)"),
    (2, "def program(x, y):\n  return (z,)"),
    (2, "def program(x, y):\n  v = x\n  return ()"),
    (2, "def program(x, y):\n  v = w = aten.neg.default(x)\n  return ()"),
    (2, "def program(x, y):\n  x.v = aten.neg.default(x)\n  return ()"),
    (2, "def program(x, y):\n  v: int = aten.neg.default(x)\n  return ()"),
    (2, "def program(x, y):\n  () = aten.neg.default(x)\n  return ()"),
    (2, "def program(x, y):\n  x = aten.neg.default(x)\n  return ()"),
    (2, "def program(x, y):\n  (v,) = aten.neg.default(x)\n  return ()"),
    (2, "def program(x, y):\n  v = aten.split.Tensor(x, 2)\n  return ()"),
    (2, "def program(x, y):\n  aten.neg.default(z)\n  return ()"),
    (2, "def program(x, y):\n  aten.neg(x)\n  return ()"),
    (2, "def program(x, y):\n  aten.neg.defualt(x)\n  return ()"),
    (2, "def program(x, y):\n  torch.neg(x)\n  return ()"),
    (2, "def program(x, y):\n  x.add_(y)\n  return ()"),
    (2, "def program(x, y):\n  __import__('os').system('ls')\n  return ()"),
    (3, "def program(x, y):\n  aten.add.Scalar(\n    x + 1, 1)\n  return ()"),
    (2, "def program(x, y):\n  aten.add.Scalar(*x, 1)\n  return ()"),
    (2, "def program(x, y):\n  aten.add.Scalar(x, **y)\n  return ()"),
    (2, "def program(x, y):\n  aten.add.Scalar(x, 'one')\n  return ()"),
    (2, "def program(x, y):\n  aten.add.Scalar(x, 1j)\n  return ()"),
    (2, "def program(x, y):\n  aten.add.Scalar(x, -True)\n  return ()"),
    (2, "def program(x, y):\n  aten.add.Scalar(x, float('1'))\n  return ()"),
    (2, "def program(x, y):\n  aten.sum.default(x, dtype=torch.flaot32)\n  return ()"),
    (3, "def program(x, y):\n  aten.neg.default(x)\n  if x: return ()\n  return ()"),
]


@pytest.mark.parametrize(("line", "text"), BAD_SOURCES)
def test_other_python_is_refused_with_its_line(line: int, text: str) -> None:
    with pytest.raises(UserError, match=rf"^line {line}: "):
        parse_source(text, EVERY_KIND.storages, INPUTS)


# --- regions without gradients survive printing, parsing, writing, running and capture ------------


REGION = """\
v0 = aten.mul.Scalar(x0, 2)
with torch.no_grad():
    v1 = aten.mul.Scalar(v0, 3)
    aten.add_.Tensor(v0, v1)
v2 = aten.add.Tensor(v0, v1)
return (v2,)"""


@pytest.fixture
def program() -> Program:
    return of_vectors(REGION, 0)


def test_a_region_is_a_block_of_lines(program: Program) -> None:
    assert source(program) == f"def program(x0):\n{indent(REGION, '    ')}\n"
    assert [call.grad for call in program.instructions] == [True, False, False, True]
    assert program.renamed() == program


def test_no_value_leaves_its_region_in_ordinary_syntax(program: Program) -> None:
    text = ordinary_source(program, near=True)
    assert "with torch.no_grad():\n        v1 = v0 * 3\n        v0.add_(v1)\n    return" in text


def test_drawn_programs_survive_text_and_json() -> None:
    met = 0
    for seed in range(40):
        for program in sample(replace(swarm(seed), gradients=True), seed, 1):
            kept = program.storages, program.inputs, program.seed, program.fill, program.device
            assert parse_source(source(program), *kept) == program
            assert loads(dumps(program)) == program
            met += any(not call.grad for call in program.instructions)
    assert met > 10


def test_regions_are_drawn_under_their_switch_alone() -> None:
    for seed in range(40):
        for program in sample(replace(swarm(seed), gradients=False), seed, 1):
            assert all(call.grad for call in program.instructions)
            assert {storage.gradient for storage in program.storages} <= {"computed"}


def test_the_key_is_there_only_for_calls_without_gradients(program: Program) -> None:
    written: Any = to_json(program)
    calls = written["instructions"]
    assert ["grad" in call for call in calls] == [False, True, True, False]
    calls[0]["grad"] = 0
    with pytest.raises(UserError, match=r"instructions\[0\].grad: expected true or false, got 0"):
        from_json(written)


def test_a_run_and_a_graph_record_the_same(program: Program) -> None:
    """d(x * 2 + 6 * const) / dx is 2: what the region computes is constant for autograd."""
    module = fx.GraphModule(torch.nn.Module(), as_graph(program))
    for function in (lambda *given: run(program, given), module):
        (x,) = input_tensors(program)
        (output,) = function(x.requires_grad_())
        output.sum().backward()
        assert x.grad is not None
        assert x.grad.tolist() == [2.0] * 4
        assert torch.is_grad_enabled()


def test_without_gradients_a_graph_has_no_switches(program: Program) -> None:
    with torch.no_grad():
        assert "_set_grad_enabled" not in str(as_graph(program))
    assert "_set_grad_enabled" in str(as_graph(program))
