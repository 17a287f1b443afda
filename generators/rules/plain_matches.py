"""`plain_match`: a program that a rule fires on, with nothing else in it.

It is searched for: calls are drawn until eager and the rule's matcher accept them. The result
depends only on the rule, the kind and the number, so a program is the same in each process.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import math
import operator
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, cast

import torch
from torch import fx
from torch._functorch import config as functorch_config
from torch._inductor import config, pattern_matcher
from torch._inductor.pattern_matcher import PatternEntry, ReplacementPatternEntry
from torch._ops import OpOverload

from aliasproof.generators.features import RULES_OF
from aliasproof.generators.rules.matching import RAISES, TAKEN, is_covered, refusal
from aliasproof.generators.rules.pattern_walk import (
    ALIKE,
    Walk,
    call_as,
    in_place_forms,
    operators_of,
    play,
)
from aliasproof.generators.scene import NoChoice, Pick, Scene
from aliasproof.generators.sites.patterns import (
    check_of,
    names_in,
    parts_of,
    reached_from,
    rules,
    variables_of,
)
from aliasproof.ir.program import Argument, Input, Program, Ref, Storage
from aliasproof.ir.regions import dense_strides, reach

# --- search functions -----------------------------------------------------------------------------
#
# The functions that torch traced patterns from, traced again on small tensors, as programs.
#
# `register_replacement` keeps the function that it searches for. For a precompiled pattern, torch
# also keeps the tensors that it was traced with: hints for sizes, dtypes and strides. A rule
# matches every size, so the sizes are drawn anew; equal sizes stay equal.


Shape: TypeAlias = tuple[int, ...]
SIZES = (2, 3, 4, 5)  # so that attention stays within the largest result


@dataclass(frozen=True, slots=True)
class SearchFunction:
    """A function that torch searches for. `examples` are empty if torch keeps none."""

    function: Callable[..., Any]
    trace: Callable[..., fx.GraphModule]
    examples: tuple[Any, ...]
    numbers: dict[str, int | float]

    @classmethod
    def of(cls, entry: PatternEntry) -> SearchFunction | None:
        """The search function of an entry; None if the pattern was written by hand."""
        if not isinstance(entry, ReplacementPatternEntry):
            return None
        # A recorder of refusals may wrap the check.
        kept = variables_of(entry.extra_check)
        function, trace = kept["search_fn"], kept["trace_fn"]
        numbers = kept.get("scalar_workaround") or {}
        # Each entry is a tuple in torch 2.13, and an object with the same fields in 2.15.
        precompiled: list[Any] = pattern_matcher._known_precompiled_patterns
        for known in precompiled:
            _, examples, *_, pattern = known if isinstance(known, tuple) else vars(known).values()
            if pattern is entry.pattern:
                return cls(function, trace, tuple(examples), numbers)
        return cls(function, trace, (), numbers)

    @property
    def parameters(self) -> list[str]:
        """The names of the arguments that are not in `numbers`."""
        names = inspect.signature(self.function).parameters
        return [name for name in names if name not in self.numbers]


def program_of(search: SearchFunction, pick: Pick, kind: str, dtype: torch.dtype | None) -> Program:
    """The function on drawn tensors, as a program. Raises `NoChoice` if it does not run."""
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
    # Without drops, the traced dropout still draws numbers, but values can be compared. Traced
    # without drops, it would draw no numbers.
    drops = search.numbers.get("dropout_p")
    if drops is not None:
        with_others = {drops: 0.0, 1 / (1 - drops): 1.0}
        for node in graph.graph.nodes:
            node.args = tuple(
                with_others.get(value, value) if isinstance(value, float) else value
                for value in node.args
            )
    return as_program(graph)


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
    # Some rules require a number where the example has a tensor with one element.
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
        """The layout of a tensor."""
        strides, sizes = example.stride(), example.shape
        order = tuple(sorted(range(len(strides)), key=lambda dim: -strides[dim]))
        pairs = itertools.pairwise(order)
        gaps = {outer for outer, inner in pairs if strides[outer] > strides[inner] * sizes[inner]}
        return cls(order, frozenset(gaps))

    def zeros(self, shape: Shape, dtype: torch.dtype, *, grad: bool) -> torch.Tensor:
        """Zeros in this layout. A gap is as long as the data before it."""
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


# --- plain matches --------------------------------------------------------------------------------


# The kind of tensors in a match.
USUAL, EMPTY, NUMBER, OTHER_DTYPE = "usual", "empty", "0-d", "dtype"
KINDS = (USUAL, EMPTY, NUMBER, OTHER_DTYPE)
VARIANTS = 3  # of each kind; more cost time in each process, and differ only in sizes

MOST_WALKS = 500
_MOST_TRACES = {True: 3, False: 2}  # of a search function: each takes as long as a hundred walks
MOST_CHECKS = {False: 30, True: 60}  # by whether constants are drawn, too
OTHER_DTYPES = (torch.float64, torch.bfloat16, torch.int64, torch.complex64, torch.float16)


@functools.cache
def search_function(rule: str) -> SearchFunction | None:
    """The function that torch traced the rule's pattern from; None if written by hand."""
    return None if rule in in_place_forms() else SearchFunction.of(rules()[rule])


