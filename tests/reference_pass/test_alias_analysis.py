"""The alias analysis against eager.

Each node of a graph must have the same metadata, and share the same storages, as in a run.
"""

import itertools
from typing import Any

import pytest
import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from aliasproof.reference_pass.alias_analysis import Analysis
from aliasproof.reference_pass.calls.nested import tensors_in
from aliasproof.reference_pass.calls.storages import same_view, storage_of, written_tensors
from aliasproof.reference_pass.capture.aten_graphs import refuse_other_calls
from aliasproof.reference_pass.exceptions import Refused
from tests.reference_pass.graphs import GRID, ROW, W, X, Y, Z, analysis_of, graph_of
from tests.reference_pass.scene import afresh

aten = torch.ops.aten


class Recorder(fx.Interpreter):
    """Runs a graph in eager and records the layout of each node after it ran."""

    def __init__(self, graph_module: fx.GraphModule) -> None:
        super().__init__(graph_module)
        self.seen: dict[str, list[tuple[object, ...]]] = {}
        self.storages: dict[str, list[int]] = {}
        self.kept: list[object] = []

    def run_node(self, n: fx.Node) -> Any:
        value = super().run_node(n)
        if n.op != "output":
            self.kept.append(value)  # or a later storage may reuse its address
            self.seen[n.name] = [
                (shown.dtype, tuple(shown.shape), shown.stride(), shown.storage_offset())
                for shown in tensors_in(value)
            ]
            self.storages[n.name] = [storage_of(each) for each in tensors_in(value)]
        return value


def compared_with_eager(graph_module: fx.GraphModule, *inputs: torch.Tensor) -> Analysis:
    """The analysis; each of its nodes is compared with eager."""
    # Twice: torch caches the results of fakes, and a cached one may differ.
    analysis_of(graph_module, inputs)
    analysis = analysis_of(graph_module, inputs)
    eager = Recorder(graph_module)
    eager.run(*afresh(inputs))
    effects = {node.name: effect for node, effect in analysis.effects.items()}
    ours: list[int] = []
    theirs: list[int] = []
    for name, seen in eager.seen.items():
        shows = [effects[name].shows[id(each)] for each in tensors_in(effects[name].value)]
        assert [(each.dtype, each.sizes, each.strides, each.offset) for each in shows] == seen, name
        ours += [each.storage for each in shows]
        theirs += eager.storages[name]
    for (one, their_one), (other, their_other) in itertools.combinations(
        zip(ours, theirs, strict=True), 2
    ):
        assert (one == other) == (their_one == their_other)
    assert sorted(set(ours)) == list(range(len(set(ours)))), "storages are numbered as they are met"
    return analysis


TURNED = torch.tensor([[0, 1, 2], [3, 0, 1]]).t()  # indices that are not contiguous
MASK = torch.ones(6, 4, dtype=torch.bool)


@pytest.mark.parametrize(
    ("calls", "inputs"),
    [
        (
            [(aten.t.default, X), (aten.slice.Tensor, Y, 0, 1, 5, 2), (aten.add.Tensor, Z, 1)],
            [GRID],
        ),
        ([(aten.split.Tensor, X, 2), (aten.add_.Tensor, X, 1)], [GRID]),
        ([(aten.view.dtype, X, torch.int16), (aten.zero_.default, Y)], [GRID]),
        ([(aten.as_strided.default, X, [3], [2], 7)], [GRID[:1]]),
        ([(aten.add.Tensor, X, Y)], [GRID[0], GRID[1]]),
        ([(aten.add.Tensor, X, Y)], [GRID[0], ROW]),
        ([(aten.t_.default, X), (aten.select.int, X, 0, 1)], [GRID]),
        # Copies of views; a copy of complex numbers as real ones is in row-major order
        ([(aten.select_copy.int, X, 1, 2)], [GRID]),
        ([(aten.view_as_real_copy.default, X)], [torch.ones(1, dtype=torch.complex64).expand(3)]),
        ([(aten.view_as_real_copy.default, X)], [torch.ones(3, 4, dtype=torch.complex64).t()]),
        # Results at the offset of their operand, in a storage of the same size
        ([(aten.select_scatter.default, X, Y, 0, 1)], [GRID[1:], ROW]),
        ([(aten.copy.default, X, Y)], [GRID[:, 1:4], GRID[:, :3]]),
        ([(aten.select_scatter.default, X, Y, 0, 1)], [ROW.expand(4, 6), ROW]),
        ([(aten.slice_scatter.default, X, Y, 0, 0, 1)], [ROW[None].expand(1, 6), ROW[None]]),
        # Strides that are never used
        ([(aten.masked_fill.Scalar, X, Y, 0)], [GRID[:1].t(), torch.ones(6, 1, dtype=torch.bool)]),
        ([(aten.masked_fill.Scalar, X, Y, 0)], [GRID.t(), MASK]),
        # Strides of an index that are not contiguous
        ([(aten.index.Tensor, X, [Y])], [GRID, TURNED]),
        ([(aten.index.Tensor, X, [None, Y])], [GRID, TURNED]),
        ([(aten.index.Tensor, X, [Y])], [GRID.t(), torch.tensor([0, 9, 2, 9, 1])[::2]]),
        ([(aten.index.Tensor, X, [Y])], [GRID[:0], torch.zeros(2, 3, 0, dtype=torch.int64).mT]),
        # An `out=` as large as the result is not resized, even if it is strided
        ([(aten.add.out, X, Y, {"out": Z})], [ROW, ROW, torch.zeros(12)[::2]]),
        ([(aten.add.out, X, Y, {"out": Z}), (aten.neg.default, W)], [ROW, ROW, torch.zeros(6)]),
        # An empty one is laid out like the functional result
        ([(aten.add.out, X, Y, {"out": Z})], [GRID.t(), GRID.t(), torch.zeros(0)]),
        ([(aten.add.out, X, Y, {"out": Z})], [GRID.t(), ROW[:, None], torch.zeros(7)[:0]]),
        # Two at once, one of which fits
        (
            [(aten.max.dim_max, X, 0, {"max": Y, "max_values": Z})],
            [GRID, torch.zeros(12)[::2], torch.zeros(0, dtype=torch.int64)],
        ),
    ],
)
def test_each_node_is_as_in_eager(calls, inputs):
    compared_with_eager(graph_of(*calls, inputs=len(inputs)), *inputs)


