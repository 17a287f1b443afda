"""Target *relax*: programs of values, views and writes through `DataflowUseInplaceCalls` of TVM."""

from __future__ import annotations

import pytest
import torch

from aliasproof.programs.errors import Rejected
from aliasproof.targets.registry import target as target_named
from aliasproof.trials.examination import Examination, examine
from aliasproof.trials.trial import Case

pytest.importorskip("tvm.relax", reason="TVM is not installed: pip install 'aliasproof[relax]'")

aten = torch.ops.aten


def relax(program, *inputs: torch.Tensor, variant: str = "") -> Examination:
    """The verdicts on a function through the target."""
    return examine(Case.of_function(program, inputs), target_named(f"relax{variant}"))


def adds(x, y):
    z = aten.add.Tensor(x, y)
    return aten.mul.Tensor(z, y)


def writes_a_row(x, y):
    aten.copy_.default(aten.select.int(x, 0, 1), y)
    return aten.add.Tensor(x, 1)


def writes_columns(x, y):
    aten.add_.Tensor(aten.t.default(x), aten.t.default(x))
    return aten.add.Tensor(aten.select.int(x, 1, 0), y)


def calls_others(x, y):
    return aten.cumsum.default(aten.mul.Tensor(x, x), 0)


@pytest.mark.parametrize("program", [adds, writes_a_row, writes_columns, calls_others])
def test_it_computes_what_eager_computes(program) -> None:
    examination = relax(program, torch.arange(9.0).view(3, 3), torch.arange(3.0))
    assert examination.rejected is None
    assert examination.violations == []


def test_inputs_on_one_storage_are_a_vector() -> None:
    base = torch.arange(6.0)
    examination = relax(lambda x, y: aten.add.Tensor(aten.neg_.default(x), y), base[:4], base[2:])
    assert examination.rejected is None
    assert examination.violations == []


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        (lambda x: aten.view.dtype(x, torch.int32), "no view of another dtype"),
        (aten.rand_like.default, "draws random numbers"),
        (aten.nonzero.default, "depend on data"),
        (lambda x: aten.add.Tensor(x, 1j), "no tensors of torch.complex64"),
    ],
)
def test_what_relax_has_no_form_of_is_rejected(program, reason: str) -> None:
    examination = relax(program, torch.arange(4.0))
    assert isinstance(examination.rejected, Rejected)
    assert reason in str(examination.rejected)
