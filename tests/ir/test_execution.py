"""Two ways to run a program agree: a call, and its graph. `test_printing.py` tests its text."""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, fx
from torch.fx.experimental import proxy_tensor
from torch.utils._python_dispatch import TorchDispatchMode

from aliasproof.eager.rounding import readable
from aliasproof.generators.features import swarm
from aliasproof.generators.strategies import programs, sample
from aliasproof.ir.errors import Rejected
from aliasproof.ir.execution import as_graph, glue, part, returns_one_tensor, run
from aliasproof.ir.printing import source
from aliasproof.ir.program import Input, Instruction, Program, Ref
from aliasproof.ir.regions import Region, overlap
from aliasproof.ir.schemas import resolve
from aliasproof.ir.validation import first_defect
from aliasproof.ir.values import input_tensors
from aliasproof.judge.examination import require_returned
from aliasproof.judge.trial import Case, run_eager
from tests.short_programs import of_vectors, program_of, view

Way = Callable[[Program], tuple[list[Tensor], list[Tensor]]]  # inputs afterwards, outputs


def sampled() -> Iterator[Program]:
    for seed in range(30):
        yield from sample(swarm(seed), seed, 5)


def called(program: Program) -> tuple[list[Tensor], list[Tensor]]:
    inputs = input_tensors(program)
    return inputs, list(run(program, inputs))


def interpreted(program: Program) -> tuple[list[Tensor], list[Tensor]]:
    inputs = input_tensors(program)
    return inputs, list(fx.Interpreter(fx.GraphModule({}, as_graph(program))).run(*inputs))


def generated(program: Program) -> tuple[list[Tensor], list[Tensor]]:
    inputs = input_tensors(program)
    return inputs, list(fx.GraphModule({}, as_graph(program))(*inputs))


def traits(tensor: Tensor) -> tuple[object, ...]:
    return (tensor.dtype, tensor.shape, tensor.stride(), tensor.storage_offset(), content(tensor))


def content(tensor: Tensor) -> list[int]:
    """The bytes of the elements: between them, a storage may have bytes that nothing wrote."""
    shown = tensor.resolve_conj().resolve_neg().clone(memory_format=torch.contiguous_format)
    stored: list[int] = shown.untyped_storage().tolist()
    return stored


@pytest.mark.parametrize("way", [interpreted, generated])
def test_every_way_gives_equal_tensors_and_leaves_equal_storages(way: Way) -> None:
    count = 0
    for program in sampled():
        with torch.no_grad():
            torch.manual_seed(0)
            inputs, outputs = called(program)
            torch.manual_seed(0)
            other_inputs, other_outputs = way(program)
        assert list(map(traits, other_outputs)) == list(map(traits, outputs)), source(program)
        assert list(map(traits, other_inputs)) == list(map(traits, inputs)), source(program)
        stored = [[each.untyped_storage().tolist() for each in xs] for xs in (inputs, other_inputs)]
        assert stored[0] == stored[1], source(program)
        ours, theirs = (
            [[one is other for one in given] for other in returned]
            for given, returned in ((inputs, outputs), (other_inputs, other_outputs))
        )
        assert ours == theirs, "an output that is an input stays that object"
        count += 1
    assert count == 150


VIEWS = view(2, 2, storage=0), view(4, storage=0)
SEVERAL = program_of(
    """
    left, right = aten.split.Tensor(x0, 1, 1)
    aten.add_.Tensor(left, right, alpha=2)
    both = aten.cat.default([left, right], 1)
    return both, right, x1
    """,
    *VIEWS,
)


@pytest.mark.parametrize("way", [called, interpreted, generated])
def test_a_program_whose_result_was_computed_by_hand(way: Way) -> None:
    inputs, (both, right, y) = way(SEVERAL)
    assert both.tolist() == [[1 + 2 * 2, 2], [3 + 2 * 4, 4]]
    assert right.tolist() == [[2], [4]]
    assert y is inputs[1]
    assert y.tolist() == [5, 2, 11, 4]


def test_an_op_that_only_torchscript_has_runs_as_the_ops_that_it_calls() -> None:
    """Patterns of Inductor on `torch.split` draw `aten.split.default`."""
    body = "one, three = aten.split.default(x1, [1, 3])\nreturn (three,)"
    eager = run_eager(Case.of(program_of(body, *VIEWS)))
    three = eager.observation.tensors()["output 0"]
    assert three.tolist() == [2, 3, 4]
    assert eager.trace.as_written is False


def test_the_result_of_an_in_place_op_is_the_argument() -> None:
    inputs, outputs = called(program_of("v = aten.add_.Scalar(x0, 1)\nreturn (v,)", *VIEWS))
    assert outputs[0] is inputs[0]


def test_too_few_inputs_are_refused() -> None:
    with pytest.raises(ValueError, match="shorter"):
        run(SEVERAL, input_tensors(SEVERAL)[:1])


# --- the graph ------------------------------------------------------------------------------------


class NoCalls(TorchDispatchMode):
    """Fails at any ATen call."""

    def __torch_dispatch__(
        self, func: object, types: object, args: object = (), kwargs: object = None
    ) -> object:
        pytest.fail(f"{func} is called")


