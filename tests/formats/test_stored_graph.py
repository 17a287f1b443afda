"""A graph is unchanged after a round trip through files; hostile files are refused, and not run."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import fx

from aliasproof.formats.graph_ops import function_of_name, functions, name_of_function
from aliasproof.formats.stored_graph import GRAPH, STORAGES, StoredGraph, about_graph
from aliasproof.ir.errors import UserError
from aliasproof.ir.values import STATIC


def captured(function: Callable[..., Any], *inputs: torch.Tensor) -> fx.GraphModule:
    """The graph that Dynamo captures from a function."""
    torch._dynamo.reset()
    graphs: list[fx.GraphModule] = []

    def backend(module: fx.GraphModule, _: object) -> fx.GraphModule:
        graphs.append(module)
        return module

    torch.compile(function, backend=backend)(*inputs)
    return graphs[0]


def moves(x: torch.Tensor, y: torch.Tensor) -> Any:
    x.add_(1)
    part = y[..., 1:3, None]
    part[0] = float("inf")
    constant = torch.tensor([1.0, 2.0])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        z = x @ x.t()
    with torch.no_grad():
        w = torch.zeros(2, dtype=torch.int64, device=x.device) + x.real.long().sum()
    return F.relu(z), part.mT.contiguous(memory_format=torch.contiguous_format), constant, w


def checkpointed(x: torch.Tensor, y: torch.Tensor) -> Any:
    return torch.utils.checkpoint.checkpoint(lambda a: (a * y).sin(), x, use_reentrant=False)


@pytest.mark.parametrize("function", [moves, checkpointed])
def test_a_graph_and_its_inputs_come_back(tmp_path: Path, function: Callable[..., Any]) -> None:
    def inputs() -> tuple[torch.Tensor, torch.Tensor]:
        return torch.arange(9.0).view(3, 3).t(), torch.arange(9.0).view(3, 3)

    StoredGraph(captured(function, *inputs()), inputs(), {"target": "aot"}).write(tmp_path / "g")
    stored = StoredGraph.read(tmp_path / "g")
    assert about_graph(tmp_path / "g") == {"target": "aot"}
    expected, actual = function(*inputs()), stored.module(*stored.inputs)
    for ours, theirs in zip(torch.utils._pytree.tree_leaves(expected), actual, strict=True):
        assert torch.equal(ours, theirs)


def test_inputs_keep_layout_sharing_and_what_autograd_knows(tmp_path: Path) -> None:
    base = torch.arange(8.0)
    leaf = torch.nn.Parameter(torch.ones(2, 3).t())
    torch._dynamo.mark_static_address(leaf, guard=True)
    given = [base[1:5], base.view(2, 4)[:, ::2], leaf, leaf * 2, 3, float("-inf")]
    graph = fx.Graph()
    nodes = [graph.placeholder(f"x{index}") for index in range(len(given))]
    graph.output(tuple(nodes))
    StoredGraph(fx.GraphModule(torch.nn.Module(), graph), given).write(tmp_path / "g")
    read: Any = StoredGraph.read(tmp_path / "g").inputs
    one, other, weight, result, number, infinity = read
    assert (one.stride(), one.storage_offset(), other.stride()) == ((1,), 1, (4, 2))
    assert one.untyped_storage().data_ptr() == other.untyped_storage().data_ptr()
    assert isinstance(weight, torch.nn.Parameter)
    assert weight.stride() == (1, 3)
    assert [getattr(it, STATIC, None) for it in read[:4]] == [None, None, "guarded", None]
    assert result.requires_grad
    assert not result.is_leaf
    assert (number, infinity) == (3, float("-inf"))


def test_each_function_has_one_name_that_leads_back() -> None:
    for function in {id(it): it for it in functions().values()}.values():
        assert function_of_name(name_of_function(function)) is function
    for operator in (torch.ops.aten.add.Tensor, torch.ops.aten.add, torch.ops.higher_order.cond):
        assert function_of_name(name_of_function(operator)) is operator


FORBIDDEN = """
    builtins.eval builtins.exec builtins.__import__ os.system operator.call operator.attrgetter
    torch.load torch.save torch.from_file torch.hub.load torch.ops.load_library
    torch.ops.aten.from_file torch.ops.aten.from_file.default torch.ops.__class__.__bases__
    torch.ops.higher_order.__init__ torch.utils.cpp_extension.load
