"""Situations that rules forget: variants of the calls that a rule matches.

A situation changes the inputs of a plain match, or plays calls before, between and after the calls
of the match (`Weaving`). `tests/generators/evidence.py` measures whether a program has it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch

from aliasproof.generators.rules.plain_matches import EMPTY, NUMBER, OTHER_DTYPE, USUAL
from aliasproof.generators.scenario_steps import Steps
from aliasproof.generators.scene import NoChoice, Pick
from aliasproof.ir.program import Input, Program, rename
from aliasproof.ir.regions import dense_strides, reach

# --- weaving: the calls of a plain match, played into a scene with other calls around them --------


@dataclass(slots=True)
class Weaving:
    """A match that is played call by call. `names` maps names of the plain match to the scene's."""

    steps: Steps
    plain: Program
    names: dict[str, str] = field(init=False)
    calls: list[int] = field(default_factory=list)
    played: int = 0

    def __post_init__(self) -> None:
        self.names = {view.name: view.name for view in self.plain.inputs}

    def compute_operands(self) -> None:
        """Compute some operands from inputs, or make them views of computed tensors."""
        for view in self.plain.inputs:
            if self.steps.chance(25):
                name = self.steps.fresh(view.name)
                if self.steps.chance(30):
                    name = self.steps.new("aten.alias.default", name)
                self.names[view.name] = name

    def play(self, until: int | None = None) -> None:
        """Play the next calls of the match, up to call `until`; None: all that are left.

        Raises `NoChoice` if eager refuses one.
        """
        stop = len(self.plain) if until is None else until
        for call in self.plain.instructions[self.played : stop]:
            self.calls.append(len(self.steps.scene.instructions))
            args = tuple(rename(argument, self.names) for argument in call.args)
            kwargs = {key: rename(value, self.names) for key, value in call.kwargs}
            results = self.steps.scene.call(call.op, *args, named=True, **kwargs)
            self.names.update(zip(call.results, results, strict=False))
            self.steps.scene.hidden.update(set(results) - set(self.results()))
        self.played = max(self.played, stop)

    # --- values of the match ----------------------------------------------------------------------

    def operand(self) -> str:
        """An operand of the match. Raises `NoChoice` if it takes none."""
        if not (operands := self.operands()):
            raise NoChoice("the match takes no tensor")
        return self.steps.one(operands)

    def write_operand(self) -> None:
        """Write an operand: all of it, a view of it, or some elements."""
        self.steps.write_somewhere(self.operand())

    def operands(self) -> list[str]:
        """The tensors that the match takes."""
        return list(dict.fromkeys(self.names[view.name] for view in self.plain.inputs))

    def inner(self) -> str:
        """A value that one call of the match so far makes and another one reads."""
        read = {name for call in self.plain.instructions for name in call.refs}
        made = [name for call in self.plain.instructions for name in call.results]
        inner = [self.names[name] for name in made if name in read and name in self.names]
        if not inner:
            raise NoChoice("no call of the match reads another one's result")
        return self.steps.one(inner)

    def results(self) -> list[str]:
        """The results of the match so far."""
        return [self.names[name] for name in self.plain.outputs if name in self.names]

    def middle(self) -> int:
        """A number of calls after which part of the match is still to come."""
        if len(self.plain) < 2:
            raise NoChoice("the match is one call")
        return self.steps.integer(1, len(self.plain) - 1)


# --- operand layouts ------------------------------------------------------------------------------
#
# Inputs of a plain match in other layouts, each with a storage of its own or a shared one.


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
    """The program with this input, and a storage that is long enough for all its views."""
    program = program.with_input(index, view)
    storages = list(program.storages)
    needed = view.offset + reach(view.sizes, view.strides)
    own = storages[view.storage]
    storages[view.storage] = replace(own, length=max(own.length, needed))
    return replace(program, storages=tuple(storages))


def expanded(pick: Pick, program: Program) -> Program:
    """Expand an operand along a dimension."""
    reason = "no operand has a dimension with several elements"
    index, view = _changed(pick, program, lambda it: any(size > 1 for size in it.sizes), reason)
    dim = pick.one([dim for dim, size in enumerate(view.sizes) if size > 1])
    kept = tuple(1 if each == dim else size for each, size in enumerate(view.sizes))
    strides = dense_strides(kept)
    repeated = tuple(0 if each == dim else stride for each, stride in enumerate(strides))
    return _with(program, index, replace(view, strides=repeated))


def transposed(pick: Pick, program: Program) -> Program:
    """Change the order of an operand's dimensions in memory."""
    reason = "no operand has two dimensions with several elements"
    index, view = _changed(pick, program, lambda it: sum(n > 1 for n in it.sizes) >= 2, reason)
    strides = dense_strides(view.sizes[::-1])[::-1]
    if strides == view.strides:
        strides = dense_strides(view.sizes)
    return _with(program, index, replace(view, strides=strides))


def with_offset(pick: Pick, program: Program) -> Program:
    """Start an operand at an offset in its storage."""
    index, view = _changed(pick, program, lambda view: True, "the match takes no tensor")
    return _with(program, index, replace(view, offset=view.offset + pick.one((1, 2, 3))))


def aliased(pick: Pick, program: Program) -> Program:
    """Let two operands share a storage: all elements, or some of them."""
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
    return _with(program, second, shared).without_unused_storages()


# --- situations -----------------------------------------------------------------------------------


