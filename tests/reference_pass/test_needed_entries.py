"""Each entry of the tables of `eager/` is needed: without it, a program is not what it is with it.

A program is wrong then, or its graph raises; or it is refused for nothing, or allocates more.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from tests.reference_pass.needed_entries import answer_without, needed_entries, tables

aten = torch.ops.aten

# A `Program` has no complex numbers as arguments.
OF_COMPLEX_NUMBERS: dict[str, Callable[[Tensor], Tensor]] = {
    "aten.mul.Scalar": lambda x: aten.mul.Scalar(x + 1, 0.7 + 0.3j),
    "aten.addcdiv.default": lambda x: aten.addcdiv.default(x + 1, x, x + 2, value=0.7 + 0.3j),
}


def test_each_entry_has_a_program():
    entries = {(table, str(entry)) for table, value in tables().items() for entry in value}
    by_hand = {("_COMPLEX_PRODUCTS", entry) for entry in OF_COMPLEX_NUMBERS}
    found = [(row.table, row.entry) for row in needed_entries()]
    assert sorted(found + list(by_hand)) == sorted(entries)


def test_without_an_entry_its_program_has_another_answer(subtests: pytest.Subtests):
    for row in needed_entries():
        with subtests.test(f"{row.table}: {row.entry}"):
            assert row.answer_without() == row.without


@pytest.mark.parametrize("entry", OF_COMPLEX_NUMBERS)
def test_without_a_complex_product_its_bits_are_others(entry):
    torch.manual_seed(0)
    inputs = [torch.randn(31, dtype=torch.complex64)]
    function = OF_COMPLEX_NUMBERS[entry]
    assert answer_without("_COMPLEX_PRODUCTS", entry, function, inputs, "symbolic") == "wrong"
