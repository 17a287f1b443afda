"""`plain_match`: a program that a rule fires on, and that has nothing else.

It is searched for: calls are drawn until eager accepts them, and the rule's matcher too. What it
gives depends on the rule, the kind and the number alone, so a program is the same in each process.
"""

from __future__ import annotations

import functools
import math
import random
from collections import Counter
from collections.abc import Iterator

import torch
from torch._inductor.pattern_matcher import PatternEntry, _TargetExpr
from torch._ops import OpOverload

from aliasproof.generators.rules.matching import matches
from aliasproof.generators.rules.pattern_walk import ALIKE, Walk
from aliasproof.generators.rules.search_functions import SearchFunction, program_of
from aliasproof.generators.scene import NoChoice, Pick, Scene
from aliasproof.generators.sites.patterns import check_of, pattern_sites
from aliasproof.programs.layouts import dense_strides
from aliasproof.programs.program import Input, Program, Storage

# What the tensors of a match are like.
USUAL, EMPTY, NUMBER, OTHER_DTYPE = "usual", "empty", "0-d", "dtype"
KINDS = (USUAL, EMPTY, NUMBER, OTHER_DTYPE)
VARIANTS = 3  # of each kind; more cost time in each process, and differ in sizes alone

MOST_WALKS = 500
_MOST_TRACES = {True: 6, False: 2}  # of a search function: each takes as long as a hundred walks
MOST_CHECKS = 30
OTHER_DTYPES = (torch.float64, torch.bfloat16, torch.int64, torch.complex64, torch.float16)


@functools.cache
def rules() -> dict[str, PatternEntry]:
    """All entries of the installed Inductor by the name of their site."""
    return {site.name: entry for site, entry in pattern_sites()}


@functools.cache
def search_function(rule: str) -> SearchFunction | None:
    """What torch traced the rule's pattern from; None where it was written by hand."""
    return SearchFunction.of(rules()[rule])


def out_of_reach(rule: str) -> str | None:
    """Why no program of ATen calls can have what the rule matches; None if one may."""
    entry = rules()[rule]
    targets = set(_targets(entry.pattern))
    if not targets:
        return "matches anything"
    root = getattr(entry.pattern, "fns", ())
    if not any(isinstance(target, OpOverload) for target in root):
        return "matches functions of torch, methods or modules, which a program does not call"
    names = [target.name() for target in targets if isinstance(target, OpOverload)]
    if rule.startswith("freezing_patterns."):
        return "runs where weights are constants alone, in the variant 'freezing'"
    for packed in ("mkldnn", "onednn"):
        if any(packed in name for name in names):
            return f"matches operators of {packed}, which torch makes of packed constant weights"
    if search_function(rule) is not None and "aten::rand" in names:
        return "draws random numbers and replaces them by others: no values could be compared"
    if any(name.startswith("quantized_decomposed") for name in names):
        return "matches operators that torch registers where its quantization is imported"
    return None


def _targets(pattern: object) -> Iterator[object]:
    """All that the calls of a pattern call."""
    if isinstance(pattern, _TargetExpr):
        yield from pattern.fns
        parts = [*getattr(pattern, "args", ()), *getattr(pattern, "kwargs", {}).values()]
    elif isinstance(pattern, list | tuple):
        parts = list(pattern)
    else:
        names = ("outputs", "pattern", "inner_pattern")
        parts = [getattr(pattern, name) for name in names if hasattr(pattern, name)]
    for part in parts:
        yield from _targets(part)


