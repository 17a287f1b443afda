"""Programs that a careless reinplacing compiles wrongly: each was once a bug of this one."""

from __future__ import annotations

import operator
import sys

import pytest
import torch
from torch import fx

from aliasproof.judge.trial import Case, run_trial
from aliasproof.reference_pass import pipeline, reinplace
from aliasproof.targets.registry import TARGETS

aten = torch.ops.aten


def larger_elements(x):
    result = (x * 2)[1:5] + 1
    return result.view(torch.float64) + 0


def larger_elements_of_a_copy(x):
    return x[1:5].clone().view(torch.float64) + 1


def complex_elements(x):
    result = (x * 2)[1:5] + 1
    return torch.view_as_complex(result.view(2, 2)) + 0


def a_cast_back_to_complex(x):
    return (x.to(torch.complex64) * 2).abs().to(torch.complex64)


def a_wider_scalar_comes_first(x):
    return torch.mul(x[0] * 0.33, (x * 3).to(torch.bfloat16))


def random_numbers_in_the_order_of_memory(x):
    return aten.bernoulli.p((x[0] * torch.ones(5, 7)).t(), 0.5).sum(0)


def random_numbers_into_a_part(x):
    return aten.normal_functional((x[0] * torch.ones(8, 7))[:, :4]).sum(0)


def noise_of_another_layout(x):
    noise, base = (x * 0.5).view(2, 3)[:, :2], (x - 2).view(2, 3)[:, :2].clone()
    result, noise = aten.rrelu_with_noise_functional(base, noise, 0.1, 0.3, True)
    return result * 2, noise.sum(0)


def several_results_of_other_layouts(x):
    value = (x * 1).view(3, 2)[:, 0]
    rest = [
        [torch.ones(3)],
        [torch.zeros(3)],
        [torch.zeros(3)],
        [torch.zeros(3)],
        [torch.tensor(1.0)],
    ]
    numbers = {"lr": 0.1, "beta1": 0.9, "beta2": 0.99, "weight_decay": 0.0, "eps": 1e-8}
    results = aten._fused_adam([value], *rest, **numbers, amsgrad=True, maximize=False)
    return [each[0].sum() for each in results]


def a_result_without_tensors(x):
    value, rest = (
        x * 1,
        [[torch.ones(6)], [torch.zeros(6)], [torch.zeros(6)], [], [torch.tensor(1.0)]],
    )
    numbers = {"lr": 0.1, "beta1": 0.9, "beta2": 0.99, "weight_decay": 0.0, "eps": 1e-8}
    results = aten._fused_adam([value], *rest, **numbers, amsgrad=False, maximize=False)
    return [each[0] for each in results[:4]]


def no_elements_as_another_dtype(x):
    result = x.long()[:0].as_strided((0, 0), (1, 2)) + 0
    return ((result + 0).view(torch.float32),)


def no_elements_as_another_dtype_later(x):
    result = x.long()[:0].as_strided((0, 0), (1, 2)) + 0
    return ((result + 0 + 0).view(torch.float32),)


def no_elements_as_complex(x):
    result = x[:0].as_strided((0, 2), (1, 3)) + 0
    return (torch.view_as_complex(result + 0),)


def size_one_as_another_dtype(x):
    # In eager the functional form is a clone with a stride of 2; fakes say 1.
    drawn = aten.log_normal.default(x[:1:2].as_strided((1,), (2,)))
    return (((drawn + 1) * 2).view(torch.int16), drawn)


def in_a_gap_without_a_view(x):
    gap = torch.empty_strided((2, 1, 2), (3, 1, 1)).copy_(x[:4].view(2, 1, 2))
    return ((gap + 1).view(-1) * 2,)


def no_elements(x):
    return ((x[:0].as_strided((0, 0), (1, 2)) + 0) + 0,)


