"""Each op of the table declares all properties that the harness needs to judge it precisely.

An undeclared property has a default: values are compared with a tolerance, a value hash covers all
that an op reads, and equal indices are defined. So a forgotten property makes the harness miss
differences, or report undefined programs, and no other test fails. A test here fails then, and
names the op, the property and the file to edit.
"""

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
)
from torch.utils._python_dispatch import TorchDispatchMode

from aliasproof.eager.indexed_stores import INDEXED_STORES
from aliasproof.eager.op_properties import PROPERTIES as OF_OPS
from aliasproof.eager.op_properties import ROWS, KernelTrait
from aliasproof.eager.rounding import rounding_name, rounds_alike
from aliasproof.generators.features import Features
from aliasproof.generators.inputs import draw_inputs
from aliasproof.generators.operator import Operator
from aliasproof.generators.ops import OPERATORS
from aliasproof.generators.rules.operator_calls import operators, plain_call
from aliasproof.generators.rules.pattern_walk import in_place_forms
from aliasproof.generators.rules.plain_matches import USUAL, plain_match
from aliasproof.generators.scene import NoChoice, Pick, Scene
from aliasproof.generators.sites.patterns import rules
from aliasproof.generators.strategies import draw_call
from aliasproof.ir.custom_operators import NAMESPACE
from aliasproof.ir.eager_call import is_foreach
from aliasproof.ir.execution import run
from aliasproof.ir.program import Instruction, Program
from aliasproof.ir.schemas import Kind, facts, is_composite, resolve
from aliasproof.ir.validation import validate
from aliasproof.ir.values import input_tensors
from aliasproof.oracles.forms import functional_form, view_of_copy
from aliasproof.oracles.op_hashes import MOVES, REORDERED, stores, torch_name

aten = torch.ops.aten

# --- rounding -------------------------------------------------------------------------------------


HOW = KernelTrait.MOVES | KernelTrait.EXACT | KernelTrait.ONCE | KernelTrait.DIFFERS


def declares_rounding(op: OpOverload) -> bool:
    """True if it is known whether all correct kernels for the op give the same bits."""
    ours = op.namespace == NAMESPACE  # all of these copy and add
    row = OF_OPS.get(rounding_name(op))
    return ours or facts(op).kind is Kind.VIEW or (row is not None and bool(row.traits & HOW))


# --- value hashes ---------------------------------------------------------------------------------


def hashed_as_a_whole(name: str) -> bool:
    """True if the op is known to need no rule."""
    return name in OF_OPS and OF_OPS[name].hashed != ""


def declares_value_hash(op: OpOverload) -> bool:
    """True if the op moves hashes, has a rule, is pointwise, or is hashed as a whole on purpose."""
    if facts(op).kind is Kind.VIEW or op is aten.copy_.default:
        return True
    if op.namespace == NAMESPACE:
        return True  # targets know only its schema
    # The first writes no byte; the second is hashed by the number of its draw.
    if torch.Tag.inplace_view in op.tags or facts(op).random:
        return True
    form = functional_form(op) if facts(op).writes else op
    if form is None:
        return hashed_as_a_whole(torch_name(op))
    name = torch_name(form)
    moves = stores(form) or view_of_copy(form) is not None or is_foreach(form)  # one op per item
    return moves or name in (*MOVES, *REORDERED) or facts(form).pointwise or hashed_as_a_whole(name)


# --- stores by index ------------------------------------------------------------------------------


def declares_equal_indices(op: OpOverload) -> bool:
    """True if the op has no index tensor, or its result for equal indices is known."""
    arguments = [argument for argument in op._schema.arguments if not argument.is_out]
    indices = [each for each in arguments if each.name in ("index", "indices")]
    if all("Tensor" not in str(argument.type) for argument in indices):
        return True
    row = OF_OPS.get(torch_name(op))
    return op.overloadpacket in INDEXED_STORES or (row is not None and row.equal != "")


# --- the properties of each op --------------------------------------------------------------------

PROPERTIES: dict[str, tuple[Callable[[OpOverload], bool], str]] = {
    "rounding": (
        declares_rounding,
        "add its name to the row of its kind in aliasproof/eager/op_properties.py",
    ),
    "value hash": (
        declares_value_hash,
        "give a reason in aliasproof/eager/op_properties.py, or a rule in oracles/op_hashes.py",
    ),
    "equal indices": (
        declares_equal_indices,
        (
            "give a reason in aliasproof/eager/op_properties.py, or a rule in"
            " aliasproof/eager/indexed_stores.py"
        ),
    ),
}


class Calls(TorchDispatchMode):
    """Records the calls that the harness sees: for a composite op, the calls that it makes."""

    def __init__(self) -> None:
        super().__init__()
        self.ops: list[OpOverload] = []

    def __torch_dispatch__(
        self, func: OpOverload, types: object, args: Any = (), kwargs: Any = None
    ) -> Any:
        self.ops.append(func)
        return func(*args, **kwargs or {})


def undeclared(op: OpOverload) -> list[str]:
    """The missing declarations of an op: a message per property."""
    return [
        f"{op}: its {prop} is not declared; {advice}"
        for prop, (declares, advice) in PROPERTIES.items()
        if not declares(op)
    ]


def called(program: Program) -> list[OpOverload]:
    """The ops that a run calls, except those that fill its inputs."""
    inputs = input_tensors(program)
    with Calls() as calls, torch.no_grad():
        run(program, inputs)
    ops: list[OpOverload] = calls.ops
    return ops


def undeclared_in(program: Program) -> list[str]:
    """The missing declarations of the ops of a program."""
    return [message for op in called(program) for message in undeclared(op)]


