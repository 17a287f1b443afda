"""Ordinary syntax is used exactly where it makes the ATen calls of the program."""

from collections.abc import Callable
from textwrap import dedent
from typing import Any

import pytest
import torch
from hypothesis import given

from aliasproof.generators.strategies import programs
from aliasproof.ir import ordinary_syntax
from aliasproof.ir.execution import run, seed_generators
from aliasproof.ir.ordinary_syntax import (
    ordinary_inputs,
    ordinary_source,
    recorded_calls,
    with_short_names,
)
from aliasproof.ir.program import Input, Program, Storage
from aliasproof.ir.values import input_tensors
from tests.short_programs import program_of, view

EXAMPLES = [
    ("aten.zero_.default(aten_view)", "x.expand(3, 2, 4).zero_()"),
    ("v1 = aten.slice.Tensor(x0, 1, 1, 9223372036854775807)\nreturn (v1,)", "return x[:, 1:]"),
    ("v1 = aten.slice.Tensor(x0, 0, 0, 2, 2)\nreturn (v1,)", "return x[:2:2]"),
    ("v1 = aten.select.int(x0, 0, -1)\nreturn (v1,)", "return x[-1]"),
    ("v1 = aten.t.default(x0)\nv2 = aten.neg.default(v1)\nreturn (v2,)", "return -x.t()"),
    ("v1 = aten.mul.Tensor(x0, x0)\nv2 = aten.neg.default(v1)\nreturn (v2,)", "return -(x * x)"),
    ("v1 = aten.cat.default([x0, x0], 1)\nreturn (v1,)", "return torch.cat([x, x], 1)"),
    ("aten.add.out(x0, x0, out=x0)\nreturn (x0,)", "torch.add(x, x, out=x)\n    return x"),
    ("v1, v2 = aten.split.Tensor(x0, 1)\nreturn v2, v1", "v0, v1 = x.split(1)\n    return v1, v0"),
    ("aten.fill_.Scalar(x0, float('nan'))\nreturn (x0,)", 'x.fill_(float("nan"))\n    return x'),
    # No Python call of torch does the same.
    ("v1 = aten.alias.default(x0)\nreturn (v1,)", "return aten.alias.default(x)"),
    ("v1 = aten.select.int(x0, -1, 0)\nreturn (v1,)", "return x.select(-1, 0)"),
    ("v1 = aten.add.Scalar(x0, 1)\nreturn (v1,)", "return aten.add.Scalar(x, 1)"),
]


def same_calls(program: Program, text: str) -> bool:
    """Whether a printed function makes the same ATen calls as the program, in the same order."""
    scope: dict[str, Any] = {"torch": torch, "aten": torch.ops.aten}
    exec(text, scope)
    printed, expected = input_tensors(program), input_tensors(program)

    def outputs() -> object:
        seed_generators()
        returned = run(program, expected)
        return returned if len(returned) > 1 else next(iter(returned), None)

    seed_generators()
    calls = recorded_calls(lambda: scope["program"](*printed), printed)
    return calls == recorded_calls(outputs, expected)


@pytest.mark.parametrize(("body", "expected"), EXAMPLES)
def test_a_program_reads_as_a_user_would_write_it(program, body, expected):
    if body.startswith("aten.zero_"):
        body = "v0 = aten.expand.default(x0, [3, 2, 4])\naten.zero_.default(v0)\nreturn ()"
    written = with_short_names(program(body, (2, 4)))
    text = ordinary_source(written)
    assert text == f"def program(x):\n    {expected}\n"
    assert same_calls(written, text)


def test_near_syntax_takes_a_number_for_a_tensor(program: Callable[..., Program]) -> None:
    written = program("aten.add_.Scalar(x0, 1)\nv0 = aten.mul.Scalar(x0, 2)\nreturn (v0,)", (4,))
    text = ordinary_source(written, near=True)
    assert text == "def program(x0):\n    x0.add_(1)\n    return x0 * 2\n"
    assert not same_calls(written, text)


@pytest.mark.parametrize("seed", range(4))
def test_a_random_index_is_drawn_as_in_a_run_of_the_program(seed: int) -> None:
    """With other numbers than those of the seed of programs, the index would be out of range."""
    body = (
        "v0 = aten.randint_like.default(x0, 2)\n"
        "v1 = aten.index_select.default(x0, 0, v0)\nreturn (v1,)"
    )
    torch.manual_seed(seed)
    text = ordinary_source(program_of(body, view(1, dtype=torch.int64)))
    index = "aten.randint_like.default(x0, 2)"
    assert text == f"def program(x0):\n    return x0.index_select(0, {index})\n"
    state = torch.get_rng_state()
    torch.manual_seed(seed)
    assert torch.equal(state, torch.get_rng_state())


