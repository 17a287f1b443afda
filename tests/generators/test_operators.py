"""The table of ops: each line has a drawer for every argument, or fails at import.

The coverage table, which `aliasproof ops` prints, has a status for each view and write of ATen.
"""

from collections.abc import Callable

import pytest
import torch

from aliasproof.generators import number_arguments as numbers
from aliasproof.generators.arguments import drawn_arguments
from aliasproof.generators.coverage import OpStatus, coverage
from aliasproof.generators.ops import OPERATORS
from aliasproof.ir.errors import UserError
from aliasproof.ir.schemas import Kind, facts, resolve


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
    assert list(drawn) == ["shifts"]


def test_a_drawer_without_an_argument_is_named() -> None:
    expected = "aten.roll.default: takes no argument 'shift'; did you mean 'shifts'?"
    assert refused("aten.roll.default", shift=numbers.number) == expected


def test_an_unknown_op_is_named() -> None:
    assert refused("aten.rol.default").startswith("unknown operator 'aten.rol.default'")


# --- coverage -------------------------------------------------------------------------------------

COVERED = {str(each.op): each for each in coverage()}
# New in torch 2.15: random numbers from a key of uint64, the new op for `.data =`, and scaled
# float8.
NOT_DRAWN_YET = {
    "aten._philox_normal_.default",
    "aten._philox_randint_.default",
    "aten._philox_uniform_.default",
    "aten._scaled_addmm_.default",
    "aten.shallow_copy_data_.default",
}


def test_each_view_and_each_write_has_a_status() -> None:
    for name in torch._C._dispatch_get_all_op_names():
        plain = name.removeprefix("aten::")
        if plain == name or plain.startswith("from_file"):
            continue
        op = resolve(f"aten.{plain}" if "." in plain else f"aten.{plain}.default")
        assert (str(op) in COVERED) == (facts(op).kind is not Kind.FUNCTIONAL)


def test_no_view_and_no_in_place_op_is_undrawn() -> None:
    kinds = (Kind.VIEW, Kind.IN_PLACE, Kind.MUTATING)
    undrawn = {
        name
        for name, each in COVERED.items()
        if each.status is OpStatus.UNDRAWN and each.facts.kind in kinds
    }
    assert undrawn <= NOT_DRAWN_YET


def test_what_is_drawn_is_drawn() -> None:
    drawn = {name for name, each in COVERED.items() if each.status is OpStatus.DRAWN}
    assert drawn == {operator.name for operator in OPERATORS} & COVERED.keys()
    for each in COVERED.values():
        if each.status is OpStatus.REACHABLE:
            assert each.detail in {operator.name for operator in OPERATORS}
        assert (each.detail == "") == (each.status is OpStatus.UNDRAWN)


@pytest.mark.parametrize(
    ("name", "status", "detail"),
    [
        ("aten.add_.Tensor", OpStatus.DRAWN, "in-place"),
        ("aten.sin.out", OpStatus.REACHABLE, "aten.sin_.default"),
        ("aten._mkldnn_transpose_.default", OpStatus.NOT_APPLICABLE, "MkldnnCPU"),
        ("aten.set_.source_Storage", OpStatus.NOT_APPLICABLE, "Storage"),
        ("aten.expand_copy.out", OpStatus.NOT_APPLICABLE, "generated"),
        ("aten.special_airy_ai.out", OpStatus.UNDRAWN, ""),
    ],
)
def test_a_status_says_why(name: str, status: OpStatus, detail: str) -> None:
    assert COVERED[name].status is status
    assert detail in COVERED[name].detail