@functools.cache
def plain_match(rule: str, kind: str, number: int) -> Program | str:
    """The program of that number, or why there is none."""
    entry = rules()[rule]
    reason = out_of_reach(rule)
    if reason is not None:
        return reason
    usual = None if (kind, number) == (USUAL, 0) else plain_match(rule, USUAL, 0)
    first = plain_match(rule, kind, 0) if number else usual
    if isinstance(usual, str) or isinstance(first, str):  # the search was long, and in vain
        return usual if isinstance(usual, str) else str(first)
    source = random.Random(f"{rule} {kind} {number}")
    pick = Pick(source.randint)
    search = search_function(rule)
    refused: Counter[str] = Counter()
    checks = 0
    for _ in range(MOST_WALKS if search is None else _MOST_TRACES[usual is None]):
        try:
            if search is None:
                program = _walked(entry, pick, kind)
            else:
                dtype = pick.one(OTHER_DTYPES) if kind == OTHER_DTYPE else None
                program = program_of(search, pick, kind, dtype)
        except NoChoice as error:
            refused[(str(error) or str(error.__cause__ or "nothing fits")).partition("\n")[0]] += 1
            continue
        if not _has(program, kind, usual):
            refused[f"no tensor of the match is {_WORDS[kind]}"] += 1
            continue
        # The first match of a search function says that it can be met; a trace takes time.
        if (search is not None and usual is not None) or matches(entry, program):
            return program
        checks += 1
        if checks == MOST_CHECKS:
            break
    if checks:
        return f"{check_of(entry).__qualname__} accepts none of {checks} draws"
    return f"eager accepts no draw: {refused.most_common(1)[0][0]}"


_WORDS = {EMPTY: "empty", NUMBER: "without dimensions", OTHER_DTYPE: "of another dtype"}


def _has(program: Program, kind: str, usual: Program | None) -> bool:
    """True if an input is what the kind asks for."""
    if kind == USUAL or usual is None:
        return True
    if kind == OTHER_DTYPE:
        known = {view.dtype for view in usual.inputs}
        return any(view.dtype not in known for view in program.inputs)
    if kind == NUMBER:
        return any(view.sizes == () for view in program.inputs)
    return any(0 in view.sizes for view in program.inputs)


def _walked(entry: PatternEntry, pick: Pick, kind: str) -> Program:
    scene = Scene(*_pool(pick, kind), seed=0)
    walk = Walk(pick, scene)
    walk.draw(entry.pattern)
    read = {name for call in scene.instructions for name in call.refs}
    outputs = [
        name for call in scene.instructions for name in call.results if name not in read
    ] or list(scene.instructions[-1].results)
    return pruned(scene.program(outputs))


def pruned(program: Program) -> Program:
    """The program without the inputs that no call reads, each with a storage of its own."""
    read = {name for call in program.instructions for name in call.refs}
    views = [view for view in program.inputs if view.name in read]
    storages = tuple(program.storages[view.storage] for view in views)
    inputs = tuple(
        Input(view.name, index, view.dtype, view.sizes, view.strides, view.offset)
        for index, view in enumerate(views)
    )
    kept = Program(storages, inputs, program.instructions, program.outputs, program.seed)
    return kept.renamed()


def _pool(pick: Pick, kind: str) -> tuple[tuple[Storage, ...], tuple[Input, ...]]:
    """Tensors for a walk to choose from: most have one shape and dtype."""
    dtype = pick.one(OTHER_DTYPES) if kind == OTHER_DTYPE else torch.float32
    if kind == USUAL and pick.chance(20):
        dtype = torch.bfloat16
    rank = 0 if kind == NUMBER else pick.one((2, 2, 2, 4, 3, 1, 2))
    size = pick.one((2, 3, 4))
    base = [size] * rank if pick.chance(60) else [pick.integer(1, 4) for _ in range(rank)]
    if kind == EMPTY and rank:
        base[pick.integer(0, rank - 1)] = 0
    shape = tuple(base)
    shapes = [shape] * ALIKE
    shapes += [shape[::-1], shape[-1:], shape[:1], (*shape[:-1], 1)[:rank], ()]
    kinds = [dtype] * len(shapes)
    if dtype == torch.bfloat16:  # with weights of 8 bits
        kinds[1] = kinds[2] = torch.int8
    for index_shape in (shape[:1], (*shape[:-1], 1)[:rank]):
        shapes.append(index_shape)
        kinds.append(torch.int64)
    storages, inputs = [], []
    for index, (sizes, own) in enumerate(zip(shapes, kinds, strict=True)):
        storages.append(Storage(own, math.prod(sizes)))
        inputs.append(Input(f"x{index}", index, own, sizes, dense_strides(sizes)))
    return tuple(storages), tuple(inputs)
