"""Running nodes on fakes: the mode and the inputs, views as another dtype, `out=` calls."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext

from aliasproof.reference_pass import functionalize, pipeline
from aliasproof.reference_pass.calls.copied_operands import on_copies
from aliasproof.reference_pass.calls.fake_inputs import fake_inputs
from aliasproof.reference_pass.calls.fake_tensors import fake_mode
from aliasproof.reference_pass.calls.storages import storage_of
from aliasproof.reference_pass.eager.fake_execution import _view_as
from aliasproof.reference_pass.exceptions import DataDependent, Refused
from tests.reference_pass.graphs import GRID, ROW, X, Y, analysis_of, graph_of, layout_of

aten = torch.ops.aten


def test_a_sparse_input_has_no_strides_to_reason_about():
    with pytest.raises(Refused, match="no strides"):
        analysis_of(graph_of((aten.neg.default, X)), (GRID.to_sparse(),))


@pytest.mark.parametrize(
    ("op", "named"), [(aten.select_copy.int, {"dim": 1, "index": 0}), (aten.t_copy.default, {})]
)
def test_view_copies_of_symbolic_sizes_are_contiguous(op, named):
    dynamic: Any = StatelessSymbolicContext(dynamic_sizes=[DimDynamic.DYNAMIC] * 2)
    fake = FakeTensorMode(shape_env=ShapeEnv()).from_tensor(GRID, symbolic_context=dynamic)
    *_, effect = analysis_of(graph_of((op, X, named)), (fake,)).effects.values()
    assert effect.value.is_contiguous()
    assert effect.value.dim() == (1 if named else 2)


def test_a_complex_out_takes_a_real_result():
    out = torch.complex(ROW, ROW)
    *_, effect = analysis_of(graph_of((aten.abs.out, X, {"out": X})), (out,)).effects.values()
    assert effect.value.dtype == aten.abs.out(out, out=out.clone()).dtype == torch.complex64


def test_a_split_at_positions_in_a_tensor_is_data_dependent():
    graph = graph_of((aten.tensor_split.tensor_indices_or_sections, X, Y), inputs=2)
    with pytest.raises(DataDependent, match="depends on data"):
        pipeline(graph, ROW, torch.tensor([2]))


def test_fake_inputs_share_what_the_inputs_share_and_are_new_objects():
    mode = FakeTensorMode()
    one, other, apart, number = fake_inputs(mode, (GRID[0], GRID[1], ROW, 3))
    assert all(
        isinstance(each, FakeTensor) and each.fake_mode is mode for each in (one, other, apart)
    )
    assert storage_of(one) == storage_of(other) != storage_of(apart)
    assert other.storage_offset() == 6
    assert one.untyped_storage().nbytes() == GRID.untyped_storage().nbytes()
    assert number == 3
    again, _ = fake_inputs(mode, (one, ROW))
    assert again is not one
    assert storage_of(again) == storage_of(one)


def test_fake_inputs_need_no_gradient():
    (fake,) = fake_inputs(FakeTensorMode(), (torch.ones(2, requires_grad=True),))
    assert not fake.requires_grad


def test_the_mode_is_that_of_the_arguments_or_of_the_metadata_or_new():
    graph_module = graph_of((aten.neg.default, X))
    shapes = ShapeEnv()
    mode = FakeTensorMode(shape_env=shapes)
    new = fake_mode(graph_module, (GRID,))
    assert new is not mode
    assert new.shape_env is not None
    assert fake_mode(graph_module, (GRID, [mode.from_tensor(ROW)])) is mode
    next(iter(graph_module.graph.nodes)).meta["val"] = mode.from_tensor(GRID)
    assert fake_mode(graph_module, ()) is mode
    assert fake_mode(graph_module, (GRID,)) is mode


def test_constants_are_found_by_dotted_names():
    inner = torch.nn.Module()
    inner.register_buffer("table", GRID)
    root: Any = torch.nn.Module()
    root.add_module("inner", inner)
    root.number = 3
    graph = fx.Graph()
    table = graph.get_attr("inner.table")
    graph.output((graph.call_function(aten.neg.default, (table,)), graph.get_attr("number")))
    effects = [
        effect.value for effect in analysis_of(fx.GraphModule(root, graph), ()).effects.values()
    ]
    assert tuple(effects[0].shape) == (4, 6)
    assert isinstance(effects[0], FakeTensor)
    assert effects[2] == 3


def test_a_resized_out_tensor_has_the_layout_of_the_functional_result():
    graph_module = graph_of(
        (aten.std.correction_out, X, [1], {"correction": 1, "keepdim": True, "out": Y}), inputs=2
    )
    effects = list(analysis_of(graph_module, (GRID, torch.empty(0))).effects.values())
    assert layout_of(effects[2].value) == ((4, 1), (1, 1), 0)


def test_a_resized_out_tensor_is_refused_if_there_is_no_functional_form():
    right, wrong = torch.empty(5), torch.empty(0)
    graph_module = graph_of((aten.linspace.out, 0, 1, 5, {"out": X}))
    assert layout_of(list(analysis_of(graph_module, (right,)).effects.values())[1].value) == (
        (5,),
        (1,),
        0,
    )
    with pytest.raises(Refused, match="resizes its out="):
        analysis_of(graph_module, (wrong,))


def test_a_copy_of_an_out_tensor_with_gaps_has_its_strides():
    def program(x, values, indices):
        torch.sort(x, stable=True, dim=0, out=(values[::2], indices))
        return values

    given = (torch.arange(6.0), torch.zeros(12), torch.zeros(6, dtype=torch.int64))
    graph = functionalize(program, *given).graph
    (call,) = graph.find_nodes(op="call_function", target=on_copies)
    assert [tensor.stride() for tensor in call.meta["val"]] == [(2,), (1,)]


def test_what_is_written_may_be_on_any_device():
    operand, place = torch.ones(4, device="meta"), torch.ones(8, device="meta")[4:]
    graph_module = graph_of((aten.neg.out, X, {"out": Y}), inputs=2)
    effects = list(analysis_of(graph_module, (operand, place)).effects.values())
    assert layout_of(effects[2].value) == ((4,), (1,), 4)


@pytest.mark.parametrize(
    ("operand", "dtype", "layout"),
    [
        # As torch has it
        (torch.ones(2, 4), torch.float64, ((2, 2), (2, 1), 0)),
        (torch.ones(9)[1:].view(2, 4)[:, 1:], torch.float16, ((2, 6), (8, 1), 4)),
        (torch.ones(()), torch.int32, ((), (), 0)),
        # Strides that are never used
        (torch.ones(10)[2:].as_strided((1, 4), (3, 1), 2), torch.complex64, ((1, 2), (1, 1), 1)),
        (torch.ones(4).as_strided((2, 1, 2), (2, 7, 1)), torch.float64, ((2, 1, 1), (1, 1, 1), 0)),
        (
            torch.ones(2, dtype=torch.float64).as_strided((2, 1), (1, 2)),
            torch.float32,
            ((2, 2), (2, 1), 0),
        ),
        (torch.ones(0).as_strided((3, 0), (1, 5)), torch.float64, ((3, 0), (1, 1), 0)),
        (torch.ones(0).as_strided((0, 2), (3, 1)), torch.float64, ((0, 1), (1, 1), 0)),
        # Some of these fit as they are
        (torch.ones(4).as_strided((2, 1, 2), (2, 6, 1)), torch.float64, ((2, 1, 1), (1, 3, 1), 0)),
        (torch.ones(4).as_strided((2, 1, 2), (2, 7, 1)), torch.int32, ((2, 1, 2), (2, 7, 1), 0)),
        (torch.ones(4).as_strided((2, 1, 2), (2, 7, 1)), torch.float16, ((2, 1, 4), (4, 14, 1), 0)),
    ],
)
def test_a_view_as_another_dtype_is_taken_whatever_the_strides_that_are_never_used(
    operand, dtype, layout
):
    shown = _view_as(operand, dtype)
    assert layout_of(shown) == layout
    assert shown.dtype == dtype
    assert storage_of(shown) == storage_of(operand)


@pytest.mark.parametrize(
    ("operand", "dtype"),
    [
        (torch.ones(10).as_strided((2, 4), (5, 1)), torch.float64),
        (torch.ones(8).view(4, 2).t(), torch.float64),
        (torch.ones(8).view(4, 2).t(), torch.float16),
        (torch.ones(2, 3), torch.float64),
    ],
)
def test_a_view_as_another_dtype_is_refused_for_strides_that_are_used(operand, dtype):
    with pytest.raises(RuntimeError, match="to view Float as"):
        _view_as(operand, dtype)


@pytest.mark.parametrize("op", [aten.channel_shuffle.default, aten.native_channel_shuffle.default])
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("views", ["alias", "copy"])
def test_shuffled_channels_are_a_new_tensor_also_in_one_group(op, groups, views):
    def shuffle(x):
        shuffled = op(x, groups)
        x.add_(1)
        return shuffled

    x = torch.arange(24.0).reshape(2, 4, 3)
    layouts = [
        x,
        x.view(3, 4, 2).permute(2, 1, 0),
        x[..., None].contiguous(memory_format=torch.channels_last),
    ]
    if op is aten.channel_shuffle.default:  # of the other, fakes refuse an empty one
        layouts.append(x[:0])
    for given in layouts:
        graph = fx.symbolic_trace(shuffle)
        seen, expected = given.clone(), given.clone()
        result, wanted = pipeline(graph, given.clone(), views=views)(seen), shuffle(expected)
        assert torch.equal(result, wanted)
        assert result.stride() == wanted.stride()
        assert torch.equal(seen, expected)
