"""Running nodes on fakes: the mode and the inputs, views as another dtype, `out=` calls."""

from collections.abc import Sequence
from typing import Any
from unittest import mock

import pytest
import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext

from aliasproof.reference_pass import functionalize, pipeline, update_metadata
from aliasproof.reference_pass.calls.copied_operands import on_copies
from aliasproof.reference_pass.calls.fake_inputs import fake_inputs
from aliasproof.reference_pass.calls.fake_tensors import fake_mode
from aliasproof.reference_pass.calls.storages import storage_of
from aliasproof.reference_pass.eager import fake_execution
from aliasproof.reference_pass.eager.fake_execution import _view_as
from aliasproof.reference_pass.exceptions import DataDependent, Refused
from aliasproof.reference_pass.pipeline import metadata_is_true
from tests.reference_pass.graphs import GRID, ROW, X, Y, analysis_of, graph_of, layout_of
from tests.reference_pass.scene import assert_alike

aten = torch.ops.aten


def values_of(graph_module: fx.GraphModule, inputs: Sequence[object]) -> list[Any]:
    """The value of each node on fakes."""
    effects = analysis_of(graph_module, inputs).effects
    return [effect.value for effect in effects.values()]


def test_a_sparse_input_has_no_strides_to_reason_about():
    with pytest.raises(Refused, match="no strides"):
        analysis_of(graph_of((aten.neg.default, X)), (GRID.to_sparse(),))


@pytest.mark.parametrize(
    ("op", "named"), [(aten.select_copy.int, {"dim": 1, "index": 0}), (aten.t_copy.default, {})]
)
def test_view_copies_of_symbolic_sizes_are_contiguous(op, named):
    dynamic: Any = StatelessSymbolicContext(dynamic_sizes=[DimDynamic.DYNAMIC] * 2)
    fake = FakeTensorMode(shape_env=ShapeEnv()).from_tensor(GRID, symbolic_context=dynamic)
    *_, value = values_of(graph_of((op, X, named)), (fake,))
    assert value.is_contiguous()
    assert value.dim() == (1 if named else 2)


def test_a_complex_out_takes_a_real_result():
    out = torch.complex(ROW, ROW)
    *_, value = values_of(graph_of((aten.abs.out, X, {"out": X})), (out,))
    assert value.dtype == aten.abs.out(out, out=out.clone()).dtype == torch.complex64


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
    fake, _, number = values_of(fx.GraphModule(root, graph), ())
    assert tuple(fake.shape) == (4, 6)
    assert isinstance(fake, FakeTensor)
    assert number == 3


def test_a_resized_out_tensor_has_the_layout_of_the_functional_result():
    graph_module = graph_of(
        (aten.std.correction_out, X, [1], {"correction": 1, "keepdim": True, "out": Y}), inputs=2
    )
    values = values_of(graph_module, (GRID, torch.empty(0)))
    assert layout_of(values[2]) == ((4, 1), (1, 1), 0)


def test_a_resized_out_tensor_is_refused_if_there_is_no_functional_form():
    right, wrong = torch.empty(5), torch.empty(0)
    graph_module = graph_of((aten.linspace.out, 0, 1, 5, {"out": X}))
    assert layout_of(values_of(graph_module, (right,))[1]) == ((5,), (1,), 0)
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
    values = values_of(graph_module, (operand, place))
    assert layout_of(values[2]) == ((4,), (1,), 4)


