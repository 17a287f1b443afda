"""Each entry of the tables of `eager/` is needed: without it, a program is not what it is with it.

A program is wrong then, or its graph raises; or it is refused for nothing, or allocates more.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from aliasproof.ir.devices import cpu_capability
from tests.reference_pass.needed_entries import answer_without, needed_entries, tables

aten = torch.ops.aten

TABLE = "_COMPLEX_PRODUCTS"
# A scalar kernel multiplies complex numbers in one order, wherever its result is.
WITHOUT_VECTORS = cpu_capability() == "DEFAULT"
# A `Program` has no complex numbers as arguments.
OF_COMPLEX_NUMBERS: dict[str, Callable[[Tensor], Tensor]] = {
    "aten.mul.Scalar": lambda x: aten.mul.Scalar(x + 1, 0.7 + 0.3j),
    "aten.addcdiv.default": lambda x: aten.addcdiv.default(x + 1, x, x + 2, value=0.7 + 0.3j),
}
# These are put in place without the entry, and round their scalar there.
OF_ROUNDED_SCALARS: dict[str, Callable[[Tensor], Tensor]] = {
    "aten.mul_.Scalar": lambda x: aten.mul.Scalar(x + 1, 0.3),
    "aten._foreach_mul_.Scalar": lambda x: aten._foreach_mul.Scalar([x + 1], 0.3)[0],
    "aten._foreach_mul_.ScalarList": lambda x: aten._foreach_mul.ScalarList([x + 1], [0.3])[0],
}


def test_each_entry_has_a_program():
    entries = [(table, str(entry)) for table, value in tables().items() for entry in value]
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
            assert row.answer_without() == row.without


@pytest.mark.vectors
@pytest.mark.skipif(WITHOUT_VECTORS, reason="vectorised kernels alone show it")
@pytest.mark.parametrize("entry", OF_COMPLEX_NUMBERS)
def test_without_a_complex_product_its_bits_are_others(entry):
    torch.manual_seed(0)
    function = OF_COMPLEX_NUMBERS[entry]
    # In the remainder of a vector loop, which is of another length on another processor.
    operands = [[torch.randn(size, dtype=torch.complex64)] for size in (5, 6, 7, 12, 13, 14, 15)]
    answers = [answer_without(TABLE, entry, function, operand, "alias") for operand in operands]
    assert "wrong" in answers