def test_a_wrong_spelling_is_not_used(program, monkeypatch):
    monkeypatch.setattr(ordinary_syntax, "_BINARY", {"add": "-"})
    written = program("v0 = aten.add.Tensor(x0, x0)\nreturn (v0,)", (4,))
    assert ordinary_source(written) == "def program(x0):\n    return x0.add(x0)\n"


def test_lines_are_not_joined_past_a_write(program: Callable[..., Program]) -> None:
    body = """
        v0 = aten.neg.default(x0)
        aten.zero_.default(x0)
        v1 = aten.add.Tensor(x0, v0)
        return (v1,)
    """
    expected = """
        def program(x0):
            v0 = -x0
            x0.zero_()
            return x0 + v0
    """
    assert ordinary_source(program(body, (4,))) == dedent(expected).lstrip()


# --- inputs ---------------------------------------------------------------------------------------

F32, I64 = torch.float32, torch.int64
INPUTS = [
    ([Storage(F32, 4)], [Input("x", 0, F32, (4,), (1,))], "return (torch.arange(1.0, 5.0),)"),
    (
        [Storage(I64, 4)],
        [Input("x", 0, I64, (2, 2), (2, 1))],
        "return (torch.arange(4).view(2, 2),)",
    ),
    (
        [Storage(F32, 4)],
        [Input("x", 0, F32, (4,), (1,)), Input("y", 0, F32, (2,), (1,), 1)],
        "x = torch.arange(1.0, 5.0)\n    y = x[1:3]\n    return x, y",
    ),
    (
        [Storage(I64, 6)],
        [Input("x", 0, I64, (2,), (2,), 1), Input("y", 0, I64, (3, 2), (1, 3))],
        "base = torch.arange(6)\n    x = base[1:4:2]\n    y = base.view(2, 3).t()\n    return x, y",
    ),
    (
        [Storage(F32, 2)],
        [Input("x", 0, F32, (2, 2), (1, 0))],
        "return (torch.tensor([1.0, 2.0]).as_strided((2, 2), (1, 0)),)",
    ),
    ([Storage(F32, 1)], [Input("x", 0, F32, (), ())], "return (torch.tensor(1.0),)"),
    (
        [Storage(F32, 2, ("nan", "-0.0"))],
        [Input("x", 0, F32, (1, 2), (2, 1))],
        "return (torch.tensor([[torch.nan, -0.0]]),)",
    ),
    (
        [Storage(I64, 64, ("3",))],
        [Input("x", 0, I64, (16, 4), (4, 1))],
        "return (torch.full((64,), 3).view(16, 4),)",
    ),
    (
        [Storage(F32, 1)],
        [Input("x", 0, torch.int16, (2,), (1,))],
        "return (torch.tensor([1.0]).view(torch.int16),)",
    ),
]


@pytest.mark.parametrize(("storages", "views", "expected"), INPUTS)
def test_inputs_read_as_a_user_would_write_them(storages, views, expected):
    written = Program(tuple(storages), tuple(views), (), ())
    assert ordinary_inputs(written, near=True) == f"def inputs():\n    {expected}\n"
    exact = ordinary_inputs(written)
    scope: dict = {"torch": torch}
    exec(exact, scope)
    assert all(tensor._base is None for tensor in scope["inputs"]())


@given(programs())
def test_ordinary_syntax_makes_the_calls_and_the_inputs_of_the_program(drawn: Program) -> None:
    written = with_short_names(drawn)
    assert same_calls(written, ordinary_source(written))
    for near in (False, True):
        scope: dict = {"torch": torch}
        exec(ordinary_inputs(drawn, near=near), scope)
        for printed, expected in zip(scope["inputs"](), input_tensors(drawn), strict=True):
            assert printed.stride() == expected.stride()
            assert printed.untyped_storage().tolist() == expected.untyped_storage().tolist()
            assert near or printed._base is None


def test_inputs_that_read_wrong_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aliasproof.ir.ordinary_syntax._progression", lambda values: (0.0, 4.0))
    written = Program((Storage(F32, 4),), (Input("x", 0, F32, (4,), (1,)),), (), ())
    assert "torch.arange(1, 5, dtype=torch.float32)" in ordinary_inputs(written)


def test_a_program_that_raises_without_a_dispatch_mode_is_spelled_by_its_ops() -> None:
    """A kernel takes integers only under a mode, as campaigns run eager."""
    pool = "v0 = aten.max_pool1d.default(x0, [2])"
    program = program_of(f"{pool}\nreturn (v0,)", view(1, 1, 8, dtype=torch.int64))
    assert pool in ordinary_source(program)
