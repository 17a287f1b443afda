"""The functions that torch traced patterns from, traced again on small tensors, as programs.

`register_replacement` keeps the function that it searches for. Of a pattern that was made
beforehand, torch also keeps the tensors that it was traced with: a start for sizes, dtypes and
strides. A rule matches every size, so the sizes are drawn anew: equal ones stay equal.
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import fx
from torch._functorch import config as functorch_config
from torch._inductor import pattern_matcher
from torch._inductor.pattern_matcher import PatternEntry, ReplacementPatternEntry
from torch._ops import OpOverload

from aliasproof.generators.rules.pattern_walk import call_as
from aliasproof.generators.scene import NoChoice, Pick, Scene
from aliasproof.programs.layouts import dense_strides
from aliasproof.programs.program import Argument, Input, Program, Ref, Storage

SIZES = (2, 3, 4, 5)  # so that attention stays within the largest result


@dataclass(frozen=True, slots=True)
class SearchFunction:
    """A function that torch searches for. `examples` are empty where torch keeps none."""

    function: Callable[..., Any]
    trace: Callable[..., fx.GraphModule]
    examples: tuple[Any, ...]
    numbers: dict[str, int | float]

    @classmethod
    def of(cls, entry: PatternEntry) -> SearchFunction | None:
        """That of an entry; None where the pattern was written by hand."""
        if not isinstance(entry, ReplacementPatternEntry):
            return None
        # A recorder of refusals may be around the check.
        kept = inspect.getclosurevars(inspect.unwrap(entry.extra_check)).nonlocals
        function, trace = kept["search_fn"], kept["trace_fn"]
        numbers = kept.get("scalar_workaround") or {}
        for known in pattern_matcher._known_precompiled_patterns:
            if known[4] is entry.pattern:
                return cls(function, trace, tuple(known[1]), numbers)
        return cls(function, trace, (), numbers)

    @property
    def parameters(self) -> list[str]:
        """The names of the arguments that are no numbers."""
        names = inspect.signature(self.function).parameters
        return [name for name in names if name not in self.numbers]


def program_of(search: SearchFunction, pick: Pick, kind: str, dtype: torch.dtype | None) -> Program:
    """The function on drawn tensors, as a program. Raises `NoChoice` where it does not run."""
    tensors = _tensors(search, pick, kind, dtype)
    by_name = dict(zip(search.parameters, tensors, strict=True))
    args = [
        search.numbers[name] if name in search.numbers else by_name[name]
        for name in inspect.signature(search.function).parameters
    ]
    try:
        with functorch_config.patch(functionalize_rng_ops=False), torch.enable_grad():
            graph = search.trace(search.function, args)
    except Exception as error:
        raise NoChoice from error
    return as_program(graph)


def _tensors(
    search: SearchFunction, pick: Pick, kind: str, dtype: torch.dtype | None
) -> list[torch.Tensor | float]:
    orders: list[tuple[int, ...]] = []  # of the dimensions in memory
    if search.examples:
        examples = [value for value in search.examples if isinstance(value, torch.Tensor)]
        shapes = [tuple(example.shape) for example in examples]
        dtypes = [example.dtype for example in examples]
        grads = [example.requires_grad for example in examples]
        orders = [_order(example) for example in examples]
    else:
        rank = pick.integer(1, 3)
        shapes = [(2,) * rank] * len(search.parameters)
        dtypes, grads = [torch.float32] * len(shapes), [False] * len(shapes)
        orders = [tuple(range(rank))] * len(shapes)
    known = sorted({size for shape in shapes for size in shape} - {1})
    sizes: dict[int, int] = {1: 1}
    for size in known:
        sizes[size] = pick.one(SIZES)
    if kind == "empty" and known:
        sizes[pick.one(known)] = 0
    shapes = [tuple(sizes[size] for size in shape) for shape in shapes]
    if kind == "0-d" and () not in shapes:
        raise NoChoice("the search function takes no tensor without dimensions")
    if dtype is not None:
        dtypes = [dtype if own.is_floating_point else own for own in dtypes]
    # Some rules want a number where the example has a tensor with one.
    number = pick.chance(70)
    return [
        pick.one((2.0, 0.5, 4.0))
        if number and shape == () and kind != "0-d"
        else _zeros(shape, order, own, grad=grad)
        for shape, own, grad, order in zip(shapes, dtypes, grads, orders, strict=True)
    ]


def _order(example: torch.Tensor) -> tuple[int, ...]:
    strides = example.stride()
    return tuple(sorted(range(len(strides)), key=lambda dim: -strides[dim]))


def _zeros(
    shape: tuple[int, ...], order: tuple[int, ...], dtype: torch.dtype, *, grad: bool
) -> torch.Tensor:
    """Zeros whose dimensions are in this order in memory, without gaps."""
    strides = dict(zip(order, dense_strides(tuple(shape[dim] for dim in order)), strict=False))
    in_order = tuple(strides[dim] for dim in range(len(shape)))
    empty = torch.empty_strided(shape, in_order, dtype=dtype)
    return empty.zero_().requires_grad_(grad and dtype.is_floating_point)


def as_program(graph: fx.GraphModule) -> Program:
    """A traced graph as a program. Raises `NoChoice` if eager refuses a call."""
    graph.graph.eliminate_dead_code()
    nodes = list(graph.graph.nodes)
    given = [node for node in nodes if node.op == "placeholder" and node.users]
    metas = [node.meta["val"] for node in given]
    if not all(isinstance(meta, torch.Tensor) for meta in metas):
        raise NoChoice
    storages = tuple(Storage(meta.dtype, meta.numel()) for meta in metas)
    inputs = tuple(
        Input(f"x{index}", index, meta.dtype, tuple(meta.shape), tuple(meta.stride()))
        for index, meta in enumerate(metas)
    )
    scene = Scene(storages, inputs, 0)
    made: dict[fx.Node, Any] = {
        node: Ref(view.name) for node, view in zip(given, inputs, strict=True)
    }
    for node in nodes:
        if node.op == "call_function":
            made[node] = _result(scene, node, made)
    (returned,) = (node.args[0] for node in nodes if node.op == "output")
    leaves = returned if isinstance(returned, list | tuple) else [returned]
    outputs = [made[leaf].name for leaf in leaves if isinstance(made.get(leaf), Ref)]
    return scene.program(tuple(dict.fromkeys(outputs)))


def _result(scene: Scene, node: fx.Node, made: dict[fx.Node, Any]) -> Any:
    if node.target is operator.getitem:
        results, index = cast(tuple[fx.Node, int], node.args)
        return Ref(made[results][index])
    if not isinstance(node.target, OpOverload):
        raise NoChoice
    args = tuple(_argument(value, made) for value in node.args)
    kwargs = {key: _argument(value, made) for key, value in node.kwargs.items()}
    names = call_as(scene, node.target, args, kwargs)
    single = isinstance(node.meta.get("val"), torch.Tensor)
    return Ref(names[0]) if single else names


def _argument(value: Any, made: dict[fx.Node, Any]) -> Argument:
    if isinstance(value, fx.Node):
        return cast(Argument, made[value])
    if isinstance(value, list | tuple):
        return tuple(_argument(element, made) for element in value)
    if isinstance(value, torch.device | torch.layout | torch.memory_format):
        return None
    return cast(Argument, value)