def variant_of(rule: str) -> str | None:
    """The variant that the rule needs; None if it fires on the plain target."""
    return next((it for it, start in RULES_OF.items() if rule.startswith(start)), None)


def out_of_reach(rule: str) -> str | None:
    """Why no program of ATen calls can match the rule; None if one may."""
    if rule in in_place_forms():
        return None
    entry = rules()[rule]
    targets = {target for part in parts_of(entry.pattern) for target in getattr(part, "fns", ())}
    if not targets:
        return "matches anything"
    root = getattr(entry.pattern, "fns", ())
    if not any(map(operators_of, root)):
        return "matches functions of torch, methods or modules, which a program does not call"
    names = [target.name() for target in targets if isinstance(target, OpOverload)]
    for packed in ("mkldnn", "onednn"):
        if any(packed in name for name in names):
            return f"matches operators of {packed}, which torch makes of packed constant weights"
    if any(name.startswith("quantized_decomposed") for name in names):
        return "matches operators that torch registers where its quantization is imported"
    return None


@dataclass(frozen=True, slots=True)
class FoundMatch:
    """The program that a search found, or the reason why there is none.

    `setting` is an option of Inductor that the rule's check requires, if it refuses all without.
    """

    program: Program | None = None
    refused: str = ""
    setting: tuple[str, bool] | None = None


def plain_match(rule: str, kind: str, number: int) -> Program | str:
    """The program of this number, or the reason why there is none."""
    result = find_match(rule, kind, number)
    return result.refused if result.program is None else result.program


@functools.cache
def find_match(rule: str, kind: str, number: int) -> FoundMatch:
    """The result of the search for the program of this number."""
    reason = out_of_reach(rule)
    if reason is not None:
        return FoundMatch(refused=reason)
    usual = None if (kind, number) == (USUAL, 0) else find_match(rule, USUAL, 0)
    first = find_match(rule, kind, 0) if number else usual
    for earlier in (usual, first):
        if earlier is not None and earlier.program is None:  # the search was long and failed
            return earlier
    if usual is not None:
        with config.patch(dict([usual.setting] if usual.setting else [])):
            return replace(_searched(rule, kind, number, usual.program), setting=usual.setting)
    default = _searched(rule, kind, number, None)
    if (
        rule in in_place_forms()
        or default.program is not None
        or not default.refused.startswith(_CHECK)
    ):
        return default
    for name, value in settings_of(check_of(rules()[rule])):
        with config.patch({name: value}):
            changed = _searched(rule, kind, number, None)
        if changed.program is not None:
            return replace(changed, setting=(name, value))
    return default


def settings_of(check: Callable[..., object]) -> Iterator[tuple[str, bool]]:
    """The settings of Inductor that a check reads, each with the opposite value."""
    read = {name for function in reached_from(check) for name in names_in(function.__code__)}
    for name, value in config.get_config_copy().items():
        if name.rpartition(".")[2] in read and isinstance(value, bool):
            yield name, not value


def _searched(rule: str, kind: str, number: int, usual: Program | None) -> FoundMatch:
    search, frozen = search_function(rule), variant_of(rule) == "freezing"
    pick = Pick(random.Random(f"{rule} {kind} {number}").randint)
    refused: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    raises: list[Program] = []  # a program on which the rule's check raises also meets the rule
    for _ in range(MOST_WALKS if search is None else _MOST_TRACES[usual is None]):
        try:
            if search is None:
                program = _walked(rule, pick, kind)
            else:
                dtype = pick.one(OTHER_DTYPES) if kind == OTHER_DTYPE else None
                program = program_of(search, pick, kind, dtype)
            program = with_constants(pick, program) if frozen else program
        except NoChoice as error:
            refused[(str(error) or str(error.__cause__ or "nothing fits")).partition("\n")[0]] += 1
            continue
        if not has_kind(program, kind, usual):
            refused[f"no tensor of the match is {WORDS[kind]}"] += 1
            continue
        # The first match of a search function shows that it is reachable, and a trace takes time. A
        # match of functions of torch shows only in a graph of Dynamo.
        traced = search is not None and usual is not None
        known = rule in in_place_forms() or variant_of(rule) == "as-written" or traced
        reason = None if known else refusal(rules()[rule], program, frozen=frozen)
        if reason is None:
            return FoundMatch(program)
        reasons[reason] += 1
        raises += [program] * (reason == RAISES)
        # An earlier entry whose pattern matches as much would take the next draw, too.
        covered = reason.endswith(TAKEN) and is_covered(rules()[rule])
        if covered or reasons.total() == MOST_CHECKS[frozen]:
            break
    if raises:
        return FoundMatch(raises[0])
    if not reasons:
        return FoundMatch(refused=f"eager accepts no draw: {refused.most_common(1)[0][0]}")
    taken = [reason for reason in reasons if TAKEN in reason]
    none = f"{_CHECK}{check_of(rules()[rule]).__qualname__} accepts none of {reasons.total()} draws"
    return FoundMatch(refused=taken[0] if taken else none)


