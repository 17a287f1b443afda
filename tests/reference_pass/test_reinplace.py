"""Reinplacing step by step: the conditions and rewrites, each with torch's example of it.

The steps (1) to (5) are in the docstring of `torch.fx.passes.reinplace.reinplace`. The fixture
compares each program with eager, and its metadata must be true (step 4).
"""

import sys
from typing import NamedTuple, TypeAlias

import pytest
import torch
from torch import Tensor, fx
from torch.fx.experimental.proxy_tensor import make_fx

from aliasproof.reference_pass import pipeline, reinplace
from aliasproof.reference_pass.calls.operator_forms import in_place_form
from aliasproof.reference_pass.calls.storages import storage_of
from aliasproof.reference_pass.candidates import How
from tests.reference_pass.scene import assert_right, names, programs_of

aten = torch.ops.aten
VECTOR, SQUARE = torch.arange(1.0, 9), torch.arange(1.0, 17).view(4, 4)
Decision: TypeAlias = How | str | tuple[How, str] | None


class Example(NamedTuple):
    """How each node is put in place, or which condition refuses it, and the remaining calls.

    A program is `functional` if only `reinplace` may change it.
    """

    inputs: tuple[Tensor, ...]
    decisions: dict[str, Decision]
    calls: str | None
    functional: bool


def example(
    *inputs: Tensor, calls: str | None = None, functional: bool = False, **decisions: Decision
) -> Example:
    return Example(inputs, decisions, calls, functional)


