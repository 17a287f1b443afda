"""Reinplacing step by step: what is rewritten, each step with the example that torch gives for it.

The steps (3) to (5) are those of the docstring of `torch.fx.passes.reinplace.reinplace`. Each
program is compared with eager by the fixture, and its metadata must be true (step 4).
"""

from __future__ import annotations

import pytest
import torch

from aliasproof.reference_pass.calls.operator_forms import in_place_form
from aliasproof.reference_pass.calls.storages import storage_of
from aliasproof.reference_pass.candidates import How

aten = torch.ops.aten


# --- (3) doing it ---------------------------------------------------------------------------------


def test_3a_a_scatter_becomes_a_view_and_a_copy_(reinplaced):
    def program(b):
        a = torch.zeros(2, 2)
        return torch.select_scatter(a, b, 0, 0)

    done = reinplaced(program, torch.ones(2))
    assert done.how == {"select_scatter": How.SCATTER}
    assert done.calls == ["zeros.default", "select.int", "copy_.default"]


def test_3a_an_assignment_to_a_part_stores_into_it(reinplaced):
    def program(b):
        a = torch.zeros(2, 2)
        a[0] = b
        return a

    done = reinplaced(program, torch.ones(2))
    assert (done.how["copy"], done.how["select_scatter"]) == (How.IN_PLACE, How.REDUNDANT)
    assert done.calls == ["zeros.default", "select.int", "copy_.default"]


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


def test_3b_an_op_becomes_its_in_place_form(reinplaced, vector):
    done = reinplaced(lambda x: x.neg().clamp(-3, 3).flip(0), vector)
    assert done.how == {"neg": None, "clamp": How.IN_PLACE}
    assert done.calls == ["neg.default", "clamp_.default", "flip.default"]


# --- (4) later nodes use the operand --------------------------------------------------------------


def test_4_users_of_the_result_use_the_operand_and_have_its_metadata(reinplaced, vector):
    def program(x):
        a = x.neg()[1::2]
        b = a.mul(2)
        return b[1:].amax()

    done = reinplaced(program, vector)
    view = next(
        node for node in reversed(done.graph_module.graph.nodes) if node.target is aten.slice.Tensor
    )
    value = view.meta["val"]
    assert view.args[0].target is aten.slice.Tensor
    assert (tuple(value.shape), value.stride(), value.storage_offset(), value.dtype) == (
        (3,),
        (2,),
        3,
        torch.float32,
    )


def test_4_the_aliases_of_operand_and_result_are_one_set(reinplaced, vector):
    def program(x):
        a = x.neg()
        c = a.mul(2).view(2, 4)
        d = c.add(1)
        return c.sum(), d.sum()

    done = reinplaced(program, vector)
    assert done.how["mul"] is How.IN_PLACE
    assert done.refused("add") == "no_later_use"
    a, c, d = (storage_of(done.node(name).meta["val"]) for name in ("neg", "view", "add"))
    assert a == c != d


def test_4_users_of_a_scatter_use_its_base(reinplaced_as_written, vector):
    def program(x, source):
        b = aten.slice_scatter(x.neg(), source, 0, 2, 4)
        return b.view(2, 4).sum(), b.add(1)

    done = reinplaced_as_written(program, vector, torch.ones(2))
    assert done.how == {"neg": None, "slice_scatter": How.SCATTER, "add": How.IN_PLACE}
    assert done.node("view").args[0] is done.node("add").args[0] is done.node("neg")


def test_4_users_of_results_that_an_op_does_not_hand_back_use_the_operands(reinplaced, vector):
    def program(x):
        a, b = torch._foreach_add([x.neg(), x.abs()], 1)
        return a.view(2, 4), b

    done = reinplaced(program, vector)
    assert done.how["_foreach_add"] is How.IN_PLACE
    assert done.calls == ["neg.default", "abs.default", "_foreach_add_.Scalar", "view.default"]
    assert done.node("view").args[0] is done.node("neg")


def test_4_a_cast_back_gives_its_users_the_dtype_of_the_operand(reinplaced, vector):
    done = reinplaced(lambda x: x.neg().ge_(-4)[2:].sum(), vector)
    (view,) = [node for node in done.graph_module.graph.nodes if node.target is aten.slice.Tensor]
    assert (view.meta["val"].dtype, view.args[0].target) == (torch.float32, aten.neg.default)


# --- (5) scatters that are dropped ----------------------------------------------------------------


def test_5_all_scatters_up_a_chain_of_views_are_erased(reinplaced, square):
    def program(x):
        a = x.neg()
        a[1:].select(0, 1)[::2].zero_()
        return a

    done = reinplaced(program, square)
    assert not any("scatter" in call for call in done.calls)
    assert list(done.how.values()).count(How.REDUNDANT) == 3


def test_5_a_copy__of_a_value_that_is_in_the_input_already_is_erased(reinplaced, square):
    def program(x):
        x[0].mul_(2)

    done = reinplaced(program, square)
    assert done.calls == ["select.int", "mul_.Tensor"]


# --- future work of the docstring, and what goes with it ------------------------------------------