def test_the_same_view_of_a_storage_has_the_same_geometry():
    calls = [
        (aten.view.default, X, [24]),
        (aten.t.default, X),
        (aten.t.default, Z),
        (aten.conj.default, X),
        (aten._neg_view.default, X),
    ]
    analysis = compared_with_eager(graph_of(*calls), GRID.to(torch.complex64))
    x, flat, turned, back, conj, neg = (
        next(iter(each.shows.values())) for each in analysis.effects.values()
    )
    assert x.same(back)
    for other in (flat, turned, conj, neg):
        assert not x.same(other)
    assert (conj.conj, conj.neg, neg.conj, neg.neg) == (True, False, False, True)


def test_all_geometries_of_a_storage_are_noted_in_order_of_first_use():
    analysis = compared_with_eager(
        graph_of((aten.neg.default, X), (aten.t.default, X), (aten.t.default, Y)), GRID
    )
    assert [[each.sizes for each in seen] for seen in analysis.seen] == [
        [(4, 6), (6, 4)],
        [(4, 6), (6, 4)],
    ]
    assert len(analysis.storages) == 2


def test_a_storage_is_written_through_any_view_of_it():
    calls = [(aten.t.default, X), (aten.add_.Tensor, Z, Y), (aten.neg.default, Z)]
    analysis = compared_with_eager(graph_of(*calls, inputs=2), GRID, torch.ones(1))
    assert analysis.written == {0}
    assert analysis.resized == set()
    assert all(
        not effect.mutated_metadata and not effect.resized for effect in analysis.effects.values()
    )


def test_a_mutation_of_metadata_is_noted_with_the_new_geometry():
    analysis = compared_with_eager(graph_of((aten.t_.default, X)), GRID)
    *_, effect = analysis.effects.values()
    assert [each.sizes for each in effect.mutated_metadata.values()] == [(6, 4)]
    assert (6, 4) in [each.sizes for each in analysis.seen[0]]
    assert not effect.resized


def test_a_resized_storage_is_noted_with_its_bytes_and_the_input_gets_its_size_back():
    graph_module = graph_of((aten.resize_.default, X, [5, 6]))
    analysis = compared_with_eager(graph_module, GRID)
    *_, effect = analysis.effects.values()
    assert analysis.resized == {0}
    assert effect.resized == {0: 5 * 6 * 4}
    assert analysis.storages.by_number[0].nbytes() == 4 * 6 * 4


def test_a_storage_made_in_the_graph_keeps_its_new_size():
    analysis = compared_with_eager(
        graph_of((aten.neg.default, X), (aten.resize_.default, Y, [5, 6])), GRID
    )
    assert analysis.resized == {1}
    assert analysis.storages.by_number[1].nbytes() == 5 * 6 * 4


def test_set_to_another_storage_mutates_metadata_and_resizes_nothing():
    analysis = compared_with_eager(graph_of((aten.set_.source_Tensor, X, Y), inputs=2), ROW, GRID)
    *_, effect = analysis.effects.values()
    assert [each.storage for each in effect.mutated_metadata.values()] == [1]
    assert not effect.resized
    assert analysis.resized == set()


def test_an_out_call_that_eager_refuses_is_refused_with_its_error():
    with pytest.raises(RuntimeError, match="can't be cast"):
        analysis_of(
            graph_of((aten.add.out, X, X, {"out": Y}), inputs=2),
            (ROW, torch.zeros(6, dtype=torch.int64)),
        )


