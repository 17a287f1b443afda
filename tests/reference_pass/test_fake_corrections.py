"""`true_result` gives fakes the layout that results have in eager."""

from typing import Any

import pytest
import torch
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext
from torch.utils._pytree import tree_map, tree_map_only

from aliasproof.reference_pass import pipeline
from aliasproof.reference_pass.eager.fake_corrections import fake_result, true_result

aten = torch.ops.aten
GRID = torch.arange(12.0).view(3, 4)
UNIT = torch.ones(8).as_strided((2, 1, 2, 1, 2), (4, 1, 2, 2, 1))
FIVE = torch.ones(5)
BESIDE = torch.zeros(2, 3, dtype=torch.long).t()  # not contiguous


def fakes_of(mode: FakeTensorMode, value: Any) -> Any:
    return tree_map_only(
        torch.Tensor, lambda each: mode.from_tensor(each, static_shapes=True), value
    )


def corrected(op: OpOverload, *args: Any) -> Any:
    """The corrected result of a second call on fakes, which torch takes from its cache."""
    with FakeTensorMode() as mode:
        given = fakes_of(mode, args)
        op(*given)
        return true_result(op, given, {}, fake_result(op, given, {}))


def layouts(value: Any) -> Any:
    return tree_map(
        lambda each: (tuple(each.shape), each.stride(), each.storage_offset(), each.dtype), value
    )


@pytest.mark.parametrize(
    ("op", "args"),
    [
        # Strides that depend on all operands
        (aten.copysign.Tensor, (GRID.t(), torch.ones(4, 1))),
        (aten.xlogy.Tensor, (GRID.t(), torch.ones(4, 3))),
        (aten.special_xlog1py.default, (GRID.t(), torch.ones(4, 3))),
        (aten.log_sigmoid_forward.default, (GRID.t(),)),
        (aten.floor_divide.default, (GRID.long().t(), torch.ones(3, 4, dtype=torch.long).t())),
        (aten.native_dropout_backward.default, (GRID.t(), (GRID > 3).t(), 1.0)),
        (
            aten.native_batch_norm.default,
            (torch.ones(2, 4, 3, 3).transpose(1, 3), None, None, None, None, True, 0.1, 1e-5),
        ),
        # Dtypes: the means have the dtype of the weights, whatever the strides.
        (
            aten._native_batch_norm_legit_functional.default,
            (torch.ones(2, 2, 3).half(), *[torch.ones(2).half()] * 4, True, 0.1, 1e-5),
        ),
        (aten.pow.Tensor_Scalar, (torch.ones(2, dtype=torch.bool), True)),
        (aten.ldexp.Tensor, (torch.ones(2, dtype=torch.uint8), torch.tensor(1.0).half())),
        # Strides that depend on the strides of indices
        (aten.index.Tensor, (GRID, [BESIDE])),
        (
            aten.index.Tensor,
            (torch.ones(24).as_strided((1, 2, 3, 4), (1, 12, 4, 1)), [None, torch.zeros(5).long()]),
        ),
        (aten.index.Tensor, (torch.ones(1), [BESIDE])),
        (
            aten.index.Tensor,
            (torch.ones(4).as_strided((1, 2, 2), (2, 1, 2)), [None, torch.zeros(2).long()]),
        ),
        (aten.index.Tensor, (torch.ones(1, 1), [None, BESIDE])),
        (aten.index.Tensor, (GRID, [torch.zeros(2, 0, dtype=torch.long).t()])),
        # Strides of dimensions of size one, or of no elements
        (aten.view.default, (torch.ones(2).as_strided((1, 1), (2, 1)), [1, 1])),
        (aten.view.default, (GRID[:1].t(), [4, 1, 1])),
        (aten.view.default, (GRID[:, :1], [1, 3, 1])),
        (aten.view.default, (torch.ones(0, 5)[:, :3], [0, 3])),
        (aten.view_as.default, (torch.ones(2).as_strided((1, 1), (2, 1)), torch.ones(1, 1))),
        (aten._unsafe_view.default, (torch.ones(2, 9)[:, :2].unsqueeze(1), [2, 1, 2])),
        (aten.index_put.default, (UNIT, [torch.tensor([1, 0])], torch.ones(()))),
        (aten._unsafe_index_put.default, (UNIT, [torch.tensor([1, 0])], torch.ones(()))),
        # The location in the storage
        (aten.copy.default, (GRID[1:], torch.ones(2, 4))),
        (aten.slice_scatter.default, (torch._neg_view(GRID[:, ::2]), torch.ones(3, 2))),
        (aten.copy.default, (GRID[3:], torch.ones(0, 4))),
        (aten.copy.default, (torch.ones(0, 3)[:, 1:], torch.ones(0, 2))),
        (aten.slice_scatter.default, (torch.ones(0, 3)[:, 1:], torch.ones(0, 2))),
        (aten.slice_scatter.default, (FIVE[2:].as_strided((1, 2), (0, 1)), torch.ones(1, 2))),
        (aten.slice_scatter.default, (FIVE.as_strided((2, 2), (0, 1), 1), torch.ones(2, 2))),
    ],
)
def test_results_have_the_layout_of_eager(op, args):
    assert layouts(corrected(op, *args)) == layouts(op(*args))