_CHECK = "its check "


WORDS = {EMPTY: "empty", NUMBER: "without dimensions", OTHER_DTYPE: "of another dtype"}


def has_kind(program: Program, kind: str, usual: Program | None) -> bool:
    """True if an input has the properties of the kind."""
    if kind == USUAL or usual is None:
        return True
    if kind == OTHER_DTYPE:
        known = {view.dtype for view in usual.inputs}
        return any(view.dtype not in known for view in program.inputs)
    if kind == NUMBER:
        return any(view.sizes == () for view in program.inputs)
    return any(0 in view.sizes for view in program.inputs)


def _walked(rule: str, pick: Pick, kind: str) -> Program:
    scene = Scene(*_pool(pick, kind), seed=0)
    if rule in in_place_forms():
        play(in_place_forms()[rule], pick, scene)
    else:
        Walk(pick, scene).draw(rules()[rule].pattern)
    read = {name for call in scene.instructions for name in call.refs}
    outputs = [
        name for call in scene.instructions for name in call.results if name not in read
    ] or list(scene.instructions[-1].results)
    return drop_unread_inputs(scene.program(outputs))


def with_constants(pick: Pick, program: Program) -> Program:
    """The program with its inputs reordered: the last half is constant.

    Mostly one input is not constant; unused inputs before it fill up the first half.
    """
    views = list(program.inputs)
    given = views.pop(0 if pick.chance(60) else pick.integer(0, len(views) - 1))
    before = max(len(views) - 1, 0) if pick.chance(80) else pick.integer(0, 2)
    unused = [replace(given, name=f"unused{index}") for index in range(before)]
    views = [*unused, given, *views]
    return _with_inputs(program, views)


def drop_unread_inputs(program: Program) -> Program:
    """The program without the inputs that no call reads; each of the rest gets its own storage."""
    read = {name for call in program.instructions for name in call.refs}
    views = [view for view in program.inputs if view.name in read]
    return _with_inputs(program, views)


def _with_inputs(program: Program, views: list[Input]) -> Program:
    storages = tuple(program.storages[view.storage] for view in views)
    inputs = tuple(replace(view, storage=index) for index, view in enumerate(views))
    return replace(program, storages=storages, inputs=inputs).renamed()


def inputs_of(
    shapes: Iterable[Shape], dtypes: Iterable[torch.dtype]
) -> tuple[tuple[Storage, ...], tuple[Input, ...]]:
    """Dense inputs of these shapes and dtypes, each with a storage of its own."""
    storages, inputs = [], []
    for index, (sizes, dtype) in enumerate(zip(shapes, dtypes, strict=True)):
        storages.append(Storage(dtype, math.prod(sizes)))
        inputs.append(Input(f"x{index}", index, dtype, sizes, dense_strides(sizes)))
    return tuple(storages), tuple(inputs)


def draw_shape(pick: Pick, kind: str, ranks: Sequence[int], last: Sequence[int] = ()) -> Shape:
    """A small shape for most inputs of this kind; its last size may be one of `last`."""
    rank = 0 if kind == NUMBER else pick.one(ranks)
    size = pick.one((2, 3, 4))
    shape = [size] * rank if pick.chance(60) else [pick.integer(1, 4) for _ in range(rank)]
    if last and rank and pick.chance(30):
        shape[-1] = pick.one(last)
    if kind == EMPTY and rank:
        shape[pick.integer(0, rank - 1)] = 0
    return tuple(shape)


def _pool(pick: Pick, kind: str) -> tuple[tuple[Storage, ...], tuple[Input, ...]]:
    """Tensors for a walk to choose from: most have one shape and dtype."""
    dtype = pick.one(OTHER_DTYPES) if kind == OTHER_DTYPE else torch.float32
    if kind == USUAL and pick.chance(20):
        dtype = torch.bfloat16
    shape = draw_shape(pick, kind, (2, 2, 2, 4, 3, 1, 2))
    rank = len(shape)
    shapes = [shape] * ALIKE
    shapes += [shape[::-1], shape[-1:], shape[:1], (*shape[:-1], 1)[:rank], ()]
    # One element per channel, which convolutions take.
    shapes += [(1, shape[1], *(1,) * (rank - 2))] if rank > 2 else []
    kinds = [dtype] * len(shapes)
    if dtype == torch.bfloat16:  # with weights of 8 bits
        kinds[1] = kinds[2] = torch.int8
    shapes += [shape[:1], (*shape[:-1], 1)[:rank]]
    return inputs_of(shapes, [*kinds, torch.int64, torch.int64])