def test_a_graph_is_built_without_tracing_and_without_running(monkeypatch):
    def fail(*args: object, **kwargs: object) -> None:
        pytest.fail("traces")

    for owner, name in (
        (fx.Tracer, "trace"),
        (fx, "symbolic_trace"),
        (proxy_tensor, "make_fx"),
        (torch.jit, "trace"),
    ):
        monkeypatch.setattr(owner, name, fail)
    programs = list(sampled())
    with NoCalls():
        graphs = list(map(as_graph, programs))
    for graph in graphs:
        graph.lint()


def test_a_graph_has_a_node_for_each_instruction_and_each_tensor_of_a_list() -> None:
    graph = as_graph(SEVERAL)
    targets = [str(node.target) for node in graph.nodes if node.op == "call_function"]
    calls = [target for target in targets if target.startswith("aten.")]
    assert calls == [instruction.op for instruction in SEVERAL.instructions]
    assert sum("getitem" in target for target in targets) == 2
    assert [node.name for node in graph.nodes if node.op == "placeholder"] == ["x0", "x1"]


@pytest.mark.parametrize(
    ("op", "one"),
    [
        ("aten.add.Tensor", True),
        ("aten.add_.Tensor", True),
        ("aten.split.Tensor", False),
        ("aten.topk.default", False),
    ],
)
def test_ops_that_return_one_tensor(op: str, one: bool) -> None:
    assert returns_one_tensor(resolve(op)) == one


# --- a glued program does for each member what the member does by itself --------------------------


GROUPS = st.lists(programs(), min_size=1, max_size=4)


@given(GROUPS)
def test_each_member_gets_what_it_gets_alone_and_shares_no_byte(members: list[Program]) -> None:
    defined = [each for each in members if _returns(each)]
    glued = glue(defined)
    assert first_defect(glued.program) is None
    together = input_tensors(glued.program)
    regions = [[Region.of(each) for each in part(together, one.inputs)] for one in glued.members]
    for ours, theirs in itertools.combinations(regions, 2):
        assert not any(overlap(one, other) for one in ours for other in theirs)
    outputs = run(glued.program, together)
    for member in glued.members:
        inputs = input_tensors(member.program)
        expected = [*run(member.program, inputs), *inputs]
        actual = [*part(outputs, member.outputs), *part(together, member.inputs)]
        assert [each.stride() for each in actual] == [each.stride() for each in expected]
        torch.testing.assert_close(
            list(map(readable, actual)),
            list(map(readable, expected)),
            rtol=0,
            atol=0,
            equal_nan=True,
        )


def test_a_member_keeps_its_data_whatever_its_place() -> None:
    other = of_vectors("return (x0,)", 0, sizes=(3,))
    one = replace(other, seed=5)
    tensors = input_tensors(glue([other, one]).program)
    assert torch.equal(tensors[0], input_tensors(other)[0])
    assert torch.equal(tensors[1], input_tensors(one)[0])
    assert not torch.equal(tensors[0], tensors[1])


def _returns(program: Program) -> bool:
    try:
        eager = run_eager(Case.of(program))
        require_returned(eager)
    except Rejected:  # undefined in eager, or eager raises
        return False
    return not eager.trace.random  # after another program, it would draw other numbers


# --- `Program` is a value: each change returns another program ------------------------------------


BODY = "v = aten.neg.default(x0)\naten.add_.Tensor(x1, v)\nreturn (v,)"
PROGRAM = replace(program_of(BODY, view(4, storage=0), view(2, offset=2, storage=0)), seed=3)
(FIRST, SECOND), (READ, WRITE) = PROGRAM.inputs, PROGRAM.instructions
CLONE = Instruction("aten.clone.default", (Ref("x0"),), results=("v",))


@pytest.mark.parametrize(("index", "expected"), [(0, (CLONE, WRITE)), (1, (READ, CLONE))])
def test_with_instruction_replaces_that_instruction_alone(index, expected):
    changed = PROGRAM.with_instruction(index, CLONE)
    assert changed == replace(PROGRAM, instructions=expected)
    assert PROGRAM.instructions == (READ, WRITE)


@pytest.mark.parametrize("index", [0, 1])
def test_with_input_replaces_that_input_alone(index: int) -> None:
    other = Input("z", 0, torch.float32, (), ())
    expected = (other, SECOND) if index == 0 else (FIRST, other)
    changed = PROGRAM.with_input(index, other)
    assert changed == replace(PROGRAM, inputs=expected)


def test_renamed_gives_names_in_order_to_inputs_and_results() -> None:
    program = PROGRAM.with_input(0, Input("first", 0, torch.float32, (4,), (1,))).with_instruction(
        0, Instruction("aten.neg.default", (Ref("first"),), results=("v",))
    )
    renamed = program.renamed()
    assert [view.name for view in renamed.inputs] == ["x0", "x1"]
    assert [instruction.results for instruction in renamed.instructions] == [("v0",), ()]
    assert [instruction.refs for instruction in renamed.instructions] == [("x0",), ("x1", "v0")]
    assert renamed.outputs == ("v0",)