ODD = (  # dimensions of size one with strides that a contiguous tensor does not have
    torch.ones(8)[:1:2],
    torch.ones(64).as_strided((1, 3), (7, 1)),
    torch.ones(64).as_strided((3, 1), (1, 5)),
    torch.ones(64).as_strided((1, 1, 3), (7, 5, 2)),
)


@pytest.mark.parametrize(
    ("op", "args"),
    [
        *((op, ()) for op in (aten.relu.default, aten.zero.default, aten.zeros_like.default)),
        *((op, ()) for op in (aten.uniform.default, aten.log_normal.default, aten.flip.default)),
        *((op, ()) for op in (aten.rand_like.default, aten.sort.default, aten.nan_to_num.default)),
        *((op, (2,)) for op in (aten.mul.Scalar, aten.eq.Scalar, aten.fill.Scalar)),
        *((op, (2,)) for op in (aten.pow.Tensor_Scalar, aten.clamp_min.default)),
    ],
)
def test_strides_where_the_size_is_one_are_those_of_eager(op, args, subtests):
    args = ([0],) if op is aten.flip.default else args
    for operand in ODD:
        with subtests.test(strides=operand.stride()):
            before = torch.get_rng_state()
            result = corrected(op, operand, *args)
            assert torch.equal(torch.get_rng_state(), before)
            assert layouts(result) == layouts(op(operand, *args))


@pytest.mark.parametrize("size", [0, 1, 2])
def test_dropout_that_drops_nothing_hands_back_what_eager_does(size):
    def is_handed_back(x):
        op, given = aten.native_dropout.default, (x, 0.0, True)
        result, _ = true_result(op, given, {}, op(*given))
        return result.untyped_storage()._cdata == x.untyped_storage()._cdata

    with FakeTensorMode():
        fake = torch.ones(size)
        assert is_handed_back(fake) == (size == 0)


def test_a_batch_norm_is_not_run_where_fakes_are_right():
    given = (torch.ones(2, 3, 4, 4), *[torch.ones(3)] * 4, True, 0.1, 1e-5)
    op = aten._native_batch_norm_legit_functional.default
    assert layouts(corrected(op, *given)) == layouts(op(*given))
    with FakeTensorMode() as mode:
        fakes = fakes_of(mode, given)
        value = op(*fakes)
        assert true_result(op, fakes, {}, value) is value


META = torch.ones(4, 3, device="meta").t(), torch.ones(3, 1, device="meta")


@pytest.mark.parametrize(
    ("op", "args"),
    [
        (aten.index.Tensor, (torch.ones(0, 3), [BESIDE])),  # out of range
        (aten.index.Tensor, (GRID, [None, torch.ones(8, dtype=torch.bool)[::2]])),
        (aten.copysign.Tensor, META),
    ],
    ids=["refused by eager", "of a size that depends on data", "on another device"],
)
def test_what_cannot_be_run_keeps_the_layout_of_fakes(op, args):
    with FakeTensorMode(shape_env=ShapeEnv()) as mode:
        given = fakes_of(mode, args)
        value = op(*given)
        assert true_result(op, given, {}, value) is value