EXAMPLES = programs_of(
    """
# --- (1a) what the operand is like ----------------------------------------------------------------

an_operand_of_another_size_is_not_written(): add=(OUT, "same_size_and_dtype")
    a = torch.ones(1)
    b = torch.ones(10)
    return torch.add(a, b)

an_operand_of_another_dtype_is_not_written(b): VECTOR, ge="same_size_and_dtype"
    a = torch.ones(8)
    return torch.ge(a, b)

an_operand_of_other_strides_is_not_written_if_the_result_is_returned(x): SQUARE, mul="same_stride"
    return (x + 1)[:, ::2].mul(2)

an_operand_of_other_strides_is_written_if_nothing_can_tell(x): SQUARE, mul=IN_PLACE
    return (x + 1)[:, ::2].mul(2).amax()

an_operand_that_overlaps_itself_is_not_written(): add="no_self_overlap"
    return torch.ones(1).expand(4, 4).add(1).amax()

a_comparison_followed_by_a_cast_back_is_in_place_with_it(b): VECTOR, ge=CAST_BACK, \
    calls="ones.default ge_.Tensor"
    a = torch.ones(8)
    a_1 = a.ge(b)
    return aten._to_copy(a_1, dtype=a.dtype, layout=torch.strided)  # as torch emits it

what_functionalization_emits_for_ge__is_ge__again(b): VECTOR, ge=CAST_BACK, \
    calls="ones.default ge_.Tensor"
    return torch.ones(8).ge_(b)

a_cast_to_another_dtype_does_not_help(b): VECTOR, ge="same_size_and_dtype"
    return torch.ones(8).ge(b).to(torch.float64)

# --- (1b) inputs ----------------------------------------------------------------------------------

an_input_is_not_written(x): VECTOR, add="not_an_input"
    return x.add(1)

a_view_of_an_input_is_not_written(x): SQUARE, add="not_an_input"
    return x.view(16)[4:].add(1).sum()

an_input_is_written_if_a_later_copy__overwrites_it(x): VECTOR, mul=IN_PLACE, add=IN_PLACE, \
    calls="mul_.Tensor add_.Tensor"
    return x.mul_(2).add_(1)

an_input_is_written_with_contents_that_a_later_copy__overwrites(x, y): VECTOR, VECTOR.flip(0), \
    functional=True, calls="mul_.Tensor sum.default copy_.default"
    total = x.mul(2).sum()
    x.copy_(y)
    return total

an_input_is_not_written_if_a_later_copy__overwrites_a_part_of_it(x, front, y): VECTOR, \
    VECTOR[:4], torch.ones(4), functional=True, mul="not_an_input"
    total = x.mul(2).sum()
    front.copy_(y)
    return total

a_result_that_is_read_after_the_copy__is_not_written_into_the_input(x, y): VECTOR, \
    VECTOR.flip(0), functional=True, mul="dead_before_epilogue"
    twice = x.mul(2)
    x.copy_(y)
    return twice.sum()

# --- (1c) operands that overlap -------------------------------------------------------------------

an_operand_that_overlaps_the_written_one_forbids_it(x): VECTOR, sub="no_overlapping_operand"
    a = x + 1
    return a[1:3].sub(a[:2]).sum()

an_operand_beside_the_written_one_does_not(x): VECTOR, sub=IN_PLACE
    a = x + 1
    return a[2:4].sub(a[:2]).sum()

an_overlapping_operand_in_a_nested_list_forbids_it(x, values): torch.tensor([3, 2, 1, 0]), \
    torch.tensor([5, 6, 7]), functional=True, index_put="no_overlapping_operand"
    a = x + 0
    return aten.index_put(a, [a[1:]], values).sum()

# --- (2) later uses -------------------------------------------------------------------------------

an_operand_that_is_not_used_later_is_written(x): VECTOR, mul=IN_PLACE
    return x.add(1).mul(2)

an_operand_that_is_used_later_is_not_written(x): VECTOR, mul="no_later_use"
    a = x.add(1)
    return a.mul(2), a.sum()

an_operand_that_is_returned_is_not_written(x): VECTOR, mul="no_later_use"
    a = x.add(1)
    return a, a.mul(2)

an_operand_with_a_view_that_is_used_later_is_not_written(x): VECTOR, mul="no_later_use"
    a = x.add(1)
    view = a.view(2, 4)
    return a.mul(2), view.sum()

a_view_of_other_bytes_that_is_used_later_does_not_matter(x): VECTOR, mul=IN_PLACE
    a = x.add(1)
    return a[:4].mul(2).sum(), a[4:].sum()

an_operand_with_a_view_that_is_made_later_is_written(x): VECTOR, mul=IN_PLACE, \
    calls="add.Tensor mul_.Tensor view.default zeros_like.default"
    # (2a)
    a = x.add(1)
    b = a.mul(2)
    return b, torch.zeros_like(a.view(2, 4))

a_repeated_argument_is_not_written(x): SQUARE, addmm="not_repeated"
    # (2b)
    a = x + 1
    return torch.addmm(a, a, a)

a_repeated_argument_of_a_pointwise_op_is_written(x): VECTOR, mul=IN_PLACE
    a = x + 1
    return a.mul_(a)

a_view_is_written_if_the_only_later_use_is_a_scatter_over_it_that_is_erased(x): SQUARE, \
    fill=IN_PLACE, calls="add.Tensor diagonal.default fill_.Scalar"
    # (2c)
    a = aten.add(x, x)
    b = aten.diagonal(a)
    aten.fill_(b, 0)
    return a

a_view_is_not_written_if_the_scatter_has_other_arguments(x): SQUARE, functional=True, \
    fill="no_later_use", diagonal_scatter=SCATTER
    a = aten.add(x, x)
    b_updated = aten.fill(aten.diagonal(a, 0), 0)[:3]
    return aten.diagonal_scatter(a, b_updated, 1)

a_scatter_of_another_part_of_its_base_stays(x): VECTOR, functional=True, slice_scatter=SCATTER
    a = aten.neg(x)
    return aten.slice_scatter(a, a[4:6], 0, 0, 2)

a_scatter_into_another_base_stays(x): SQUARE, functional=True, fill=IN_PLACE, \
    diagonal_scatter=SCATTER
    a, other = aten.add(x, x), aten.mul(x, 3)
    b_updated = aten.fill(aten.diagonal(a), 0)
    return aten.diagonal_scatter(other, b_updated)

a_scatter_reads_its_base_where_the_base_was_written(x, part): VECTOR, torch.ones(1), \
    neg_1=IN_PLACE, neg_2="no_later_use", neg_3=IN_PLACE
    y = -x
    shifted = -y[1:]  # into y: its elements 0 and 1 are elements 1 and 2 of y
    first = -shifted[:1]  # not over what the scatter reads
    second = -shifted[1:2]  # but over what it does not
    stored = torch.slice_scatter(shifted, part, 0, 1, 2)  # a copy of the storage of y
    most = (torch.ones(64) + x.sum()).sum()  # the peak, so that the rest does not raise it
    return stored.sum(), first.sum(), second.sum(), most

# --- (3) doing it ---------------------------------------------------------------------------------

a_scatter_becomes_a_view_and_a_copy_(b): torch.ones(2), select_scatter=SCATTER, \
    calls="zeros.default select.int copy_.default"
    a = torch.zeros(2, 2)
    return torch.select_scatter(a, b, 0, 0)

an_assignment_to_a_part_stores_into_it(b): torch.ones(2), copy=IN_PLACE, \
    calls="zeros.default select.int copy_.default"
    a = torch.zeros(2, 2)
    a[0] = b
    return a

an_op_becomes_its_in_place_form(x): VECTOR, calls="neg.default clamp_.default flip.default"
    return x.neg().clamp(-3, 3).flip(0)

# --- (5) scatters that are dropped ----------------------------------------------------------------

all_scatters_up_a_chain_of_views_are_erased(x): SQUARE, select_scatter=REDUNDANT, \
    calls="neg.default slice.Tensor select.int slice.Tensor zero_.default"
    a = x.neg()
    a[1:].select(0, 1)[::2].zero_()
    return a

a_copy__of_a_value_that_is_in_the_input_already_is_erased(x): SQUARE, calls="select.int mul_.Tensor"
    x[0].mul_(2)

# --- future work of the docstring, and what goes with it ------------------------------------------

an_op_that_commutes_keeps_the_order_of_its_operands(x, y): torch.full((8,), torch.nan), \
    -torch.full((8,), torch.nan), add=(OUT, "not_an_input")
    return torch.add(x, y.mul(1)).signbit()  # the sign of a NaN is that of the first one

an_op_is_written_into_its_other_operand(x): VECTOR, sub=OUT, calls="neg.default sub.out"
    return x.sub(x.neg())

a_scaled_sum_does_not_commute(x): VECTOR, add=OUT
    return x.add(x.neg(), alpha=2)

an_op_that_is_not_pointwise_is_not_written_into_its_other_operand(x): SQUARE, \
    calls="neg.default mm.default"
    return x.mm(x.neg())

# --- what the docstring does not name, but FX passes must keep ------------------------------------

a_result_that_is_returned_does_not_come_to_share_memory_with_another_output(x): VECTOR, \
    mul="no_new_alias"
    a = x.neg()
    return a[:4].mul(2), a[4:]

a_result_whose_users_depend_on_its_offset_keeps_its_offset(x): VECTOR, mul="same_location"
    a = x.neg()[2:]
    return a.mul(2).as_strided((2,), (1,), 0).sum()

a_small_result_that_is_returned_does_not_keep_a_large_storage_alive(x): torch.ones(100, 3), \
    mul="larger_output_storage"
    return (x + 1)[:1] * 2

a_result_that_is_returned_may_be_in_a_storage_as_large_as_in_eager(x): torch.ones(100, 3), \
    mul=IN_PLACE
    return (x + 1)[:] * 2

a_small_result_that_is_not_returned_may_be_in_a_large_storage(x): torch.ones(100, 3), mul=IN_PLACE
    return ((x + 1)[:1] * 2).sum()

# --- what the epilogue copies to an input ---------------------------------------------------------

a_result_without_an_in_place_form_is_copied_to_its_input_at_once(x, y): VECTOR, VECTOR + 1, \
    functional=True, flip=COPIED, calls="flip.default copy_.default add.Tensor sqrt_.default"
    new = y.flip(0)
    result = (new + 1).sqrt()
    x.copy_(new)
    return result

a_pointwise_result_is_written_into_the_input_that_it_is_copied_to(x, y): VECTOR, VECTOR + 1, \
    functional=True, calls="sin.out add.Tensor"
    new = y.sin()
    result = new + 1
    x.copy_(new)
    return result

a_result_is_not_copied_to_an_input_whose_old_data_is_read_later(x, y): VECTOR, VECTOR + 1, \
    functional=True, flip="no_later_use"
    new = y.flip(0)
    old = x * 3
    x.copy_(new)
    return old

a_result_that_is_returned_too_is_not_in_the_input(x, y): VECTOR, VECTOR + 1, functional=True, \
    flip="no_new_alias", calls="flip.default copy_.default"
    new = y.flip(0)
    x.copy_(new)
    return new
""",
    globals() | dict(How.__members__),
    example,
)


