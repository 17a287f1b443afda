"""`Walk`: the calls that a pattern of Inductor matches, drawn on the tensors of a scene.

A pattern is a tree whose root is the last call. A walk draws the operands of a call first, so it
adds calls in an executable order. Open positions of a pattern are drawn: a tensor from the scene,
or any other argument by `literal`. Each call runs in eager when it is drawn; so a walk raises
`NoChoice` if sizes or dtypes do not fit, and the next walk draws others.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch
from torch._inductor import pattern_matcher as patterns
from torch._inductor.fx_passes import reinplace
from torch._inductor.pattern_matcher import CallFunctionVarArgs
from torch._ops import OpOverload

from aliasproof.generators.scene import NoChoice, Pick, Scene
from aliasproof.ir.program import Argument, Ref, names_in

# --- literals -------------------------------------------------------------------------------------
#
# The plain arguments of a call that a pattern leaves open: sizes, dimensions, numbers, dtypes.
#
# The schema has the type of an argument, and the operands drawn before suggest what fits. Eager
# decides whether it fits.


DTYPES = (torch.float32, torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64)
NUMBERS = (1, 2, 0.5, 0, -1)
REDUCTIONS = ("sum", "amax", "none")


def literal(pick: Pick, parameter: torch.Argument, operands: Sequence[torch.Tensor]) -> Argument:
    """A value for a parameter that takes no tensor."""
    kind = str(parameter.real_type)
    if kind.startswith("Optional["):
        if pick.chance(50):
            return None
        kind = kind.removeprefix("Optional[").removesuffix("]")
    drawer = _BY_KIND.get(kind)
    if drawer is None:  # a device, a layout, a generator
        return None
    return drawer(pick, parameter.name, operands)


def _integer(pick: Pick, name: str, operands: Sequence[torch.Tensor]) -> Argument:
    if name == "groups":
        return 1
    rank = operands[0].dim() if operands else 1
    return pick.one((0, 1, -1, max(rank - 1, 0), 2))


def _integers(pick: Pick, name: str, operands: Sequence[torch.Tensor]) -> Argument:
    shape = tuple(operands[0].shape) if operands else (2, 2)
    rank = len(shape)
    if name in _OF_WINDOWS:
        return (pick.one(_OF_WINDOWS[name]),) * max(rank - 2, 1)
    if "split" in name:
        return _parts(pick, pick.one(shape) if shape else 1)
    choices: list[tuple[int, ...]] = [shape] * 3
    if rank:
        choices += [(rank - 1,), (-1,), (0,), tuple(range(rank)), tuple(reversed(range(rank)))]
        choices += [(*range(rank - 2), rank - 1, rank - 2)] if rank >= 2 else []
        choices += [(math.prod(shape[:-1]), shape[-1]), (-1, shape[-1]), (math.prod(shape),)]
        choices += [(math.prod(shape[:-2]), *shape[-2:])] if rank >= 3 else []
        choices += [(1, *shape), (*shape[:-1], 1, shape[-1])]
    return pick.one(choices)


def _parts(pick: Pick, size: int) -> tuple[int, ...]:
    """Sizes that add up to `size`."""
    first = pick.integer(0, size)
    number = pick.one([parts for parts in range(1, size + 1) if size % parts == 0] or [1])
    return pick.one(((first, size - first), (size // number,) * number, (size,)))


# For convolutions and pools: one number per dimension of the window.
_OF_WINDOWS = {
    "stride": (1, 1, 2),
    "padding": (0, 0, 1),
    "dilation": (1,),
    "output_padding": (0,),
    "kernel_size": (2, 1, 3),
}
_BY_KIND: dict[str, Callable[[Pick, str, Sequence[torch.Tensor]], Argument]] = {
    "int": _integer,
    "SymInt": _integer,
    "List[int]": _integers,
    "List[SymInt]": _integers,
    "number": lambda pick, name, operands: pick.one(NUMBERS),
    "Scalar": lambda pick, name, operands: pick.one(NUMBERS),
    "float": lambda pick, name, operands: pick.one((0.5, 2.0, 1.0)),
    "bool": lambda pick, name, operands: pick.chance(50),
    "ScalarType": lambda pick, name, operands: pick.one(DTYPES),
    "str": lambda pick, name, operands: pick.one(REDUCTIONS),
}


# --- pattern walk ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Results:
    """The results of a call that returns several tensors, by name."""

    names: tuple[str, ...]


Drawn: TypeAlias = "Argument | Results"
Arguments: TypeAlias = tuple[tuple[Argument, ...], dict[str, Argument]]

ALIKE = 5  # the first inputs, which have one shape
MOST_REPETITIONS = 3  # of a pattern that repeats for each element of a list

aten, prims = torch.ops.aten, torch.ops.prims
convert = prims.convert_element_type.default


def _as_arange(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Arguments:
    start, step = kwargs.get("start", 0), kwargs.get("step", 1)
    end = start + args[0] * step if isinstance(start, int) and isinstance(step, int) else args[0]
    return (start, end, step), {}


# The op that a program calls so that AOTAutograd leaves the other op in its graph.
_CALLED_AS: dict[OpOverload, tuple[str, Callable[..., Arguments]]] = {
    convert: ("aten._to_copy.default", lambda args, kwargs: (args[:1], {"dtype": args[1]})),
    prims.iota.default: ("aten.arange.start_step", _as_arange),
    aten.reshape.default: ("aten.view.default", lambda args, kwargs: (args, dict(kwargs))),
}
# A clone to a dense row-major layout; programs have no memory formats.
_DENSE_CLONE = "aten.contiguous.default"
# The graph already implies where a tensor is.
_LEFT_OUT = ("device", "layout", "requires_grad")


def call_as(
    scene: Scene, op: OpOverload, args: tuple[Argument, ...], kwargs: Mapping[str, Argument]
) -> tuple[str, ...]:
    """Call an op of a graph in the form that programs use, and return the names of its results."""
    name, rewritten = _CALLED_AS.get(op, (str(op), lambda args, kwargs: (args, dict(kwargs))))
    if op is aten.clone.default and "memory_format" in kwargs:
        name, kwargs = _DENSE_CLONE, {}
    if op is aten.full.default and "layout" in kwargs:  # programs have no layouts
        name, args = "aten.new_full.default", (Ref(scene.inputs[0].name), *args)
    args, by_name = rewritten(args, kwargs)
    kept = {key: value for key, value in by_name.items() if key not in _LEFT_OUT}
    if name != str(op):
        kept.pop("pin_memory", None)
    try:
        return scene.call(name, *args, named=True, **kept)
    except AssertionError as error:  # raised by an op that is written in Python
        raise NoChoice from error


@dataclass(slots=True)
class Walk:
    """One walk. `known` has the drawn values of patterns that occur again."""

    pick: Pick
    scene: Scene
    known: dict[patterns.PatternExpr, Drawn] = field(default_factory=dict)
    by_name: dict[str, Drawn] = field(default_factory=dict)
    taken: set[str] = field(default_factory=set)  # inputs that the match takes
    dims: list[Argument] = field(default_factory=list)  # calls often share a dimension
    position: int = 0  # in the list that is being drawn
    length: int = 0  # of open lists of tensors: with another length, eager may crash

    def draw(self, pattern: Any, parameter: torch.Argument | None = None) -> Drawn:
        """Draw a match of a pattern, as an argument of the parameter. Raises `NoChoice`."""
        if isinstance(pattern, list | tuple):
            return tuple(self._argument(element, parameter) for element in pattern)
        if not isinstance(pattern, patterns.PatternExpr):
            return _plain(pattern)
        if pattern not in self.known:
            self.known[pattern] = self._drawn(pattern, parameter)
        return self.known[pattern]

    def _drawn(self, pattern: patterns.PatternExpr, parameter: torch.Argument | None) -> Drawn:
        if isinstance(pattern, patterns.KeywordArg | patterns.ExclusiveKeywordArg):
            if pattern.name not in self.by_name:
                self.by_name[pattern.name] = self._open(parameter)
            return self.by_name[pattern.name]
        if isinstance(pattern, patterns.Arg | patterns.Ignored):
            return self._open(parameter)
        if isinstance(pattern, patterns.ListOf):
            return self._list(pattern, parameter)
        if isinstance(pattern, patterns.RepeatedExpr):
            return self._list(patterns.ListOf(pattern.inner_pattern), parameter)
        if isinstance(pattern, patterns.MultiOutputPattern):
            return tuple(self._argument(output) for output in pattern.outputs if output is not None)
        if isinstance(pattern, patterns._TargetExpr) and pattern.op != "call_module":
            return self._call(pattern)
        raise NoChoice

    def _argument(self, pattern: Any, parameter: torch.Argument | None = None) -> Argument:
        drawn = self.draw(pattern, parameter)
        return tuple(map(Ref, drawn.names)) if isinstance(drawn, Results) else drawn

    def _list(self, pattern: patterns.ListOf, parameter: torch.Argument | None) -> Argument:
        """Some matches of one pattern, which share the patterns that may have several readers."""
        elements: list[Argument] = []
        for position in range(self.pick.integer(1, MOST_REPETITIONS)):
            before, self.position = set(self.known), position
            element = self._argument(pattern.pattern, parameter)
            elements.append(element)
            for new in set(self.known) - before:
                if not new.has_multiple_users() or self._picks(new):
                    del self.known[new]
        self.position = 0
        return tuple(elements)

    @staticmethod
    def _picks(pattern: patterns.PatternExpr) -> bool:
        return isinstance(pattern, patterns._TargetExpr) and operator.getitem in pattern.fns

    # --- calls ------------------------------------------------------------------------------------

    def _call(self, pattern: patterns._TargetExpr) -> Drawn:
        if self._picks(pattern):
            return self._picked(pattern)
        ops = [op for target in pattern.fns for op in operators_of(target) if _may_be_called(op)]
        op = self.pick.one(ops[:1] if self.pick.chance(80) else ops)
        args, kwargs = self._arguments(pattern, op)
        names = call_as(self.scene, op, args, kwargs)
        single = len(op._schema.returns) == 1 and str(op._schema.returns[0].type) == "Tensor"
        return Ref(names[0]) if single else Results(names)

    def _picked(self, pattern: Any) -> Argument:
        """One of several results."""
        results = self.draw(pattern.args[0])
        if not isinstance(results, Results):
            raise NoChoice
        index = pattern.args[1]
        if isinstance(index, patterns.PatternExpr):
            index = self.position if self.pick.chance(80) else self.pick.integer(0, 2)
        if index >= len(results.names):
            raise NoChoice
        return Ref(results.names[index])

    def _arguments(self, pattern: Any, op: OpOverload) -> Arguments:
        parameters = op._schema.arguments
        given_args = getattr(pattern, "args", ())
        given_kwargs = dict(getattr(pattern, "kwargs", {}))
        any_number = not isinstance(pattern, patterns._TargetArgsExpr)
        positional = [parameter for parameter in parameters if not parameter.kwarg_only]
        if len(given_args) > len(positional):
            raise NoChoice
        args: list[Argument] = []
        for value, parameter in zip(given_args, positional, strict=False):
            args.append(self._of_call(value, parameter, args))
        kwargs: dict[str, Argument] = {}
        for parameter in parameters[len(args) :]:
            if parameter.name in given_kwargs:
                value = given_kwargs.pop(parameter.name)
                kwargs[parameter.name] = self._of_call(value, parameter, args)
            elif any_number and not parameter.has_default_value():
                args.append(self._of_call(patterns.Ignored(), parameter, args))
            elif not parameter.has_default_value():
                raise NoChoice
        if given_kwargs:
            raise NoChoice
        return tuple(args), kwargs

    def _of_call(self, value: Any, parameter: torch.Argument, before: list[Argument]) -> Argument:
        """An argument of a call; `before` are the arguments drawn so far."""
        name = getattr(value, "name", None)
        if (
            not isinstance(value, _OPEN)
            or name in self.by_name
            or value in self.known
            or "Tensor" in str(parameter.real_type)
        ):
            return self._argument(value, parameter)
        operands = [self.scene.values[name] for name in names_in(tuple(before))]
        if parameter.name == "dim" and self.dims and self.pick.chance(60):
            drawn = self.pick.one(self.dims)
        else:
            drawn = literal(self.pick, parameter, operands)
        if parameter.name == "dim" and isinstance(drawn, int):
            self.dims.append(drawn)
        self.known[value] = drawn
        if name is not None:
            self.by_name[name] = drawn
        return drawn

    # --- what is open -----------------------------------------------------------------------------

    def _open(self, parameter: torch.Argument | None) -> Argument:
        """A tensor, or a list of them, where the parameter takes one; else a plain argument."""
        kind = "Tensor" if parameter is None else str(parameter.real_type)
        if kind.startswith("List[") and "Tensor" in kind:
            self.length = self.length or self.pick.integer(1, MOST_REPETITIONS)
            return tuple(self._tensor(parameter) for _ in range(self.length))
        if "Tensor" in kind:
            absent = kind.startswith("Optional[") and self.pick.chance(50)
            return None if absent else self._tensor(parameter)
        assert parameter is not None
        return literal(self.pick, parameter, ())

    def _tensor(self, parameter: torch.Argument | None) -> Argument:
        """An input, mostly one that the match does not take yet."""
        names = [view.name for view in self.scene.inputs]
        if parameter is not None and parameter.name in ("index", "indices"):
            names = [view.name for view in self.scene.inputs if view.dtype == torch.int64]
        elif self.pick.chance(65):
            names = names[:ALIKE]
        new = [name for name in names if name not in self.taken]
        name = self.pick.one(new if new and self.pick.chance(85) else names)
        self.taken.add(name)
        return Ref(name)


def operators_of(target: object) -> list[OpOverload]:
    """The overloads that a program can call for the target of a pattern.

    A function or method is replaced by the overloads of its name, whose text in ordinary syntax is
    this function or method.
    """
    if isinstance(target, OpOverload):
        return [target]
    name = target if isinstance(target, str) else getattr(target, "__name__", "")
    if not name or not hasattr(aten, name):
        return []
    packet = getattr(aten, name)
    return [getattr(packet, overload) for overload in packet.overloads()]


# Patterns that leave an argument open.
_OPEN = (patterns.KeywordArg, patterns.ExclusiveKeywordArg, patterns.Arg, patterns.Ignored)


def _may_be_called(op: OpOverload) -> bool:
    """True for an op that writes nothing, or writes in place, and returns tensors."""
    returns = [str(result.type) for result in op._schema.returns]
    out = any(argument.is_out for argument in op._schema.arguments)
    return bool(returns) and all("Tensor" in kind for kind in returns) and not out


def _plain(value: Any) -> Argument:
    """Convert a value of a pattern to an argument of a program."""
    if isinstance(value, list | tuple):
        return tuple(map(_plain, value))
    if isinstance(value, bool | int | float | str | torch.dtype) or value is None:
        return value
    raise NoChoice


# --- in place forms -------------------------------------------------------------------------------
#
# Operators with an in-place form that Inductor knows, as rules: a call whose result is copied back.
#
# Reinplacing turns the call and the copy into one write, if nothing reads the old data afterwards.


@functools.cache
def in_place_forms() -> dict[str, OpOverload]:
    """The operators that a program can call, by the names of their sites."""
    tables = (reinplace.inplaceable_ops, reinplace.inplaceable_foreach_ops)
    operators = [key for table in tables for key in table if isinstance(key, OpOverload)]
    return {f"put in place/{it}": it for it in operators if it.namespace == "aten"}


def play(operator: OpOverload, pick: Pick, scene: Scene) -> None:
    """Call the operator on tensors of the scene, and copy the results back. Raises `NoChoice`."""
    Walk(pick, scene).draw(CallFunctionVarArgs(operator))
    (call,) = scene.instructions
    operands = call.args[0] if isinstance(call.args[0], tuple) else call.args[:1]
    if len(operands) != len(call.results):
        raise NoChoice
    for operand, result in zip(operands, call.results, strict=True):
        scene.call("aten.copy_.default", operand, Ref(result))