def symbolic_fakes_of(mode: FakeTensorMode, *values: torch.Tensor) -> list[torch.Tensor]:
    """Fakes whose sizes are symbols."""
    dims = [DimDynamic.DYNAMIC]
    contexts: Any = [StatelessSymbolicContext(dynamic_sizes=dims * x.dim()) for x in values]
    pairs = zip(values, contexts, strict=True)
    return [mode.from_tensor(value, symbolic_context=context) for value, context in pairs]


@pytest.mark.parametrize(
    ("op", "args"),
    [
        (aten.copysign.Tensor, (GRID.t(), torch.ones(4, 1))),
        (aten.xlogy.Tensor, (torch.ones(3, 4, 2).permute(2, 0, 1), torch.ones(1, 2).t()[:, None])),
        (aten.floor_divide.default, (GRID.long().t(), torch.ones(3, 4, dtype=torch.long).t())),
        (aten.index.Tensor, (GRID, [BESIDE])),
        (aten.roll.default, (torch.ones(3, 1, 4).permute(2, 1, 0), [1])),
        (aten.ldexp.Tensor, (torch.ones(2, dtype=torch.uint8), torch.tensor(1.0).half())),
        (aten.addr.default, (torch.ones(4, 2).t(), torch.ones(2), torch.ones(4))),
    ],
)
def test_sizes_that_are_symbols_have_their_current_values(op, args):
    mode = FakeTensorMode(shape_env=ShapeEnv())
    given = tree_map_only(torch.Tensor, lambda each: symbolic_fakes_of(mode, each)[0], args)
    with mode:
        value = true_result(op, given, {}, op(*given))
    real = op(*args)
    assert isinstance(value.shape[0], torch.SymInt)
    assert [int(stride) for stride in value.stride()] == list(real.stride())
    assert value.dtype == real.dtype


def test_what_a_run_shows_is_guarded():
    """Of two strides that are symbols, either may be the larger one."""
    shapes = ShapeEnv()
    mode = FakeTensorMode(shape_env=shapes)
    (one,) = symbolic_fakes_of(mode, torch.empty_strided((3, 4, 5), (100, 1, 7)))
    with mode:
        true_result(aten.roll.default, (one, [1]), {}, aten.roll.default(one, [1]))
    outer, _, inner = map(str, one.stride())
    assert any({outer, inner} <= {*map(str, guard.expr.free_symbols)} for guard in shapes.guards)


def test_a_number_that_is_a_symbol_has_its_current_value():
    mode = FakeTensorMode(shape_env=ShapeEnv())
    groups = symbolic_fakes_of(mode, torch.ones(2))[0].shape[0]
    shuffled = torch.ones(2, 3, 3, 4).permute(0, 3, 1, 2)
    given = (*fakes_of(mode, [shuffled]), groups)
    with mode:
        value = aten.channel_shuffle.default(*given)
        value = true_result(aten.channel_shuffle.default, given, {}, value)
    assert layouts(value) == layouts(aten.channel_shuffle.default(shuffled, 2))


@pytest.mark.parametrize("form", ["upsample_nearest", "_upsample_nearest_exact"])
@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize(("overload", "scale"), [("default", ()), ("vec", (None,))])
def test_nearest_neighbours_of_an_empty_batch_have_the_layout_of_eager(form, dims, overload, scale):
    op = getattr(getattr(torch.ops.aten, f"{form}{dims}d"), overload)
    empty = torch.zeros(0, 3, *[2] * dims)
    result = pipeline(lambda x: op(x, [4] * dims, *scale).neg_(), empty)(empty)
    eager = op(empty, [4] * dims, *scale)
    assert (result.shape, result.stride()) == (eager.shape, eager.stride())


def test_a_composite_that_calls_another_one_ends():
    mode = FakeTensorMode()
    given = (mode.from_tensor(torch.ones(2)),)
    with mode:
        assert fake_result(aten.vander.default, given, {}).shape == (2, 2)