@pytest.mark.parametrize(("program", "example"), EXAMPLES, ids=names(EXAMPLES))
def test_a_step(program, example, reinplaced, reinplaced_as_written):
    run = reinplaced_as_written if example.functional else reinplaced
    done = run(program, *example.inputs)
    for node, expected in example.decisions.items():
        how, condition = expected if isinstance(expected, tuple) else (expected, None)
        if isinstance(how, str):
            how, condition = None, how
        assert done.how[node] is how
        if condition is not None:
            assert condition in (done.refused(node), done.refused(node, How.COPIED))
    if example.calls is not None:
        assert done.calls == example.calls.split()


def test_1c_an_overlapping_operand_in_kwargs_forbids_it(reinplaced_as_written):
    def program(x):
        a = aten.neg.default(x)
        second, first = (aten.slice.Tensor(a, 0, start, start + 2) for start in (1, 0))
        return aten.sum.default(aten.sub.Tensor(second, other=first))

    done = reinplaced_as_written(fx.symbolic_trace(program), VECTOR)
    assert done.how["sub_tensor"] is None
    assert done.refused("sub_tensor") == "no_overlapping_operand"


@pytest.mark.parametrize(
    ("functional", "in_place"),
    [
        (aten.add.Tensor, aten.add_.Tensor),
        (aten.add.Scalar, aten.add_.Scalar),
        (aten.fill.Scalar, aten.fill_.Scalar),
        (aten.clamp.default, aten.clamp_.default),
        (aten.index_put.default, aten.index_put_.default),
        (aten.normal_functional.default, aten.normal_.default),
        (aten._foreach_add.Scalar, aten._foreach_add_.Scalar),
        (aten.flip.default, None),
    ],
    ids=str,
)
def test_3b_the_in_place_form_is_found_by_schema(functional, in_place):
    assert in_place_form(functional) is in_place


