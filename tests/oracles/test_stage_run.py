"""`run_stage`: the record of each node, at the moment it ran."""

import operator
from typing import Any

import pytest
import torch
from torch import fx

from aliasproof.ir.errors import InternalError, Rejected
from aliasproof.ir.regions import Region
from aliasproof.oracles.stage import Stage
from aliasproof.oracles.stage_run import Location, NodeCall, NodeRun, describe, run_stage
from tests.oracles.scenes import stage

aten = torch.ops.aten


X = torch.arange(6.0).view(2, 3)


def ran(
    names: str, *calls: Any, inputs: list[object] | None = None, returned: str = ""
) -> dict[str, NodeRun]:
    """The record of each node in a run, by name. Inputs default to clones of X."""
    given = [X.clone() for _ in names.split()] if inputs is None else inputs
    done = run_stage(stage(names, *calls, returned=returned), given)
    assert done.error is None
    return {node.node.name: node for node in done.nodes}


def call_in(nodes: dict[str, NodeRun], name: str) -> NodeCall:
    call = nodes[name].call
    assert call is not None
    return call


def test_a_view_is_in_the_storage_of_its_base() -> None:
    nodes = ran("x", ("y", aten.select.int, "x", 1, 1), ("z", aten.neg.default, "y"), returned="z")
    assert nodes["x"].locations == (
        Location(0, 0, (2, 3), (3, 1), torch.float32, conj=False, neg=False),
    )
    assert nodes["y"].locations == (
        Location(0, 1, (2,), (3,), torch.float32, conj=False, neg=False),
    )
    assert nodes["y"].locations[0].region == Region(4, (2,), (12,), 4)
    assert nodes["z"].locations[0].storage == 1
    assert nodes["output"].locations == nodes["z"].locations


def test_inputs_that_share_a_storage_have_its_number() -> None:
    base = torch.arange(4.0)
    nodes = ran("x y z", inputs=[base[:2], base[2:], torch.ones(1)])
    assert [nodes[name].locations[0].storage for name in "xyz"] == [0, 0, 1]
    assert not nodes["x"].locations[0].overlaps(nodes["y"].locations[0])


def test_a_location_is_as_it_was_at_that_moment() -> None:
    nodes = ran("x", ("t", aten.t_.default, "x"), returned="x")
    assert nodes["x"].locations[0].sizes == (2, 3)
    assert nodes["t"].locations[0].sizes == nodes["output"].locations[0].sizes == (3, 2)


def test_what_a_call_writes_and_reads() -> None:
    nodes = ran(
        "x y",
        ("add", aten.add_.Tensor, "x", "y"),
        ("copy_", aten.copy_.default, "x", "y"),
        ("mul", aten.mul.out, "x", "y", {"out": "y"}),
        ("like", aten.zeros_like.default, "x"),
        ("fill", aten.fill.Scalar, "x", 1),
    )
    calls = {name: node.call for name, node in nodes.items() if node.call is not None}
    assert {
        name: [operand.argument for operand in call.written] for name, call in calls.items()
    } == {"add": ["self"], "copy_": ["self"], "mul": ["out"], "like": [], "fill": []}
    assert {name: [operand.argument for operand in call.read] for name, call in calls.items()} == {
        "add": ["self", "other"],
        "copy_": ["src"],
        "mul": ["self", "other"],
        "like": [],  # only the sizes
        "fill": [],
    }
    assert [operand.position for operand in calls["mul"].operands] == [0, 1, -1]


def test_operands_are_in_the_order_of_the_schema() -> None:
    nodes = ran("x y", ("sub", aten.sub_.Tensor, {"other": "y", "self": "x"}))
    call = call_in(nodes, "sub")
    assert [operand.argument for operand in call.operands] == ["self", "other"]


def test_the_name_of_an_op_of_another_library_says_nothing_about_what_it_reads() -> None:
    with torch.library._scoped_library("tested", "DEF") as library:
        library.define("add_like(Tensor x) -> Tensor")
        library.impl("add_like", lambda x: x + 1, "CPU")
        call = call_in(ran("x", ("y", torch.ops.tested.add_like.default, "x")), "y")
    assert [operand.argument for operand in call.read] == ["x"]


def test_whether_a_call_without_a_tensor_is_data_dependent() -> None:
    nodes = ran("x", ("equal", aten.equal.default, "x", "x"), ("size", aten.sym_size.int, "x", 0))
    assert {name: node.call.is_data_dependent for name, node in nodes.items() if node.call} == {
        "equal": True,
        "size": False,
    }


@pytest.mark.parametrize("op", [aten.t_.default, aten.unsqueeze_.default])
def test_other_metadata_is_mutation_but_no_byte_is_written(op) -> None:
    arguments = (0,) if op is aten.unsqueeze_.default else ()
    call = call_in(ran("x", ("y", op, "x", *arguments)), "y")
    assert call.mutates
    assert not call.written


def test_functions_that_are_not_operators_just_run() -> None:
    def on_copies(op: Any, *args: Any) -> Any:
        return (op(args[0].clone(), *args[1:]),)

    nodes = ran(
        "x n",
        ("many", on_copies, aten.add_.Tensor, "x", 1),
        ("one", operator.getitem, "many", 0),
        ("m", operator.add, "n", 1),
        ("part", aten.slice.Tensor, "one", 0, 0, "m"),
        inputs=[X.clone(), 0],
        returned="part",
    )
    call = call_in(nodes, "many")
    assert (call.op, call.computes, call.mutates) == (None, aten.add_.Tensor, False)
    assert [(operand.argument, operand.written) for operand in call.operands] == [("self", False)]
    assert nodes["one"].locations == nodes["many"].locations
    assert nodes["m"].value == 1
    assert nodes["part"].locations[0].sizes == (1, 3)


