"""Inputs with symbolic sizes: layouts, real inputs of given sizes, and rejected inputs."""

import pytest
import sympy  # type: ignore[import-untyped]
import torch

from aliasproof.ir.errors import Rejected
from aliasproof.ir.values import clone_inputs
from aliasproof.oracles.observation import observe
from aliasproof.oracles.proofs.symbolic_inputs import SymbolicInputs, disagreements

N, M = (sympy.Symbol(name, integer=True, positive=True) for name in ("n0", "n1"))


def names(inputs):
    return [tuple(map(str, shape)) for shape in inputs.shapes]


def test_sizes_of_two_and_more_of_an_input_that_fills_its_storage_are_symbols():
    whole, turned, part = torch.zeros(4, 1, 4), torch.zeros(3, 5).t(), torch.zeros(6)[:4]
    assert names(SymbolicInputs([whole, turned, part])) == [("n0", "1", "n1"), ("n2", "n3"), ("4",)]


def test_inputs_that_share_a_storage_keep_their_layout():
    base = torch.zeros(10)
    given = [base[:4], base[2:].view(2, 4)]
    inputs = SymbolicInputs(given)
    assert names(inputs) == [("4",), ("2", "4")]
    layout = inputs.layout(lambda x, y: y[0])
    assert len({region.storage for region in layout.values()}) == 1
    real = [tensor.untyped_storage().data_ptr() for tensor in inputs.at({})]
    assert real[0] == real[1] != base.data_ptr()


def test_real_inputs_of_other_sizes_have_the_layout_and_values_of_the_sample():
    inputs = SymbolicInputs([torch.arange(6.0).view(2, 3).t()])
    (made,) = inputs.at({N: 4, M: 5})
    assert (tuple(made.shape), made.stride()) == ((4, 5), (1, 4))
    assert made.t().flatten().tolist() == [position % 6 for position in range(20)]


def test_a_layout_is_true_of_real_runs_at_other_sizes():
    def function(x):
        x.t_()
        return x[1:], x + 1, x.flatten()[::2]

    inputs = SymbolicInputs([torch.zeros(4, 6)])
    layout = inputs.layout(function)
    for sizes in ({N: 2, M: 9}, {N: 7, M: 5}):
        assert disagreements(layout, observe(function, inputs.at(sizes)), sizes) == set()


@pytest.mark.parametrize(
    ("function", "wrong"),
    [
        (lambda x: (x[:1], x.clone()), {"output 0"}),
        (lambda x: (x[1:], x), {"input 0", "output 1"}),
        (lambda x: (x[1:].clone(), x.clone()), {"output 0"}),
        (lambda x: (x[1:],), {"output 1"}),
    ],
)
def test_a_run_that_differs_from_the_layout_is_noticed(function, wrong):
    inputs = SymbolicInputs([torch.zeros(4, 6)])
    layout = inputs.layout(lambda x: (x[1:], x.clone()))
    sizes = {N: 4, M: 6}
    assert disagreements(layout, observe(function, inputs.at(sizes)), sizes) >= wrong


def test_guards_that_the_sample_does_not_satisfy_are_rejected():
    inputs = SymbolicInputs([torch.zeros(4, 6)])
    inputs.layout(lambda x: x.view(2, -1))
    assert inputs.assumptions(2, 64).samples
    inputs.hints[N] = 5
    with pytest.raises(Rejected, match="its own run"):
        inputs.assumptions(2, 64)


def test_what_cannot_run_on_symbols_is_rejected():
    with pytest.raises(Rejected, match="with symbolic sizes, the function raises"):
        SymbolicInputs([torch.ones(4)]).layout(lambda x: x[: int(x.sum())])


def test_data_dependent_sizes_are_rejected():
    """Torch assumes without a guard that such a size is not 1.

    So it treats `y.t().contiguous()` as a copy, which is wrong for one row.
    """

    def function(x):
        y = x[x[:, 0] > 0]
        return y, y.t().contiguous()

    inputs = SymbolicInputs([torch.ones(4, 3)])
    for _ in range(2):
        with pytest.raises(Rejected, match="data-dependent"):
            inputs.layout(function)


def test_the_samples_are_not_written():
    given = [torch.zeros(4)]
    inputs = SymbolicInputs(given)
    observe(lambda x: x.add_(1), inputs.at({N: 4}))
    assert inputs.at({N: 4})[0].tolist() == given[0].tolist() == clone_inputs(given)[0].tolist()