def test_4_users_of_the_result_use_the_operand(reinplaced):
    done = reinplaced(lambda x: x.neg()[1::2].mul(2)[1:].amax(), VECTOR)
    *_, view = done.graph_module.graph.find_nodes(op="call_function", target=aten.slice.Tensor)
    assert view.args[0].target is aten.slice.Tensor


def test_4_the_aliases_of_operand_and_result_are_one_set(reinplaced):
    def program(x):
        a = x.neg()
        c = a.mul(2).view(2, 4)
        d = c.add(1)
        return c.sum(), d.sum()

    done = reinplaced(program, VECTOR)
    assert done.how["mul"] is How.IN_PLACE
    assert done.refused("add") == "no_later_use"
    a, c, d = (storage_of(done.node(name).meta["val"]) for name in ("neg", "view", "add"))
    assert a == c != d


def test_4_users_of_a_scatter_use_its_base(reinplaced_as_written):
    def program(x, source):
        b = aten.slice_scatter(x.neg(), source, 0, 2, 4)
        return b.view(2, 4).sum(), b.add(1)

    done = reinplaced_as_written(program, VECTOR, torch.ones(2))
    assert done.how == {"neg": None, "slice_scatter": How.SCATTER, "add": How.IN_PLACE}
    assert done.node("view").args[0] is done.node("add").args[0] is done.node("neg")


def test_4_users_of_results_that_an_op_does_not_hand_back_use_the_operands(reinplaced):
    def program(x):
        a, b = torch._foreach_add([x.neg(), x.abs()], 1)
        return a.view(2, 4), b

    done = reinplaced(program, VECTOR)
    assert done.how["_foreach_add"] is How.IN_PLACE
    assert done.calls == ["neg.default", "abs.default", "_foreach_add_.Scalar", "view.default"]
    assert done.node("view").args[0] is done.node("neg")


def test_4_a_cast_back_gives_its_users_the_dtype_of_the_operand(reinplaced):
    done = reinplaced(lambda x: x.neg().ge_(-4)[2:].sum(), VECTOR)
    (view,) = [node for node in done.graph_module.graph.nodes if node.target is aten.slice.Tensor]
    assert (view.meta["val"].dtype, view.args[0].target) == (torch.float32, aten.neg.default)


