"""The functions that torch traced patterns from, traced again on small tensors, as programs.

`register_replacement` keeps the function that it searches for. Of a pattern that was made
beforehand, torch also keeps the tensors that it was traced with: a start for sizes, dtypes and
strides. A rule matches every size, so the sizes are drawn anew: equal ones stay equal.
"""

from __future__ import annotations

import inspect
import itertools
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
from aliasproof.ir.program import Argument, Input, Program, Ref, Storage
from aliasproof.ir.regions import reach

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
    return as_program(_keeping_all(graph, search))


# A dropout that drops nothing draws numbers, and its values can be compared.
DROPOUT = "dropout_p"


def _keeping_all(graph: fx.GraphModule, search: SearchFunction) -> fx.GraphModule:
    """The graph with another probability of dropout: none.

    With none from the start, torch would trace no random numbers.
    """
    drops = search.numbers.get(DROPOUT)
    if drops is not None:
        with_others = {drops: 0.0, 1 / (1 - drops): 1.0}
        for node in graph.graph.nodes:
            node.args = tuple(
                with_others.get(value, value) if isinstance(value, float) else value
                for value in node.args
            )
    return graph


def _tensors(
    search: SearchFunction, pick: Pick, kind: str, dtype: torch.dtype | None
) -> list[torch.Tensor | float]:
    layouts: list[ExampleLayout] = []
    if search.examples:
        examples = [value for value in search.examples if isinstance(value, torch.Tensor)]
        shapes = [tuple(example.shape) for example in examples]
        dtypes = [example.dtype for example in examples]
        grads = [example.requires_grad for example in examples]
        layouts = [ExampleLayout.of(example) for example in examples]
    else:
        rank = pick.integer(1, 3)
        shapes = [(2,) * rank] * len(search.parameters)
        dtypes, grads = [torch.float32] * len(shapes), [False] * len(shapes)
        layouts = [ExampleLayout(tuple(range(rank)), frozenset())] * len(shapes)
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
        else layout.zeros(shape, own, grad=grad)
        for shape, own, grad, layout in zip(shapes, dtypes, grads, layouts, strict=True)
    ]


@dataclass(frozen=True, slots=True)
class ExampleLayout:
    """The order of the dimensions in memory, and those with a gap after each index."""

    order: tuple[int, ...]
    gaps: frozenset[int]

    @classmethod
    def of(cls, example: torch.Tensor) -> ExampleLayout:
        """That of a tensor."""
        strides, sizes = example.stride(), example.shape
        order = tuple(sorted(range(len(strides)), key=lambda dim: -strides[dim]))
        pairs = itertools.pairwise(order)
        gaps = {outer for outer, inner in pairs if strides[outer] > strides[inner] * sizes[inner]}
        return cls(order, frozenset(gaps))

    def zeros(self, shape: tuple[int, ...], dtype: torch.dtype, *, grad: bool) -> torch.Tensor:
        """Zeros that are laid out so. A gap is as long as what is before it."""
        if len(self.order) != len(shape):
            return torch.zeros(shape, dtype=dtype).requires_grad_(grad and dtype.is_floating_point)
        strides, step = [0] * len(shape), 1
        for inner, dim in zip((None, *reversed(self.order)), reversed(self.order), strict=False):
            step *= 2 if dim in self.gaps and inner is not None else 1
            strides[dim] = step
            step *= max(shape[dim], 1)
        empty = torch.empty_strided(shape, strides, dtype=dtype)
        return empty.zero_().requires_grad_(grad and dtype.is_floating_point)


def as_program(graph: fx.GraphModule) -> Program:
    """A traced graph as a program. Raises `NoChoice` if eager refuses a call."""
    graph.graph.eliminate_dead_code()
    nodes = list(graph.graph.nodes)
    given = [node for node in nodes if node.op == "placeholder" and node.users]
    metas = [node.meta["val"] for node in given]
    if not all(isinstance(meta, torch.Tensor) for meta in metas):
        raise NoChoice
    storages = tuple(Storage(meta.dtype, reach(meta.shape, meta.stride())) for meta in metas)
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
