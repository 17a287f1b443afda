"""Well-formedness: each rule refuses its defect, and no rule refuses a call that runs in eager."""

import time
from dataclasses import replace
from typing import Any

import pytest
import torch

from aliasproof.generators.features import swarm
from aliasproof.generators.strategies import sample
from aliasproof.ir.errors import UserError, did_you_mean, shown, suggestion
from aliasproof.ir.execution import execute
from aliasproof.ir.program import Argument, Input, Instruction, Program, Ref, Storage
from aliasproof.ir.serialization import dumps, loads, require_bounded
from aliasproof.ir.validation import MOST_BYTES, MOST_PARTS, RULES, first_defect, validate
from aliasproof.ir.values import input_tensors

X = Ref("x")
STORAGE = Storage(torch.float32, 8)
INPUT = Input("x", 0, torch.float32, (2, 3), (3, 1), 2)
CLONE = Instruction("aten.clone.default", (X,), results=("v",))
GOOD = Program((STORAGE,), (INPUT,), (CLONE,), ("v",))


def with_storage(**changes: Any) -> Program:
    return replace(
        GOOD, storages=(replace(STORAGE, **changes),), inputs=(), instructions=(), outputs=()
    )


def with_input(**changes: Any) -> Program:
    return replace(GOOD, inputs=(replace(INPUT, **changes),))


def with_call(
    op: str, *args: Argument, results: tuple[str, ...] = (), times: int = 1, **kwargs: Any
) -> Program:
    """A call with these arguments; named ones occur `times` times."""
    call = Instruction(op, args, tuple(kwargs.items()) * times, results)
    return replace(GOOD, instructions=(CLONE, call))