def test_a_product_of_complex_numbers_does_not_commute(reinplaced):
    # 33 elements: the vector loop does not compute the last one.
    x, y = torch.randn(2, 33, dtype=torch.complex64, generator=torch.Generator().manual_seed(0))
    product = reinplaced(lambda x, y: x * y.conj().resolve_conj(), x, y)
    assert "mul.Tensor" in product.calls


def test_results_of_one_call_are_copied_to_their_inputs_at_once(reinplaced_as_written):
    def program(x, y, z):
        first, second = torch.var_mean(z, 0)
        result = first + second
        x.copy_(first)
        y.copy_(second)
        return result

    done = reinplaced_as_written(program, VECTOR[0].clone(), VECTOR[1].clone(), VECTOR)
    assert list(done.how.values())[:2] == [How.COPIED, How.COPIED]
    assert done.calls[-1] == "add.Tensor"
    assert done.calls.count("copy_.default") == 2


# --- bits -----------------------------------------------------------------------------------------
#
# Oracles tolerate a difference in the last bit, but two eager runs do not differ in one.

TENTHS = torch.arange(1, 21) / 10


def scaled(x):
    return aten.mul.Scalar(x + 0, 1.1283791670955126)


def scaled_in_place(x):
    return aten.mul_.Scalar(x + 0, 1.1283791670955126)


def quotient(x):
    return (x + 0) / (x - 3)


def quotient_in_place(x):
    return (x + 0).div_(x - 3)


@pytest.mark.parametrize(
    ("program", "x", "call"),
    [
        (scaled, TENTHS.to(torch.bfloat16), "mul_.Tensor"),  # `mul_.Scalar` rounds its scalar
        (scaled_in_place, TENTHS.to(torch.bfloat16), "mul_.Scalar"),
        (scaled, TENTHS, "mul_.Scalar"),
        (quotient, torch.complex(TENTHS, TENTHS.flip(0)), "div.Tensor"),
        (quotient_in_place, torch.complex(TENTHS, TENTHS.flip(0)), "div_.Tensor"),
    ],
)
def test_a_result_has_the_bits_of_eager(reinplaced, program, x, call):
    done = reinplaced(program, x)
    assert call in done.calls
    assert torch.equal(done.graph_module(x), program(x))


def sum_of_the_chosen(x):
    x = x[:5, :5, :5].transpose(0, 1)
    chosen = (x > -0.5)[0].t().expand(5, 5, 5)
    return torch.where(chosen, x * x, 0.1).sum([0, 1, 2])


@pytest.mark.parametrize(
    "program",
    [
        sum_of_the_chosen,
        lambda x: x.neg()[:, ::2].mul(2).sum(),
        lambda x: x.neg().flatten()[1::2].mul(2).sigmoid(),  # vector loops round otherwise
    ],
)
def test_an_op_that_rounds_by_strides_has_operands_of_eagers_strides(reinplaced, program):
    x = torch.randn(20, 40, 10, generator=torch.Generator().manual_seed(0))
    done = reinplaced(program, x)
    assert torch.equal(done.graph_module(x), program(x))


# --- programs that were once compiled wrongly by reinplacing --------------------------------------


