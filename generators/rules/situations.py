"""What rules forget: situations around the calls that a rule matches.

A situation changes the inputs of a plain match, or plays calls before, between and after those of
the match. Whether it is there, `evidence` measures on the finished program.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from aliasproof.generators.rules.plain_matches import EMPTY, NUMBER, OTHER_DTYPE, USUAL
from aliasproof.generators.rules.weaving import Evidence, Weaving
from aliasproof.generators.scenario_steps import any_view, fresh, overwrite, write_somewhere
from aliasproof.generators.scene import NoChoice, Pick
from aliasproof.ir.program import Input, Program, Ref
from aliasproof.ir.regions import dense_strides, reach

# --- operand layouts ------------------------------------------------------------------------------
#
# Inputs of a plain match in other layouts, each with a storage of its own or a shared one.


def is_expanded(tensor: torch.Tensor) -> bool:
    """True if elements along a dimension are the same."""
    return any(
        size > 1 and stride == 0 for size, stride in zip(tensor.shape, tensor.stride(), strict=True)
    )


def is_transposed(tensor: torch.Tensor) -> bool:
    """True if dimensions are in another order in memory than in the shape."""
    strides = [
        stride
        for size, stride in zip(tensor.shape, tensor.stride(), strict=True)
        if size > 1 and stride > 0
    ]
    return strides != sorted(strides, reverse=True)


def _changed(
    pick: Pick, program: Program, fits: Callable[[Input], bool], reason: str
) -> tuple[int, Input]:
    """The index of an input that fits, and the input. Raises `NoChoice` without one."""
    indices = [index for index, view in enumerate(program.inputs) if fits(view)]
    if not indices:
        raise NoChoice(reason)
    index = pick.one(indices)
    return index, program.inputs[index]


def _with(program: Program, index: int, view: Input) -> Program:
    """The program with that input, and a storage that is long enough for all its views."""
    program = program.with_input(index, view)
    storages = list(program.storages)
    needed = view.offset + reach(view.sizes, view.strides)
    own = storages[view.storage]
    storages[view.storage] = replace(own, length=max(own.length, needed))
    return replace(program, storages=tuple(storages))


def expanded(pick: Pick, program: Program) -> Program:
    """An operand has the same elements along a dimension."""
    reason = "no operand has a dimension with several elements"
    fits = lambda view: any(size > 1 for size in view.sizes)  # noqa: E731 - one rule per line
    index, view = _changed(pick, program, fits, reason)
    dim = pick.one([dim for dim, size in enumerate(view.sizes) if size > 1])
    kept = tuple(1 if each == dim else size for each, size in enumerate(view.sizes))
    strides = dense_strides(kept)
    repeated = tuple(0 if each == dim else stride for each, stride in enumerate(strides))
    return _with(program, index, replace(view, strides=repeated))


def transposed(pick: Pick, program: Program) -> Program:
    """An operand has its dimensions in another order in memory."""
    reason = "no operand has two dimensions with several elements"
    fits = lambda view: sum(size > 1 for size in view.sizes) >= 2  # noqa: E731
    index, view = _changed(pick, program, fits, reason)
    strides = dense_strides(view.sizes[::-1])[::-1]
    if strides == view.strides:
        strides = dense_strides(view.sizes)
    return _with(program, index, replace(view, strides=strides))


def with_offset(pick: Pick, program: Program) -> Program:
    """An operand does not begin at the start of its storage."""
    index, view = _changed(pick, program, lambda view: True, "the match takes no tensor")
    return _with(program, index, replace(view, offset=view.offset + pick.one((1, 2, 3))))


def aliased(pick: Pick, program: Program) -> Program:
    """Two operands share a storage: the same elements, or some of them."""
    pairs = [
        (first, second)
        for first, one in enumerate(program.inputs)
        for second, other in enumerate(program.inputs)
        if first < second and one.dtype == other.dtype and 0 not in (*one.sizes, *other.sizes)
    ]
    if not pairs:
        raise NoChoice("no two operands have one dtype")
    first, second = pick.one(pairs)
    one, other = program.inputs[first], program.inputs[second]
    span = reach(one.sizes, one.strides)
    offset = one.offset + pick.one((0, 0, 1, span // 2)) if span > 1 else one.offset
    shared = replace(other, storage=one.storage, offset=min(offset, one.offset + span - 1))
    return without_unused_storages(_with(program, second, shared))


def without_unused_storages(program: Program) -> Program:
    """The program without the storages that no input views."""
    used = sorted({view.storage for view in program.inputs})
    return replace(
        program,
        storages=tuple(program.storages[index] for index in used),
        inputs=tuple(replace(view, storage=used.index(view.storage)) for view in program.inputs),
    )


# --- situations -----------------------------------------------------------------------------------


def as_they_are(pick: Pick, program: Program) -> Program:
    """The inputs of a plain match, unchanged."""
    return program


@dataclass(frozen=True, slots=True)
class Situation:
    """One line of the table. `kind` is that of the plain match.

    `inputs` changes its inputs; `weave` plays it, and what is around it. Both raise `NoChoice`,
    with the reason, where the situation is not possible. `holds` says whether it is there.
    """

    name: str
    sketch: str
    holds: Callable[[Evidence], bool]
    weave: Callable[[Weaving], None]
    inputs: Callable[[Pick, Program], Program] = as_they_are
    kind: str = USUAL


def match_alone(weaving: Weaving) -> None:
    weaving.play()
    weaving.scene.wants(*weaving.results())


def match_then_write(weaving: Weaving) -> None:
    """The match, and a write to an operand or the result in most cases: layouts need a reason."""
    weaving.play()
    if weaving.pick.chance(60):
        write_somewhere(weaving.pick, weaving.scene, weaving.operand())
    weaving.scene.wants(*weaving.results())


def written_before(weaving: Weaving) -> None:
    write_somewhere(weaving.pick, weaving.scene, weaving.operand())
    match_alone(weaving)


def written_between(weaving: Weaving) -> None:
    weaving.play(weaving.middle())
    write_somewhere(weaving.pick, weaving.scene, weaving.operand())
    match_alone(weaving)


def written_after(weaving: Weaving) -> None:
    weaving.play()
    write_somewhere(weaving.pick, weaving.scene, weaving.operand())
    weaving.scene.wants(*weaving.results())


def inner_read(weaving: Weaving) -> None:
    """An inner value is returned, or another call reads it."""
    weaving.play()
    inner = weaving.inner()
    if weaving.pick.chance(50):
        inner = fresh(weaving.pick, weaving.scene, inner)
    weaving.scene.wants(*weaving.results(), inner)


def inner_written(weaving: Weaving) -> None:
    """An inner value is written, between the calls of the match or after them."""
    weaving.play(weaving.middle())
    inner = weaving.inner()
    if weaving.pick.chance(50):
        weaving.play()
    overwrite(weaving.pick, weaving.scene, inner)
    match_alone(weaving)


def match_twice(weaving: Weaving) -> None:
    """The match, and again on an operand that may be written in between."""
    weaving.play()
    first = weaving.results()
    if weaving.pick.chance(60):
        write_somewhere(weaving.pick, weaving.scene, weaving.operand())
    weaving.played = 0
    weaving.play()
    weaving.scene.wants(*first[:1], *weaving.results()[:1])


def beside_operand(weaving: Weaving) -> None:
    """The result is returned beside an operand, or a view of it, that may be written."""
    weaving.play()
    operand = weaving.operand()
    shown = any_view(weaving.pick, weaving.scene, operand) if weaving.pick.chance(70) else operand
    if weaving.pick.chance(40):
        write_somewhere(weaving.pick, weaving.scene, operand)
    weaving.scene.wants(weaving.result(), shown)


def by_epilogue(weaving: Weaving) -> None:
    """The result is copied into an operand."""
    weaving.play()
    pairs = [
        (result, operand)
        for result in weaving.results()
        for operand in weaving.operands()
        if _takes(weaving.value(operand), weaving.value(result))
    ]
    if not pairs:
        raise NoChoice("each result is larger than each operand")
    result, part = weaving.pick.one(pairs)
    shape, own = weaving.value(part).shape, weaving.value(result).shape
    # A result may be smaller than an operand: then it fills a part.
    for dim, size in enumerate(own, len(shape) - len(own)):
        if size not in (1, shape[dim]):
            part = weaving.scene.call("aten.slice.Tensor", Ref(part), dim, 0, size)[0]
    weaving.scene.call("aten.copy_.default", Ref(part), Ref(result))
    weaving.scene.wants(result)


def _takes(operand: torch.Tensor, result: torch.Tensor) -> bool:
    """True if a part of the operand has the sizes of the result."""
    if result.dim() > operand.dim() or result.is_complex() > operand.is_complex():
        return False
    last = operand.shape[operand.dim() - result.dim() :]
    return all(need <= have for need, have in zip(result.shape, last, strict=True))


SITUATIONS: tuple[Situation, ...] = (
    Situation("alone", "f(x, y)", lambda seen: True, match_alone),
    Situation(
        "operand written before",
        "x.add_(1); f(x, y)",
        lambda seen: seen.writes_operand(seen.before()),
        written_before,
    ),
    Situation(
        "operand written between",
        "a = g(x); x.add_(1); f(a, x)",
        lambda seen: seen.writes_operand(seen.between()),
        written_between,
    ),
    Situation(
        "operand written after",
        "a = f(x, y); x.add_(1); return a",
        lambda seen: seen.writes_operand(seen.after()),
        written_after,
    ),
    Situation(
        "inner value read", "a = g(x); b = f(a); return a + 1, b", Evidence.reads_inner, inner_read
    ),
    Situation(
        "inner value written",
        "a = g(x); b = f(a); a.add_(1); return b",
        Evidence.writes_inner,
        inner_written,
    ),
    Situation(
        "operands alias", "f(x[0:2], x[1:3])", Evidence.operands_alias, match_then_write, aliased
    ),
    Situation(
        "operand expanded",
        "f(x.expand(3, 4))",
        lambda seen: seen.some_operand(is_expanded),
        match_then_write,
        expanded,
    ),
    Situation(
        "operand transposed",
        "f(x.t())",
        lambda seen: seen.some_operand(is_transposed),
        match_then_write,
        transposed,
    ),
    Situation(
        "operand with an offset",
        "f(x[1:])",
        lambda seen: seen.some_operand(lambda tensor: tensor.storage_offset() > 0),
        match_then_write,
        with_offset,
    ),
    Situation(
        "operand without elements",
        "f(x[0:0])",
        lambda seen: seen.some_operand(lambda tensor: tensor.numel() == 0),
        match_then_write,
        kind=EMPTY,
    ),
    Situation(
        "operand without dimensions",
        "f(x[0])",
        lambda seen: seen.some_operand(lambda tensor: tensor.dim() == 0),
        match_then_write,
        kind=NUMBER,
    ),
    Situation(
        "operand of another dtype",
        "f(x.double())",
        Evidence.has_other_dtype,
        match_then_write,
        kind=OTHER_DTYPE,
    ),
    Situation(
        "match twice",
        "a = f(x, y); x.add_(1); b = f(x, y)",
        lambda seen: bool(seen.matched.again),
        match_twice,
    ),
    Situation(
        "result beside operand", "return f(x, y), x[0]", Evidence.returns_beside, beside_operand
    ),
    Situation("result written back", "x.copy_(f(x, y))", Evidence.written_back, by_epilogue),
)
NAMES = tuple(situation.name for situation in SITUATIONS)
BY_NAME = {situation.name: situation for situation in SITUATIONS}