@pytest.mark.parametrize(
    ("operand", "dtype", "layout"),
    [
        # As in torch
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
        # Some of these fit unchanged
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
    if op is aten.channel_shuffle.default:  # fakes of the other op refuse an empty input
        layouts.append(x[:0])
    for given in layouts:
        graph = fx.symbolic_trace(shuffle)
        assert_alike(pipeline(graph, given.clone(), views=views), shuffle, given)


# --- `update_metadata`: correct after any rewrite, and only the necessary nodes run ---------------


def chain(x):
    first = x.view(2, 3)
    second = first + 1
    third = second.t()
    return third * 2, third.sum()


def graph_and_nodes():
    graph_module = functionalize(chain, torch.arange(6.0))
    return graph_module, {node.name: node for node in graph_module.graph.nodes}


def test_a_graph_with_true_metadata_is_not_run():
    graph_module, _ = graph_and_nodes()
    assert update_metadata(graph_module) == 0


def test_a_graph_without_metadata_is_run_once():
    graph_module, nodes = graph_and_nodes()
    for node in nodes.values():
        node.meta.clear()
    assert update_metadata(graph_module, torch.arange(6.0)) == len(nodes) - 2
    assert metadata_is_true(graph_module) is None


def test_a_change_that_changes_no_value_stops_where_it_is():
    graph_module, nodes = graph_and_nodes()
    nodes["add"].target = aten.sub.Tensor
    assert update_metadata(graph_module) == 1


def test_a_change_of_layout_goes_through_to_the_end():
    graph_module, nodes = graph_and_nodes()
    with graph_module.graph.inserting_before(nodes["mul"]):
        copy = graph_module.graph.call_function(
            aten.clone.default, (nodes["t"],), {"memory_format": torch.contiguous_format}
        )
    nodes["mul"].replace_input_with(nodes["t"], copy)
    assert update_metadata(graph_module) == 2
    assert nodes["mul"].meta["val"].stride() == (2, 1)
    assert metadata_is_true(graph_module) is None


def test_a_view_of_another_tensor_shares_the_storage_of_that_one():
    graph_module, nodes = graph_and_nodes()
    nodes["t"].replace_input_with(nodes["add"], nodes["view"])
    assert update_metadata(graph_module) >= 1
    assert storage_of(nodes["t"].meta["val"]) == storage_of(nodes["view"].meta["val"])
    assert metadata_is_true(graph_module) is None


def moved(x):
    parts = (
        x.view(2, 3),
        x[1:4],
        x.t(),
        x.unsqueeze(0),
        x.expand(2, 6),
        aten.split.Tensor(x, 4)[1],
    )
    return (x + 1, x[2:].clone(), *(part * 2 for part in parts))


def test_views_of_an_operand_that_moved_move_with_it():
    graph_module = functionalize(moved, torch.arange(6.0))
    nodes = {node.name: node for node in graph_module.graph.nodes}
    (x,) = graph_module.graph.find_nodes(op="placeholder")
    with graph_module.graph.inserting_after(x):
        buffer = graph_module.graph.call_function(aten.new_zeros.default, (x, [9]))
    with graph_module.graph.inserting_after(buffer):
        part = graph_module.graph.call_function(aten.slice.Tensor, (buffer, 0, 3, 9))
    for user in list(x.users):
        if user is not buffer:
            user.replace_input_with(x, part)
    update_metadata(graph_module)
    assert nodes["slice_1"].meta["val"].storage_offset() == 4
    assert metadata_is_true(graph_module) is None


def test_views_of_an_operand_with_another_layout_are_run():
    graph_module, nodes = graph_and_nodes()
    (x,) = graph_module.graph.find_nodes(op="placeholder")
    with graph_module.graph.inserting_after(x):
        wide = graph_module.graph.call_function(aten.unsqueeze.default, (x, 0))
    nodes["view"].replace_input_with(x, wide)
    with mock.patch.object(fake_execution, "run_call", wraps=fake_execution.run_call) as run:
        update_metadata(graph_module)
    assert "view" in {call.args[0].name for call in run.call_args_list}
    assert metadata_is_true(graph_module) is None


def test_an_op_made_in_place_gives_its_operand():
    graph_module, nodes = graph_and_nodes()
    nodes["mul"].target = aten.mul_.Tensor
    update_metadata(graph_module)
    assert nodes["mul"].meta["val"] is nodes["t"].meta["val"]
    assert metadata_is_true(graph_module) is None


def test_stale_metadata_is_found():
    graph_module, nodes = graph_and_nodes()
    nodes["mul"].meta["val"] = nodes["mul"].meta["val"].contiguous()
    assert "mul" in (metadata_is_true(graph_module) or "")


def test_code_is_written_for_the_last_graph_alone():
    graph_module = make_fx(lambda x: (x + 1).mul_(2), tracing_mode="fake")(GRID)
    with mock.patch.object(
        fx.Graph, "python_code", autospec=True, side_effect=fx.Graph.python_code
    ) as written:
        compiled = pipeline(graph_module, GRID)
        assert written.call_count == 0
        assert torch.equal(compiled(GRID), (GRID + 1) * 2)
    assert written.call_count == 1