CARELESS = programs_of(
    """
larger_elements(x): torch.linspace(1, 7, 6)
    result = (x * 2)[1:5] + 1
    return result.view(torch.float64) + 0

larger_elements_of_a_copy(x): torch.linspace(1, 7, 6)
    return x[1:5].clone().view(torch.float64) + 1

complex_elements(x): torch.linspace(1, 7, 6)
    result = (x * 2)[1:5] + 1
    return torch.view_as_complex(result.view(2, 2)) + 0

a_cast_back_to_complex(x): torch.linspace(1, 7, 6)
    return (x.to(torch.complex64) * 2).abs().to(torch.complex64)

a_wider_scalar_comes_first(x): torch.linspace(1, 7, 6)
    return torch.mul(x[0] * 0.33, (x * 3).to(torch.bfloat16))

random_numbers_in_the_order_of_memory(x): torch.linspace(1, 7, 6)
    return aten.bernoulli.p((x[0] * torch.ones(5, 7)).t(), 0.5).sum(0)

random_numbers_into_a_part(x): torch.linspace(1, 7, 6)
    return aten.normal_functional((x[0] * torch.ones(8, 7))[:, :4]).sum(0)

noise_of_another_layout(x): torch.linspace(1, 7, 6)
    noise, base = (x * 0.5).view(2, 3)[:, :2], (x - 2).view(2, 3)[:, :2].clone()
    result, noise = aten.rrelu_with_noise_functional(base, noise, 0.1, 0.3, True)
    return result * 2, noise.sum(0)

several_results_of_other_layouts(x): torch.linspace(1, 7, 6)
    value = (x * 1).view(3, 2)[:, 0]
    zeros = torch.zeros(3), torch.zeros(3), torch.zeros(3)
    rest = [[torch.ones(3)], *([each] for each in zeros), [torch.tensor(1.0)]]
    numbers = {"lr": 0.1, "beta1": 0.9, "beta2": 0.99, "weight_decay": 0.0, "eps": 1e-8}
    results = aten._fused_adam([value], *rest, **numbers, amsgrad=True, maximize=False)
    return [each[0].sum() for each in results]

a_result_without_tensors(x): torch.linspace(1, 7, 6)
    value = x * 1
    rest = [[torch.ones(6)], [torch.zeros(6)], [torch.zeros(6)], [], [torch.tensor(1.0)]]
    numbers = {"lr": 0.1, "beta1": 0.9, "beta2": 0.99, "weight_decay": 0.0, "eps": 1e-8}
    results = aten._fused_adam([value], *rest, **numbers, amsgrad=False, maximize=False)
    return [each[0] for each in results[:4]]

no_elements_as_another_dtype(x): torch.linspace(1, 7, 6)
    result = x.long()[:0].as_strided((0, 0), (1, 2)) + 0
    return ((result + 0).view(torch.float32),)

no_elements_as_another_dtype_later(x): torch.linspace(1, 7, 6)
    result = x.long()[:0].as_strided((0, 0), (1, 2)) + 0
    return ((result + 0 + 0).view(torch.float32),)

no_elements_as_complex(x): torch.linspace(1, 7, 6)
    result = x[:0].as_strided((0, 2), (1, 3)) + 0
    return (torch.view_as_complex(result + 0),)

size_one_as_another_dtype(x): torch.linspace(1, 7, 6)
    # In eager the functional form is a clone with a stride of 2; fakes say 1.
    drawn = aten.log_normal.default(x[:1:2].as_strided((1,), (2,)))
    return (((drawn + 1) * 2).view(torch.int16), drawn)

in_a_gap_without_a_view(x): torch.linspace(1, 7, 6)
    gap = torch.empty_strided((2, 1, 2), (3, 1, 1)).copy_(x[:4].view(2, 1, 2))
    return ((gap + 1).view(-1) * 2,)

no_elements(x): torch.linspace(1, 7, 6)
    return ((x[:0].as_strided((0, 0), (1, 2)) + 0) + 0,)
""",
    globals(),
    lambda *inputs: inputs,
)


@pytest.mark.parametrize("target", ["reference", "reference-copy", "reference-planned"])
@pytest.mark.parametrize(("program", "inputs"), CARELESS, ids=names(CARELESS))
def test_it_does_what_eager_does(program, inputs, target):
    assert_right(program, inputs, target)


def test_a_tensor_without_elements_is_written_where_no_stride_counts():
    programs = {program.__name__: program for program, _ in CARELESS}
    assert "add_.Tensor" in pipeline(programs["no_elements"], torch.ones(6)).code
    other = pipeline(programs["no_elements_as_another_dtype"], torch.ones(6))
    assert "add_.Tensor" not in other.code


def test_strides_of_size_one_are_known_where_operands_are_contiguous():
    def program(x):
        return ((x + 1) * 2).view(torch.int16)

    assert "mul_.Tensor" in pipeline(program, torch.ones(1)).code
    assert "mul_.Tensor" not in pipeline(program, torch.ones(1).as_strided((1,), (2,))).code
    assert "mul_.Tensor" in pipeline(lambda x: (x + 1) * 2, torch.ones(1)[:1:2]).code


def test_an_op_on_a_list_costs_in_proportion_to_the_length_of_the_list():
    def program(*values):
        return torch._foreach_mul(torch._foreach_mul(values, 2), 3)

    def calls(count):
        inputs = [torch.ones(2) for _ in range(count)]
        module, counted = make_fx(program)(*inputs), [0]

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