# --- calls that are not analysed ------------------------------------------------------------------


def test_arithmetic_on_sizes_is_known_by_the_function_not_by_its_name():
    def sym_max(one: Any, other: Any) -> Any:
        return one.add_(other)

    graph_module = graph_of((aten.sym_size.int, X, 0), (torch.sym_max, Y, 5))
    refuse_other_calls(graph_module)
    *_, effect = analysis_of(graph_module, (GRID,)).effects.values()
    assert effect.value == 5
    with pytest.raises(Refused, match="not an ATen operator"):
        refuse_other_calls(graph_of((sym_max, X, 1)))


def test_a_node_that_is_not_a_call_of_a_function_is_refused():
    with pytest.raises(Refused, match="call_method node is not an ATen call"):
        refuse_other_calls(fx.symbolic_trace(lambda x: x.add_(1)))


@pytest.mark.parametrize(
    ("graph", "reason"),
    [
        (graph_of((aten.equal.default, X, X)), "data-dependent"),
        (
            graph_of((aten.nonzero.default, X), (aten.split.Tensor, Y, 2)),
            r"aten\.split\.Tensor may not support an operand of data-dependent size",
        ),
        (
            graph_of((aten.nonzero.default, X), (aten.squeeze_.dim, Y, 0)),
            r"aten\.squeeze_\.dim may not support an operand of data-dependent size",
        ),
    ],
)
def test_what_depends_on_data_is_refused(graph, reason):
    with pytest.raises(Refused, match=reason):
        analysis_of(graph, (GRID,))


def test_a_data_dependent_shape_is_refused_where_the_mode_has_no_symbols_for_it():
    fake = FakeTensorMode().from_tensor(GRID)
    with pytest.raises(Refused, match=r"aten\.nonzero\.default is data-dependent"):
        analysis_of(graph_of((aten.nonzero.default, X)), (fake,))


@pytest.mark.parametrize("symbolic", [False, True])
def test_an_error_of_eager_stays_what_it_is(symbolic):
    mode = FakeTensorMode(shape_env=ShapeEnv())
    given = mode.from_tensor(GRID, static_shapes=False) if symbolic else GRID
    with pytest.raises(RuntimeError) as caught:
        analysis_of(graph_of((aten.view.default, X, [7, 7])), (given,))
    assert not isinstance(caught.value, Refused)


# --- modes, custom operators, written tensors -----------------------------------------------------


def test_a_graph_runs_in_the_mode_of_its_arguments_and_leaves_their_sizes_alone():
    mode = FakeTensorMode()
    given = [mode.from_tensor(each) for each in (torch.ones(2), torch.ones(3))]
    analysis = analysis_of(
        graph_of((aten.resize_.default, X, [5]), (aten.resize_.default, Y, [7]), inputs=2), given
    )
    assert analysis.mode is mode
    assert analysis.resized == {0, 1}
    assert [each.untyped_storage().nbytes() for each in given] == [8, 12]


def test_a_custom_operator_may_use_a_real_tensor():
    with torch.library._scoped_library("aliasproof_alias_analysis", "FRAGMENT") as library:
        library.define("add_table(Tensor x) -> Tensor")
        library.impl("add_table", lambda x: x + ROW, "CompositeImplicitAutograd")
        compared_with_eager(
            graph_of((torch.ops.aliasproof_alias_analysis.add_table.default, X)), GRID
        )


def test_tensors_are_found_at_any_depth():
    a, b, c = torch.ones(1), torch.ones(2), torch.ones(3)
    assert [len(each) for each in tensors_in([a, (b, {"c": c, "d": 4}), "text", None])] == [1, 2, 3]


def test_what_an_op_writes_is_read_off_its_schema():
    graph_module = graph_of(
        (aten._foreach_add_.Scalar, [X, Y], 1),
        (aten.add.out, X, X, {"out": Y}),
        (aten.add.Tensor, X, Y),
        (aten.max.dim_max, X, 0, {"max": X, "max_values": Y}),
        inputs=2,
    )
    _, _, both, out, none, two, _ = graph_module.graph.nodes
    values = {"x0": GRID, "x1": ROW}
    for node, expected in ((both, [GRID, ROW]), (out, [ROW]), (none, []), (two, [GRID, ROW])):
        written = written_tensors(node, lambda each: values[each.name])
        assert len(written) == len(expected)
        assert all(one is other for one, other in zip(written, expected, strict=True))


def test_tensors_are_the_same_view_if_they_read_the_same_bytes_in_the_same_way():
    whole = torch.ones(4, 4, dtype=torch.complex64)
    assert same_view(whole, whole.t().t())
    assert same_view(whole[:1], whole.as_strided((1, 4), (9, 1))), (
        "the stride of a dimension of size one is never used"
    )
    for other in (
        whole.t(),
        whole.clone(),
        whole[1:],
        whole.conj(),
        torch._neg_view(whole),
        whole.view(torch.float64),
    ):
        assert not same_view(whole, other)