def as_they_are(pick: Pick, program: Program) -> Program:
    """The inputs of a plain match, unchanged."""
    return program


@dataclass(frozen=True, slots=True)
class Situation:
    """One line of the table. `kind` is the kind of the plain match.

    `inputs` changes the inputs of the match; `weave` plays the match and the calls around it. Both
    raise `NoChoice`, with the reason, if the situation is impossible.
    """

    name: str
    sketch: str
    weave: Callable[[Weaving], None]
    inputs: Callable[[Pick, Program], Program] = as_they_are
    kind: str = USUAL


def match_alone(weaving: Weaving) -> None:
    """The rest of the match, and its results."""
    weaving.play()
    weaving.steps.wants(*weaving.results())


def match_then_write(weaving: Weaving) -> None:
    """The match, then mostly a write to an operand or the result, so that the layout matters."""
    weaving.play()
    if weaving.steps.chance(60):
        weaving.write_operand()
    match_alone(weaving)


def written_before(weaving: Weaving) -> None:
    weaving.write_operand()
    match_alone(weaving)


def written_between(weaving: Weaving) -> None:
    weaving.play(weaving.middle())
    weaving.write_operand()
    match_alone(weaving)


def written_after(weaving: Weaving) -> None:
    weaving.play()
    weaving.write_operand()
    match_alone(weaving)


def inner_read(weaving: Weaving) -> None:
    """An inner value is returned, or another call reads it."""
    weaving.play()
    inner = weaving.inner()
    if weaving.steps.chance(50):
        inner = weaving.steps.fresh(inner)
    weaving.steps.wants(*weaving.results(), inner)


def inner_written(weaving: Weaving) -> None:
    """An inner value is written, between the calls of the match or after them."""
    weaving.play(weaving.middle())
    inner = weaving.inner()
    if weaving.steps.chance(50):
        weaving.play()
    weaving.steps.overwrite(inner)
    match_alone(weaving)


def match_twice(weaving: Weaving) -> None:
    """The match, and a second one on an operand that may be written in between."""
    weaving.play()
    first = weaving.results()
    if weaving.steps.chance(60):
        weaving.write_operand()
    weaving.played = 0
    weaving.play()
    weaving.steps.wants(*first[:1], *weaving.results()[:1])


def beside_operand(weaving: Weaving) -> None:
    """The result is returned with an operand, or a view of it, that may be written."""
    weaving.play()
    operand = weaving.operand()
    shown = weaving.steps.any_view(operand) if weaving.steps.chance(70) else operand
    if weaving.steps.chance(40):
        weaving.steps.write_somewhere(operand)
    weaving.steps.wants(weaving.steps.one(weaving.results()), shown)


def by_epilogue(weaving: Weaving) -> None:
    """The result is copied into an operand."""
    weaving.play()
    pairs = [
        (result, operand)
        for result in weaving.results()
        for operand in weaving.operands()
        if _takes(weaving.steps.at(operand), weaving.steps.at(result))
    ]
    if not pairs:
        raise NoChoice("each result is larger than each operand")
    result, part = weaving.steps.one(pairs)
    shape, own = weaving.steps.at(part).shape, weaving.steps.at(result).shape
    # A result may be smaller than an operand; then it is copied into a part.
    for dim, size in enumerate(own, len(shape) - len(own)):
        if size not in (1, shape[dim]):
            part = weaving.steps.new("aten.slice.Tensor", part, dim, 0, size)
    weaving.steps.call("aten.copy_.default", part, result)
    weaving.steps.wants(result)


def _takes(operand: torch.Tensor, result: torch.Tensor) -> bool:
    """True if a part of the operand has the sizes of the result."""
    if result.dim() > operand.dim() or result.is_complex() > operand.is_complex():
        return False
    last = operand.shape[operand.dim() - result.dim() :]
    return all(need <= have for need, have in zip(result.shape, last, strict=True))


SITUATIONS: tuple[Situation, ...] = (
    Situation("alone", "f(x, y)", match_alone),
    Situation("operand written before", "x.add_(1); f(x, y)", written_before),
    Situation("operand written between", "a = g(x); x.add_(1); f(a, x)", written_between),
    Situation("operand written after", "a = f(x, y); x.add_(1); return a", written_after),
    Situation("inner value read", "a = g(x); b = f(a); return a + 1, b", inner_read),
    Situation("inner value written", "a = g(x); b = f(a); a.add_(1); return b", inner_written),
    Situation("operands alias", "f(x[0:2], x[1:3])", match_then_write, aliased),
    Situation("operand expanded", "f(x.expand(3, 4))", match_then_write, expanded),
    Situation("operand transposed", "f(x.t())", match_then_write, transposed),
    Situation("operand with an offset", "f(x[1:])", match_then_write, with_offset),
    Situation("operand without elements", "f(x[0:0])", match_then_write, kind=EMPTY),
    Situation("operand without dimensions", "f(x[0])", match_then_write, kind=NUMBER),
    Situation("operand of another dtype", "f(x.double())", match_then_write, kind=OTHER_DTYPE),
    Situation("match twice", "a = f(x, y); x.add_(1); b = f(x, y)", match_twice),
    Situation("result beside operand", "return f(x, y), x[0]", beside_operand),
    Situation("result written back", "x.copy_(f(x, y))", by_epilogue),
)
NAMES = tuple(situation.name for situation in SITUATIONS)
BY_NAME = {situation.name: situation for situation in SITUATIONS}