# The rule that refuses a call, the part of the call that it names, and the program.
CALLS = [
    ("names_printable", "results[0]", with_call("aten.clone.default", X, results=("torch",))),
    ("names_unique", "results[0]", with_call("aten.clone.default", X, results=("v",))),
    ("ops_known", "op", with_call("aten.ad.Tensor", X, X)),
    ("arguments_named_once", "kwargs", with_call("aten.add.Tensor", X, X, alfa=1)),
    ("arguments_named_once", "kwargs.self", with_call("aten.abs.default", X, self=X)),
    ("arguments_named_once", "kwargs.dim", with_call("aten.cat.default", (X,), dim=0, times=2)),
    ("no_surplus_arguments", "args[2]", with_call("aten.add.Tensor", X, X, 1)),
    ("no_missing_arguments", "args", with_call("aten.add.Tensor", X)),
    ("devices_agree", "kwargs.device", with_call("aten.zeros_like.default", X, device="cuda")),
    ("no_missing_arguments", "args", with_call("aten.abs.out", X)),
    ("results_counted", "results", with_call("aten.abs.default", X, results=("a", "b"))),
    ("results_counted", "results", with_call("aten.topk.default", X, 1, results=("a",))),
    ("results_counted", "results", with_call("aten.equal.default", X, X, results=("a",))),
    ("results_counted", "results", with_call("aten._foreach_neg_.default", (X,), results=("a",))),
    ("uses_defined", "args[0]", with_call("aten.abs.default", Ref("y"))),
    ("uses_defined", "args[0][1]", with_call("aten.cat.default", (X, Ref("w")), results=("w",))),
    ("uses_defined", "kwargs.out", with_call("aten.abs.out", X, out=Ref("y"))),
]
# The same for whole programs.
DEFECTS = [
    ("few_parts", "outputs", replace(GOOD, outputs=("x",) * (MOST_PARTS + 1))),
    ("seed_in_64_bits", "seed", replace(GOOD, seed=2**63)),
    ("fill_known", "fill", replace(GOOD, fill="specail")),
    (
        "gradients_known",
        "storages[0].gradient",
        replace(GOOD, storages=(replace(GOOD.storages[0], gradient="some"), *GOOD.storages[1:])),
    ),
    ("device_known", "device", replace(GOOD, device="cuda:x")),
    ("names_printable", "inputs[0].name", with_input(name="lambda")),
    ("names_printable", "inputs[0].name", with_input(name="complex")),
    ("names_printable", "inputs[0].name", with_input(name="ﬁ")),
    ("names_printable", "inputs[0].name", with_input(name="_x")),
    ("names_unique", "inputs[1].name", replace(GOOD, inputs=(INPUT, INPUT))),
    ("dtypes_fillable", "storages[0].dtype", with_storage(dtype=torch.qint8)),
    ("dtypes_fillable", "inputs[0].dtype", with_input(dtype=torch.complex32)),
    ("storages_small", "storages[0].length", with_storage(length=-1)),
    ("storages_small", "storages[0].length", with_storage(length=MOST_BYTES // 4 + 1)),
    (
        "storages_small",
        "storages[2].length",
        replace(GOOD, storages=(Storage(torch.int8, MOST_BYTES // 2),) * 3),
    ),
    ("values_readable", "storages[0].values[1]", with_storage(values=("nan", "none"))),
    ("values_readable", "storages[0].values[0]", with_storage(values=("1j",))),
    ("values_readable", "storages[0].values[0]", with_storage(dtype=torch.int8, values=("128",))),
    ("values_readable", "storages[0].values[0]", with_storage(dtype=torch.int8, values=("nan",))),
    ("values_readable", "storages[0].values[0]", with_storage(dtype=torch.bool, values=("2",))),
    ("storage_exists", "inputs[0].storage", with_input(storage=1)),
    ("storage_exists", "inputs[0].storage", with_input(storage=-1)),
    ("one_stride_per_size", "inputs[0].strides", with_input(strides=(1,))),
    ("one_stride_per_size", "inputs[0].sizes", with_input(sizes=(1,) * 17, strides=(1,) * 17)),
    ("layout_in_range", "inputs[0].sizes", with_input(sizes=(2, -3))),
    ("layout_in_range", "inputs[0].strides", with_input(strides=(-3, 1))),
    ("layout_in_range", "inputs[0].offset", with_input(offset=-1)),
    ("layout_in_range", "inputs[0].strides", with_input(sizes=(1, 1), strides=(2**62, 1))),
    ("views_small", "inputs[0].sizes", with_input(sizes=(2**13, 2**13), strides=(0, 0))),
    (
        "views_small",
        "inputs[0].sizes",
        with_input(sizes=(2**20, 2**20, 2**20, 0), strides=(0,) * 4),
    ),
    ("views_inside_storage", "inputs[0]", with_input(offset=3)),
    (
        "views_inside_storage",
        "inputs[0]",
        with_input(dtype=torch.float64, sizes=(3,), strides=(1,)),
    ),
    ("uses_defined", "outputs[0]", replace(GOOD, outputs=("w",))),
    *((rule, f"instructions[1].{named}", program) for rule, named, program in CALLS),
]


@pytest.mark.parametrize(("rule", "location", "program"), DEFECTS)
def test_a_rule_refuses_what_it_is_for(rule: str, location: str, program: Program) -> None:
    defect = first_defect(program)
    assert defect is not None
    assert defect.location == location
    first = next(candidate for candidate in RULES if list(candidate(program)))
    assert first.__name__ == rule


def test_every_rule_is_tested() -> None:
    assert {rule for rule, _, _ in DEFECTS} | {"arguments_fit"} == {each.__name__ for each in RULES}


def test_the_message_says_what_was_given_and_what_is_near() -> None:
    with pytest.raises(
        UserError, match=r"^instructions\[1\].args\[0\]: refers to 'w' before it is defined$"
    ):
        validate(with_call("aten.abs.default", Ref("w"), results=("w",)))
    with pytest.raises(UserError, match=r"takes no argument 'alfa'; did you mean 'alpha'\?$"):
        validate(with_call("aten.add.Tensor", X, X, alfa=1))


LAYOUTS = [
    INPUT,
    # An empty slice: x[2:, 3:] starts past the end of the storage.
    replace(INPUT, sizes=(0, 3), strides=(3, 1), offset=9),
    replace(INPUT, sizes=(1, 5), strides=(1000, 0)),
    replace(INPUT, sizes=(), strides=(), offset=7),
    replace(INPUT, dtype=torch.int8, sizes=(32,), strides=(1,), offset=0),
    replace(INPUT, dtype=torch.complex128, sizes=(2,), strides=(1,), offset=0),
]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts_that_torch_makes_without_growing_the_storage_are_accepted(layout: Input) -> None:
    program = replace(GOOD, inputs=(layout,))
    validate(program)
    assert input_tensors(program)[0].untyped_storage().nbytes() == STORAGE.nbytes


# Calls on x (2x3, float32) and y (2, int64).
Y = Ref("y")
LEGAL = [
    ("aten.select.int", (X, True, 1), {}),  # a bool is an int
    ("aten.add.Scalar", (X, True), {}),
    ("aten.add.Scalar", (X, 2**64 - 1), {}),
    ("aten.add.Scalar", (X, -(2**63)), {"alpha": 2}),
    ("aten.add.Tensor", (), {"other": X, "self": X}),
    ("aten.add.Tensor", (X, 1), {}),  # as `x + 1`
    ("aten.div_.Tensor", (X, 2.5), {}),
    ("aten.dropout.default", (X, 0, False), {}),  # an int is a float
    ("aten._softmax.default", (X, 1, 0), {}),  # an int is a bool
    ("aten.clamp.default", (X, None, 1.5), {}),
    ("aten.clamp.Tensor", (X, None, X), {}),
    ("aten.sum.dim_IntList", (X, 1), {}),  # one int for int[1]?
    ("aten.sum.dim_IntList", (X, None), {"dtype": torch.float64}),
    ("aten.sum.dim_IntList", (X, ()), {"dtype": None}),
    ("aten.max_pool2d.default", (Ref("z"), 1), {}),  # one int for int[2]
    ("aten.permute.default", (X, (False, True)), {}),
    ("aten.index.Tensor", (X, (None, Y)), {}),
    ("aten.index_put_.default", (X, (None, Y), Ref("w"), 1), {}),
    ("aten.cat.default", ((X, X),), {}),
    (
        "aten._to_copy.default",
        (X,),
        {"dtype": 4, "device": None, "layout": None},
    ),  # the dispatcher takes enumerations as integers
    ("aten.clone.default", (X,), {"memory_format": 0}),
    ("aten._foreach_add.ScalarList", ((X, X), (True, 1.5)), {}),
    ("aten.upsample_nearest1d.vec", (Ref("z"), None, (2,)), {}),  # an int in float[]
    ("aten.random_.from", (X,), {"from": 0, "to": 3}),
    ("aten.einsum.default", ("ij,ij->", (X, X)), {}),
]
ILLEGAL = [
    ("aten.eq.Tensor", (X, 1), {}),
    ("aten.select.int", (X, 0, 1.0), {}),
    ("aten.select.int", (X, 0, torch.uint8), {}),
    ("aten.select.int", (X, 0, 2**63), {}),
    ("aten.select.int", (X, None, 0), {}),
    ("aten.add.Scalar", (X, 2**64), {}),
    ("aten.add.Scalar", (X, X), {}),
    ("aten.add.Scalar", (X, None), {}),
    ("aten.dropout.default", (X, 10**400, False), {}),
    ("aten.permute.default", (X, 1), {}),
    ("aten.permute.default", (X, ((1, 0),)), {}),
    ("aten.permute.default", (X, (1.0, 0)), {}),
    ("aten.cat.default", (X,), {}),
    ("aten.cat.default", ((X, None),), {}),
    ("aten._foreach_add.ScalarList", ((X,), 1.0), {}),
    ("aten._to_copy.default", (X,), {"dtype": 1.0}),
    ("aten._to_copy.default", (X,), {"device": 0.5}),
]
# The dispatcher converts these, but they would hide which arguments of a program are tensors.
REFUSED: list[tuple] = [
    ("aten.copy_.default", (X, 1), {}),
    ("aten.select.int", (X, 0, Ref("one")), {}),
    ("aten.index.Tensor", (X, Y), {}),
    ("aten.view.default", (X, Ref("sizes")), {}),
    ("aten.add.Scalar", (X, torch.float32), {}),
]


def call(op: str, args: tuple, kwargs: dict) -> Program:
    inputs = (
        Input("x", 0, torch.float32, (2, 3), (3, 1), 2),
        Input("y", 1, torch.int64, (2,), (1,)),
        Input("z", 0, torch.float32, (1, 2, 3), (6, 3, 1)),
        Input("w", 1, torch.float32, (), ()),
        Input("one", 1, torch.int64, (), (), 1),
        Input("sizes", 1, torch.int64, (2,), (1,), 2),
    )
    storages = (STORAGE, Storage(torch.int64, 4))
    return Program(storages, inputs, (Instruction(op, args, tuple(kwargs.items())),), ())


def run(program: Program) -> None:
    values = {
        view.name: tensor
        for view, tensor in zip(program.inputs, input_tensors(program), strict=True)
    }
    execute(program.instructions[0], values)


@pytest.mark.parametrize(("op", "args", "kwargs"), LEGAL)
def test_arguments_that_the_dispatcher_accepts_are_accepted(op, args, kwargs):
    run(call(op, args, kwargs))
    validate(call(op, args, kwargs))


@pytest.mark.parametrize(("op", "args", "kwargs"), ILLEGAL)
def test_arguments_that_the_dispatcher_refuses_are_refused(op, args, kwargs):
    with pytest.raises((RuntimeError, TypeError, OverflowError)):
        run(call(op, args, kwargs))
    with pytest.raises(UserError, match=r"^instructions\[0\]\.(args\[\d\]|kwargs\.\w+): .* got "):
        validate(call(op, args, kwargs))


@pytest.mark.parametrize(("op", "args", "kwargs"), REFUSED)
def test_conversions_that_hide_a_tensor_are_refused(op: str, args: tuple, kwargs: dict) -> None:
    run(call(op, args, kwargs))
    with pytest.raises(UserError, match=r"^instructions\[0\]\.args\[\d\]: .* got "):
        validate(call(op, args, kwargs))


# --- programs from files that would allocate too much are refused before they run -----------------


OPEN_END = 2**63 - 1


def made_of(*calls: tuple[str, tuple[Argument, ...]], length: int = 4) -> Program:
    """A program of one input x; the result of call `i` is `v<i>`."""
    instructions = tuple(
        Instruction(op, args, (), (f"v{index}",)) for index, (op, args) in enumerate(calls)
    )
    storage, view = Storage(torch.float32, length), Input("x", 0, torch.float32, (length,), (1,))
    return Program((storage,), (view,), instructions, ())


TOO_LARGE = {
    "expand": made_of(
        ("aten.expand.default", (X, (10**9, 4))), ("aten.clone.default", (Ref("v0"),))
    ),
    "full": made_of(("aten.full.default", ((2**40,), 1))),
    "arange": made_of(("aten.arange.default", (10**12,))),
    "repeat": made_of(("aten.repeat.default", (X, (10**5, 10**5)))),
    "pad": made_of(("aten.constant_pad_nd.default", (X, (0, 10**10)))),
    "as_strided": made_of(("aten.as_strided.default", (X, (10**6, 10**6), (0, 0)))),
    "resize": made_of(("aten.resize_.default", (X, (10**10,)))),
    "empty": made_of(("aten.empty.memory_format", ((2**62,),))),
    "outer": made_of(("aten.outer.default", (X, X)), length=100_000),
    "composite": made_of(("aten.tile.default", (X, (10**6, 10**6)))),
    "rank": made_of(("aten.view.default", (X, (*(1,) * 5000, 4)))),
    "results": made_of(("aten.unbind.int", (X,)), length=10**6),
    "chunks": made_of(("aten.chunk.default", (X, 10**6)), length=10**6),
    "together": made_of(*(("aten.full.default", ((2**25,), 1)),) * 40),
    "work": made_of(
        ("aten.full.default", ((2**25,), 1)), *(("aten.neg_.default", (Ref("v0"),)),) * 300
    ),
    # `masked_select` and a failing call return stand-ins.
    "after nonzero": made_of(
        ("aten.nonzero.default", (X,)),
        ("aten.expand.default", (Ref("v0"), (10**9, 4, 1))),
        ("aten.clone.default", (Ref("v1"),)),
    ),
    "without a fake kernel": made_of(("aten.histc.default", (X, 10**10))),
    "bincount": made_of(("aten.bincount.default", (X, None, 10**12))),
}


@pytest.mark.parametrize("name", TOO_LARGE)
def test_a_call_that_takes_too_much_is_refused_at_once(name: str) -> None:
    started = time.process_time()
    with pytest.raises(UserError, match=r"^instructions\[\d+\]: aten\.\S+ \w+") as refused:
        require_bounded(TOO_LARGE[name])
    assert time.process_time() - started < 5
    assert "\n" not in str(refused.value)
    with pytest.raises(UserError, match=r"^x\.json: instructions"):
        loads(dumps(TOO_LARGE[name]), "x.json")


def test_what_is_drawn_is_accepted() -> None:
    for program in sample(swarm(7), 7, 25):
        require_bounded(program)


@pytest.mark.parametrize(
    "program",
    [
        made_of(("aten.add.Tensor", (X, X)), ("aten.view.default", (X, (3, 3)))),  # eager raises
        made_of(("aten.slice.Tensor", (X, 0, 0, OPEN_END))),
        made_of(("aten.nonzero.default", (X,)), ("aten.slice.Tensor", (Ref("v0"), 0, 0, OPEN_END))),
        made_of(("aten.gt.Scalar", (X, 0)), ("aten.masked_select.default", (X, Ref("v0")))),
    ],
)
def test_what_fails_or_depends_on_data_and_is_small_is_accepted(program: Program) -> None:
    require_bounded(program)


# --- the parts of messages: the nearest known names, and values in one short line -----------------


KNOWN = ["alpha", "alphas", "beta"]


@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [
        ("alfa", {}, "; did you mean 'alpha'?"),
        ("alfa", {"most": 2}, "; did you mean 'alpha', 'alphas'?"),
        ("alfa", {"otherwise": "write one"}, "; did you mean 'alpha'?"),
        ("zzz", {"otherwise": "write one"}, "; write one"),
        ("zzz", {}, ""),
    ],
)
def test_an_unknown_name_gets_the_nearest_or_advice(name, options, expected):
    assert did_you_mean(name, KNOWN, **options) == expected


def test_names_are_offered_in_the_order_given() -> None:
    assert suggestion(["b", "a"]) == "; did you mean 'b', 'a'?"
    assert suggestion([]) == ""


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (3, "3"),
        pytest.param(10**5000, "an integer of 16610 bits", id="too many digits to print"),
        (Ref("x"), "the tensor 'x'"),
        ((Ref("x"), 1), "(the tensor 'x', 1)"),
    ],
)
def test_a_value_is_shown_in_one_line(value: object, expected: str) -> None:
    assert shown(value) == expected


def test_a_long_value_is_shown_short() -> None:
    assert len(shown("x" * 1000)) <= 60
    assert len(shown([[[["x"] * 100] * 100]])) < 200