@pytest.mark.parametrize("target", ["reference", "reference-copy", "reference-planned"])
@pytest.mark.parametrize(
    "program",
    [
        larger_elements,
        larger_elements_of_a_copy,
        complex_elements,
        a_cast_back_to_complex,
        a_wider_scalar_comes_first,
        random_numbers_in_the_order_of_memory,
        random_numbers_into_a_part,
        noise_of_another_layout,
        several_results_of_other_layouts,
        a_result_without_tensors,
        no_elements_as_another_dtype,
        no_elements_as_another_dtype_later,
        no_elements_as_complex,
        no_elements,
        size_one_as_another_dtype,
        in_a_gap_without_a_view,
    ],
)
def test_it_does_what_eager_does(program, target):
    trial = run_trial(Case.of_function(program, (torch.linspace(1, 7, 6),)), TARGETS[target])
    assert trial.eager.error is None
    assert trial.judgement.documented == []
    assert trial.judgement.violations == []


def graph_of(build, *inputs):
    graph = fx.Graph()
    placeholders = [graph.placeholder(f"x{index}") for index in range(len(inputs))]
    graph.output(build(graph.call_function, *placeholders))
    return fx.GraphModule(torch.nn.Module(), graph)


def test_a_tensor_without_elements_is_written_where_no_stride_counts():
    assert "add_.Tensor" in pipeline(no_elements, torch.ones(6)).code
    assert "add_.Tensor" not in pipeline(no_elements_as_another_dtype, torch.ones(6)).code


def test_strides_of_size_one_are_known_where_operands_are_contiguous():
    def program(x):
        return ((x + 1) * 2).view(torch.int16)

    assert "mul_.Tensor" in pipeline(program, torch.ones(1)).code
    assert "mul_.Tensor" not in pipeline(program, torch.ones(1).as_strided((1,), (2,))).code
    assert "mul_.Tensor" in pipeline(lambda x: (x + 1) * 2, torch.ones(1)[:1:2]).code


def test_a_result_does_not_become_a_conjugate_view():
    def build(call, x):
        conjugate = call(aten._conj.default, (call(aten.mul.Tensor, (x, 2)),))
        return call(aten.view_as_real.default, (call(aten.add.Tensor, (conjugate, 1)),))

    given = torch.tensor([1 + 2j, 3 - 1j])
    module = graph_of(build, given)
    assert torch.equal(pipeline(module, given)(given), module(given))


def test_what_a_scatter_copies_around_its_base_is_read():
    def build(call, x, part):
        base = call(aten.mul.Tensor, (x, 2))
        front, back = (call(aten.slice.Tensor, (base, 0, start, start + 4)) for start in (0, 4))
        used = call(aten.sum.default, (call(aten.add.Tensor, (back, 1)),))
        copied = call(aten.slice_scatter.default, (front, part, 0, 0, 2))
        return used, call(
            aten.mul.Tensor, (call(aten.as_strided.default, (copied, [8], [1], 0)), 3)
        )

    given = torch.arange(8.0), torch.full((2,), 9.0)
    module = graph_of(build, *given)
    expected = module(*given)
    for one, other in zip(reinplace(module, *given)(*given), expected, strict=True):
        assert torch.equal(one, other)


def test_an_op_on_a_list_costs_in_proportion_to_the_length_of_the_list():
    def calls(count):
        def build(call, *inputs):
            values = list(inputs)
            for scalar in (2, 3):
                products = call(aten._foreach_mul.Scalar, (values, scalar))
                values = [call(operator.getitem, (products, index)) for index in range(count)]
            return tuple(values)

        inputs = [torch.ones(2) for _ in range(count)]
        module, counted = graph_of(build, *inputs), [0]

        def count_calls(frame, event, argument):
            counted[0] += event in ("call", "c_call")

        sys.setprofile(count_calls)
        try:
            reinplace(module, *inputs)
        finally:
            sys.setprofile(None)
        return counted[0]

    calls(10)  # fills caches
    assert calls(200) < 2.3 * calls(100)