TRIES = 1000  # scenes; the rarest op fits into one of forty


def program_with(operator: Operator) -> Program:
    """A program whose last instruction is a call of the operator."""
    features = Features()
    for seed in range(TRIES):
        pick = Pick(random.Random(seed).randint)
        scene = Scene(*draw_inputs(pick, features), seed=0)
        try:
            draw_call(pick, scene, features, operator)
        except NoChoice:
            continue
        return scene.program(())
    raise AssertionError(f"{operator.name} fits into none of {TRIES} scenes")


# By these tags, the equivalence oracle knows that a result depends on tensor data, so that its
# verdict holds only for these inputs.
TAGS = {torch.Tag.dynamic_output_shape, torch.Tag.data_dependent_output}


def reads_data(program: Program) -> bool:
    """True if the shapes of the results cannot be known without tensor data."""
    mode = FakeTensorMode()
    fakes = [mode.from_tensor(tensor) for tensor in input_tensors(program)]
    with mode:
        try:
            run(program, fakes)
        except (DynamicOutputShapeException, DataDependentOutputException):
            return True
    return False


def test_every_op_is_drawn_and_declares_what_the_harness_must_know(subtests):
    for operator in OPERATORS:
        with subtests.test(operator.name):
            program, op = program_with(operator), resolve(operator.name)
            assert program.instructions[-1].op == operator.name
            validate(program)
            assert undeclared_in(program) == []
            # Only autograd notices `detach_`.
            if not is_composite(op) and operator.name != "aten.detach_.default":
                assert op in called(program)
            # A composite op reads data through an op that has a tag.
            tagged = is_composite(op) or bool(TAGS & set(op.tags))
            assert tagged or not reads_data(program), (
                f"{operator.name}: reads tensor data and torch does not tag it; name it in"
                " oracles/uninterpreted.py, where the tags are read"
            )


def test_a_run_without_data_shows_which_ops_read_it() -> None:
    program = program_with(OPERATORS[0])
    assert not reads_data(program)
    nonzero = Instruction("aten.nonzero.default", program.instructions[-1].args[:1])
    assert reads_data(program.with_instruction(len(program) - 1, nonzero))


# Eager accepts no drawn call of these operators of torch 2.15.
NOT_ACCEPTED = ("_uniform.default", "_normal.default", "_randint.default", "_scaled_addmm.default")
# Their plain matches call all operators that those of other rules call.
RULES_THAT_BRING_OPS = (
    "joint_graph.patterns/_sfdp_pattern_1_training(aten.view.default)",
    "joint_graph.patterns/_sfdp_pattern_15_inference(aten.view.default)",
    "joint_graph.patterns/_sfdp_pattern_29_inference(aten.view.default)",
    "replace_random.patterns/replace_random(aten.randn.default)",
    "replace_random.patterns/replace_random(aten.rand.default)",
    "replace_random.patterns/replace_randint(aten.randint.low)",
    "joint_graph.patterns/_misc_patterns_init.randperm_index_pattern(aten.index.Tensor)",
    (
        "freezing_patterns.pass_patterns[0]/_register_weight_pack_pass.convolution"
        "(aten.convolution.default)"
    ),
    (
        "freezing_patterns.pass_patterns[2]/_register_smooth_quant_int_mm_pattern"
        "._int_mm_weight_prepack(aten.mul.Tensor)"
    ),
    *in_place_forms(),
)


@pytest.mark.parametrize("rule", RULES_THAT_BRING_OPS)
def test_an_op_that_a_rule_brings_declares_the_same(rule: str) -> None:
    if rule not in {*rules(), *in_place_forms()}:
        pytest.skip(f"torch {torch.__version__} has no such rule")
    program = plain_match(rule, USUAL, 0)
    if rule.endswith(NOT_ACCEPTED):
        assert isinstance(program, str)
        return
    assert isinstance(program, Program), program
    assert undeclared_in(program) == []


@pytest.mark.thorough
def test_an_operator_that_is_drawn_by_its_schema_declares_the_same() -> None:
    for name in operators():
        program = plain_call(name, USUAL, 0)
        if isinstance(program, Program):
            assert undeclared_in(program) == [], name


@pytest.mark.parametrize(
    ("name", "properties"),
    [
        ("aten.silu_backward.default", ["rounding"]),
        ("aten._cdist_forward.default", ["rounding", "value hash"]),
        ("aten.grid_sampler_3d.default", ["rounding", "value hash"]),
        ("aten._embedding_bag.default", ["rounding", "value hash", "equal indices"]),
        ("aten.roll.default", []),
    ],
)
def test_an_op_that_nobody_declared_is_named_with_the_file_to_edit(name, properties):
    messages = undeclared(resolve(name))
    expected = [f"{name}: its {prop} is not declared; {PROPERTIES[prop][1]}" for prop in properties]
    assert messages == expected


def test_no_op_is_declared_twice() -> None:
    names = [name for row in ROWS for name in row.names.split()]
    assert len(set(names)) == len(names)
    assert all((row.traits & HOW) in (*HOW, KernelTrait(0)) for row in ROWS)
    assert all((KernelTrait.DIFFERS in row.traits) == (row.why != "") for row in ROWS)
    stores = {str(packet).removeprefix("aten.").rstrip("_") for packet in INDEXED_STORES}
    assert not any(OF_OPS[name].equal for name in stores)
    assert not any(hashed_as_a_whole(name) for name in (*MOVES, *REORDERED))


def test_the_absolute_value_of_a_complex_number_rounds_more_than_once() -> None:
    op, number = torch.ops.aten.abs.default, torch.ones(1)
    assert rounds_alike(op, [number])
    assert not rounds_alike(op, [number + 1j, number])