def test_an_op_that_commutes_keeps_the_order_of_its_operands(reinplaced):
    # The sign of a NaN is that of the first one.
    nan = torch.full((8,), torch.nan)
    done = reinplaced(lambda x, y: torch.add(x, y.mul(1)).signbit(), nan, -nan)
    assert done.how["add"] is How.OUT
    assert done.refused("add") == "not_an_input"


def test_an_op_is_written_into_its_other_operand(reinplaced, vector):
    done = reinplaced(lambda x: x.sub(x.neg()), vector)
    assert done.how["sub"] is How.OUT
    assert done.calls == ["neg.default", "sub.out"]


def test_a_product_of_complex_numbers_does_not_commute(reinplaced):
    # 33 elements: the last one is not computed by the vector loop.
    x, y = torch.randn(2, 33, dtype=torch.complex64, generator=torch.Generator().manual_seed(0))
    product = reinplaced(lambda x, y: x * y.conj().resolve_conj(), x, y)
    assert "mul.Tensor" in product.calls


# --- bits -----------------------------------------------------------------------------------------
#
# Oracles tolerate a difference in the last bit. Eager does not give one to who asks twice.

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


def test_a_scaled_sum_does_not_commute(reinplaced, vector):
    assert reinplaced(lambda x: x.add(x.neg(), alpha=2), vector).how["add"] is How.OUT


def test_an_op_that_is_not_pointwise_is_not_written_into_its_other_operand(reinplaced, square):
    assert "mm" not in reinplaced(lambda x: x.mm(x.neg()), square).how


# --- what the docstring does not name, but FX passes must keep ------------------------------------


def test_a_result_that_is_returned_does_not_come_to_share_memory_with_another_output(
    reinplaced, vector
):
    def program(x):
        a = x.neg()
        return a[:4].mul(2), a[4:]

    done = reinplaced(program, vector)
    assert done.how["mul"] is None
    assert done.refused("mul") == "no_new_alias"


def test_a_result_whose_users_depend_on_its_offset_keeps_its_offset(reinplaced, vector):
    def program(x):
        a = x.neg()[2:]
        return a.mul(2).as_strided((2,), (1,), 0).sum()

    done = reinplaced(program, vector)
    assert done.how["mul"] is None
    assert done.refused("mul") == "same_location"


def test_a_small_result_that_is_returned_does_not_keep_a_large_storage_alive(reinplaced):
    def program(x):
        row = (x + 1)[:1]
        return row * 2

    large = torch.ones(100, 3)
    done = reinplaced(program, large)
    assert done.refused("mul") == "larger_output_storage"
    assert done.graph_module(large).untyped_storage().nbytes() == 3 * 4
    # As large as in eager.
    assert reinplaced(lambda x: (x + 1)[:] * 2, large).how["mul"] is How.IN_PLACE


def test_a_small_result_that_is_not_returned_may_be_in_a_large_storage(reinplaced):
    done = reinplaced(lambda x: ((x + 1)[:1] * 2).sum(), torch.ones(100, 3))
    assert done.how["mul"] is How.IN_PLACE


# --- what the epilogue copies to an input ---------------------------------------------------------


def test_a_result_without_an_in_place_form_is_copied_to_its_input_at_once(
    reinplaced_as_written, vector
):
    def program(x, y):
        new = y.flip(0)
        result = (new + 1).sqrt()
        x.copy_(new)
        return result

    done = reinplaced_as_written(program, vector, vector + 1)
    assert done.how["flip"] is How.COPIED
    assert done.calls == ["flip.default", "copy_.default", "add.Tensor", "sqrt_.default"]


def test_a_pointwise_result_is_written_into_the_input_that_it_is_copied_to(
    reinplaced_as_written, vector
):
    def program(x, y):
        new = y.sin()
        result = new + 1
        x.copy_(new)
        return result

    done = reinplaced_as_written(program, vector, vector + 1)
    assert done.calls == ["sin.out", "add.Tensor"]


def test_results_of_one_call_are_copied_to_their_inputs_at_once(reinplaced_as_written, vector):
    def program(x, y, z):
        first, second = torch.var_mean(z, 0)
        result = first + second
        x.copy_(first)
        y.copy_(second)
        return result

    done = reinplaced_as_written(program, vector[0].clone(), vector[1].clone(), vector)
    assert list(done.how.values())[:2] == [How.COPIED, How.COPIED]
    assert done.calls[-1] == "add.Tensor"
    assert done.calls.count("copy_.default") == 2


def test_a_result_is_not_copied_to_an_input_whose_old_data_is_read_later(
    reinplaced_as_written, vector
):
    def program(x, y):
        new = y.flip(0)
        old = x * 3
        x.copy_(new)
        return old

    done = reinplaced_as_written(program, vector, vector + 1)
    assert done.refused("flip", How.COPIED) == "no_later_use"
    assert done.calls == ["flip.default", "mul.Tensor", "copy_.default"]


def test_a_result_that_is_returned_too_is_not_in_the_input(reinplaced_as_written, vector):
    def program(x, y):
        new = y.flip(0)
        x.copy_(new)
        return new

    done = reinplaced_as_written(program, vector, vector + 1)
    assert done.refused("flip", How.COPIED) == "no_new_alias"