def test_a_module_of_the_graph_runs() -> None:
    traced = fx.symbolic_trace(torch.nn.Sequential(torch.nn.ReLU()))
    done = run_stage(Stage("tested", traced, functional=False), [X - 3])
    assert done.error is None
    assert [node.node.op for node in done.nodes] == ["placeholder", "call_module", "output"]
    assert str(done.nodes[-1].value) == str((X - 3).relu())


def test_whether_a_copy_stores_one_value_at_one_address() -> None:
    def windows(line: torch.Tensor) -> torch.Tensor:
        return line.as_strided((2, 2), (1, 1))

    sources = (
        windows(torch.arange(3.0)),
        torch.arange(4.0).view(2, 2),
        torch.full((2, 1), torch.nan),
    )
    for source, conflicts in zip(sources, (False, True, False), strict=True):
        given: list[object] = [windows(torch.zeros(3)), source]
        nodes = ran("x y", ("copy_", aten.copy_.default, "x", "y"), inputs=given)
        assert call_in(nodes, "copy_").conflicts is conflicts


def test_an_error_ends_the_run_and_is_kept() -> None:
    tested = stage(
        "x",
        ("y", aten.neg.default, "x"),
        ("z", aten.view.default, "y", [7]),
        ("w", aten.neg.default, "z"),
    )
    done = run_stage(tested, [X.clone()])
    assert done.error is not None
    assert done.error[0].name == "z"
    assert isinstance(done.error[1], RuntimeError)
    assert [node.node.name for node in done.nodes] == ["x", "y", "z"]
    assert done.nodes[-1].locations == ()


def test_use_before_definition_is_an_error_of_the_node() -> None:
    tested = stage("x", ("y", aten.neg.default, "x"), ("z", aten.neg.default, "x"), returned="z")
    nodes = {node.name: node for node in tested.graph.graph.nodes}
    nodes["y"].args = (nodes["z"],)
    done = run_stage(tested, [X.clone()])
    assert done.error is not None
    assert (done.error[0].name, str(done.error[1])) == ("y", "z is used before it is defined")


def test_attributes_are_not_mutated() -> None:
    graph = fx.Graph()
    weight = graph.get_attr("weight")
    graph.call_function(aten.zero_.default, (weight,))
    graph.output((weight,))
    root = torch.nn.Module()
    root.weight = torch.nn.Buffer(torch.ones(2))
    done = run_stage(Stage("tested", fx.GraphModule(root, graph), functional=False), [])
    assert done.inputs == {0}
    assert torch.equal(root.weight, torch.ones(2))


def test_a_missing_attribute_ends_the_run() -> None:
    graph = fx.Graph()
    root = torch.nn.Module()
    root.weight = torch.nn.Buffer(torch.ones(2))
    module = fx.GraphModule(root, fx.Graph())
    graph.output((graph.get_attr("weight"),))
    module.graph = graph
    done = run_stage(Stage("tested", module, functional=False), [])
    assert done.error is not None
    assert (done.error[0].op, str(done.error[1])) == (
        "get_attr",
        "the module has no attribute weight",
    )


def test_the_largest_size_of_a_storage_is_noted() -> None:
    tested = stage(
        "x",
        ("grown", aten.resize_.default, "x", [4, 3]),
        ("freed", torch.ops.inductor.resize_storage_bytes_.default, "x", 0),
    )
    done = run_stage(tested, [X.clone()])
    assert done.error is None
    assert (done.nbytes, done.storages[0].nbytes()) == ([48], 0)


def test_what_cannot_be_judged_is_rejected() -> None:
    with pytest.raises(InternalError, match="takes 1 inputs, 2 were given"):
        run_stage(stage("x"), [X, X])
    with pytest.raises(Rejected, match="sparse_coo"):
        run_stage(stage("x"), [X.to_sparse()])


def test_strides_of_dims_of_size_1_do_not_matter() -> None:
    def location(tensor: torch.Tensor) -> Location:
        return run_stage(stage("x"), [tensor]).nodes[0].locations[0]

    column = torch.zeros(4)
    assert location(column.as_strided((4, 1), (1, 7))).same_elements(
        location(column.as_strided((4, 1), (1, 1)))
    )
    assert location(column.as_strided((1, 4), (9, 1))).same_elements(location(column))
    assert not location(column.view(4, 1)).same_elements(
        location(column)
    )  # broadcast: (4, 1) is a column
    assert not location(column[1:]).same_elements(location(column[:3]))


def test_a_node_in_one_line() -> None:
    calls = (
        ("add_1", aten.add.Tensor, "x", 1, {"alpha": 2}),
        ("add_2", "add_", "x", 1),
        ("one", operator.getitem, "add_1", 0),
        ("add_3", operator.iadd, "x", "one"),
        ("out", aten.add.out, "x", "one", {"out": "add_1"}),
    )
    tested = stage("x", *calls, returned="one")
    assert [describe(node) for node in tested.graph.graph.nodes] == [
        "x = input",
        "add_1 = aten.add.Tensor(x, 1, alpha=2)",
        "add_2 = add_(x, 1)",
        "one = getitem(add_1, 0)",
        "add_3 = iadd(x, one)",
        "out = aten.add.out(x, one, out=add_1)",
        "return (one,)",
    ]
