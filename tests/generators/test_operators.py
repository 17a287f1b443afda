"""The table of ops: each line has a drawer for every argument, or fails at import."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from aliasproof.generators import number_arguments as numbers
from aliasproof.generators.arguments import drawn_arguments
from aliasproof.generators.operator import Operator
from aliasproof.generators.operators import OPERATORS
from aliasproof.ir.errors import UserError
from aliasproof.ir.program import Program
from aliasproof.ir.validation import validate


def test_every_op_can_be_drawn(
    subtests: pytest.Subtests, program_with: Callable[[Operator], Program]
) -> None:
    for operator in OPERATORS:
        with subtests.test(operator.name):
            program = program_with(operator)
            assert program.instructions[-1].op == operator.name
            validate(program)


def test_no_op_has_two_lines() -> None:
    names = [operator.name for operator in OPERATORS]
    assert sorted(names) == sorted(set(names))


# --- mistakes in a line ---------------------------------------------------------------------------


def refused(op: str, **drawers: Callable) -> str:
    with pytest.raises(UserError) as error:
        drawn_arguments(op, drawers)
    return str(error.value)


def test_an_argument_without_a_drawer_is_named_with_its_type() -> None:
    expected = "aten.roll.default: no drawer for 'shifts' (List[int]); give one in the line"
    assert refused("aten.roll.default") == expected
    drawn = drawn_arguments("aten.roll.default", {"shifts": numbers.dimension_in_list})
    assert [argument.name for argument in drawn] == ["shifts"]


def test_a_drawer_without_an_argument_is_named() -> None:
    expected = "aten.roll.default: takes no argument 'shift'; did you mean 'shifts'?"
    assert refused("aten.roll.default", shift=numbers.number) == expected


def test_an_unknown_op_is_named() -> None:
    assert refused("aten.rol.default").startswith("unknown operator 'aten.rol.default'")