"""


@pytest.mark.parametrize("name", FORBIDDEN.split())
def test_no_other_function_can_be_named(name: str) -> None:
    with pytest.raises(UserError):
        function_of_name(name)


def stored(folder: Path) -> dict[str, Any]:
    """A graph of one call, written to a folder; its JSON."""
    graph = fx.Graph()
    graph.output((graph.call_function(torch.relu, (graph.placeholder("x"),)),))
    StoredGraph(fx.GraphModule(torch.nn.Module(), graph), [torch.ones(4)]).write(folder)
    data: dict[str, Any] = json.loads((folder / GRAPH).read_text())
    return data


def _node(**change: object) -> Callable[[dict[str, Any]], None]:
    return lambda data: data["graph"]["nodes"][1].update(change)


def _input(**change: object) -> Callable[[dict[str, Any]], None]:
    return lambda data: data["inputs"][0].update(change)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_node(target="os.system", args=["id"]), "may not call"),
        (_node(op="call_method", target="__reduce_ex__", args=[{"node": "x"}]), "may not call"),
        (_node(op="call_method", target="apply_", args=[{"node": "x"}]), "may not call"),
        (_node(target="builtins.getattr", args=[{"node": "x"}, "__class__"]), "may not read"),
        (_node(op="call_module", target="x"), "expected one of placeholder"),
        (_node(op="get_attr", target="forward.__globals__"), "among the constants"),
        (_node(name="y; import os"), "a name of its own"),
        (_node(name="x"), "a name of its own"),
        (_node(args=[{"node": "z"}]), "unknown 'node'"),
        (_node(args=[{"device": "nowhere"}]), "unknown device"),
        (_node(kwargs={"a=1, b": 1}), "expected keyword arguments"),
        (_input(sizes=[5]), "ends at byte 20 of a storage with 16"),
        (_input(offset=-1), "integers from 0"),
        (_input(strides=[1, 1]), "1 sizes and 2 strides"),
        (_input(storage=1), "one of 1 storages"),
        (_input(dtype="Tensor"), "expected a dtype"),
        (_input(static=["guarded"]), "static: expected one of"),
        (_input(dtype="int32", requires_grad=True), "cannot require gradients"),
        (lambda data: data.update(version=2), "reads 1"),
        (lambda data: data.pop("about"), "an object with the keys"),
        (lambda data: data["inputs"].append({"value": 1}), "takes 1 inputs"),
        (lambda data: data["inputs"].append({"value": "text"}), "expected a number"),
        (lambda data: data["graph"]["nodes"].pop(), "the last node must be the output"),
        (lambda data: data["graph"]["constants"].update(forward={}), "graph"),
    ],
)
def test_a_wrong_file_is_refused_in_one_line(tmp_path: Path, change: Any, message: str) -> None:
    data = stored(tmp_path / "g")
    change(data)
    (tmp_path / "g" / GRAPH).write_text(json.dumps(data))
    with pytest.raises(UserError, match=message):
        StoredGraph.read(tmp_path / "g")


def test_a_file_from_before_static_inputs_is_read(tmp_path: Path) -> None:
    data = stored(tmp_path / "g")
    del data["inputs"][0]["static"]
    (tmp_path / "g" / GRAPH).write_text(json.dumps(data))
    assert not hasattr(StoredGraph.read(tmp_path / "g").inputs[0], STATIC)


@pytest.mark.parametrize("size", [0, 7, 20, -1])
def test_cut_storages_are_refused(tmp_path: Path, size: int) -> None:
    stored(tmp_path / "g")
    file = tmp_path / "g" / STORAGES
    file.write_bytes(file.read_bytes()[:size])
    with pytest.raises(UserError, match="safetensors"):
        StoredGraph.read(tmp_path / "g")


def test_what_a_file_cannot_say_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    graph = fx.Graph()
    # Ray replaces `print` in the process of its tests.
    graph.output((graph.call_function(repr, (graph.placeholder("x"),)),))
    module = fx.GraphModule(torch.nn.Module(), graph)
    with pytest.raises(UserError, match="cannot call builtins"):
        StoredGraph(module, [torch.ones(1)]).write(tmp_path / "g")
    assert not (tmp_path / "g").exists()
