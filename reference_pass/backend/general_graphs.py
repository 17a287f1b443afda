"""Graphs for more than one size, or for more than one int: symbols in place of these numbers.

Dynamo passes symbols for sizes that it has seen change, or for all sizes (`dynamic=True`). A
`Template` has new symbols for the same numbers, in an environment of its own: a graph may be traced
when the guards of Dynamo are fixed already. The guards of our trace are checked at each call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

import torch
from torch import fx
from torch._dynamo.source import LocalSource
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv
from torch.types import py_sym_types

from aliasproof.reference_pass.backend.differentiation import Runnable
from aliasproof.reference_pass.backend.input_layouts import InputLayout, OffsetInStorage
from aliasproof.reference_pass.backend.observed_run import Observed
from aliasproof.reference_pass.calls.graphs import copied
from aliasproof.reference_pass.capture.size_guards import SizeGuards
from aliasproof.reference_pass.planning.timeline import footprint


class Template:
    """Inputs, some of whose numbers are symbols: `layouts` of tensors, and `values` of others."""

    def __init__(self, layouts: Sequence[Any], values: Sequence[Any]) -> None:
        self.layouts = tuple(layouts)
        self.values = without_tensors(layouts, values)
        self.symbolic = [
            index
            for index, (layout, value) in enumerate(zip(layouts, values, strict=True))
            if any(isinstance(number, torch.SymInt) for number in _numbers(layout, value))
        ]
        # The common part of all inputs for which one graph may be right.
        self.pattern = self.pattern_of(self.layouts, self.values)

    @staticmethod
    def with_int_symbols(layouts: Sequence[Any], inputs: Sequence[Any]) -> Template:
        """The template with a new symbol for each int among the inputs."""
        env, values = ShapeEnv(), list(inputs)
        for index, value in enumerate(inputs):
            if is_int(value):
                source = LocalSource(f"i{index}")
                values[index] = _new_symbol(env, source, value, is_size=False)
        return Template(layouts, values)

    @property
    def numbers(self) -> list[Any]:
        """The numbers of the inputs with symbols, in order: sizes and strides, or an int."""
        return [
            number
            for index in self.symbolic
            for number in _numbers(self.layouts[index], self.values[index])
        ]

    @property
    def env(self) -> ShapeEnv:
        """The environment of the symbols."""
        env: ShapeEnv = next(
            number.node.shape_env for number in self.numbers if isinstance(number, torch.SymInt)
        )
        return env

    def pattern_of(self, layouts: Sequence[Any], values: Sequence[Any]) -> tuple[Any, ...]:
        """The inputs without the numbers that are symbols in the template."""
        pattern: list[Any] = []
        for index, (layout, value) in enumerate(zip(layouts, values, strict=True)):
            if not isinstance(layout, InputLayout):
                pattern.append(None if index in self.symbolic else (layout, value))
            elif index in self.symbolic:
                pattern.append(layout._replace(sizes=(-1,) * len(layout.sizes), strides=()))
            else:
                pattern.append(layout)
        return tuple(pattern)

    def with_hints(self) -> tuple[tuple[Any, ...], list[Any]]:
        """The layouts and values with the numbers that the symbols were made from."""
        return _mapped(self.layouts, self.values, lambda number: number.node.hint)


class General:
    """A compiled graph for a template, and the guards on its symbols."""

    def __init__(self, graph_module: Runnable, template: Template) -> None:
        self.graph_module, self.symbolic = graph_module, template.symbolic
        numbers = template.numbers
        names = [f"n{index}" for index in range(len(numbers))]
        self.guards = SizeGuards(template.env, names, numbers)

    def accepts(self, inputs: Sequence[Any]) -> bool:
        """True if the graph is right for these inputs, which have the pattern of the template."""
        numbers: list[int] = []
        for index in self.symbolic:
            value = inputs[index]
            numbers += _numbers(value, value) if is_int(value) else (*value.shape, *value.stride())
        return self.guards.broken(numbers) is None


def template_of(layouts: Sequence[Any], values: Sequence[Any]) -> Template | None:
    """The template for inputs with symbols of Dynamo; None if a symbol has no value yet."""
    env = ShapeEnv()
    own: dict[Any, Any] = {}

    def renamed(number: Any) -> Any:
        if not isinstance(number, torch.SymInt):
            return number.node.hint  # a float is a constant of a graph
        expression, given = number.node.expr, number.node.shape_env
        for symbol in expression.free_symbols - own.keys():
            hint = given.backed_var_to_val.get(symbol)
            if not getattr(hint, "is_Integer", isinstance(hint, int)):
                raise _NoNumberError  # unbacked, or the length of the rows of a jagged tensor
            is_size = given.var_to_range[symbol].lower >= 2
            number_of = int(hint)
            own[symbol] = _new_symbol(env, LocalSource(str(symbol)), number_of, is_size=is_size)
        mine = expression.xreplace({each: number.node.expr for each, number in own.items()})
        return env.create_symintnode(mine, hint=number.node.hint)

    try:
        return Template(*_mapped(layouts, values, renamed))
    except _NoNumberError:
        return None


class _NoNumberError(Exception):
    """A symbol stands for a number that is known only at run time."""


def with_dynamo_symbols(layouts: Sequence[Any], placeholders: Sequence[fx.Node]) -> tuple[Any, ...]:
    """The layouts with sizes and strides of Dynamo's fakes, since its examples are not fakes."""
    fakes = [node.meta.get("example_value") for node in placeholders]
    return tuple(
        layout._replace(sizes=tuple(fake.shape), strides=fake.stride())
        if isinstance(layout, InputLayout) and isinstance(fake, torch.Tensor)
        else layout
        for layout, fake in zip(layouts, fakes, strict=True)
    )


def fake_settings(example_inputs: Sequence[Any]) -> dict[str, Any]:
    """The settings of the fakes of AOTAutograd.

    AOTAutograd has run its graph on them, and torch caches the results by these settings.
    """
    mode = torch._guards.detect_fake_mode(example_inputs)
    return {} if mode is None or mode.shape_env is None else asdict(mode.shape_env.settings)


def without_tensors(layouts: Sequence[Any], values: Sequence[Any]) -> list[Any]:
    """The inputs, with None in place of tensors."""
    return [
        None if isinstance(layout, InputLayout) else value
        for layout, value in zip(layouts, values, strict=True)
    ]


def is_int(value: object) -> bool:
    """True for an int that is not a bool."""
    return isinstance(value, int) and not isinstance(value, bool)


def has_symbols(layouts: Sequence[Any], values: Sequence[Any]) -> bool:
    """True if a size, a stride, or a value of these inputs is a symbol."""
    return any(
        isinstance(number, py_sym_types)
        for layout, value in zip(layouts, values, strict=True)
        for number in (*_numbers(layout, value), *(getattr(layout, "location", None) or ()))
    )


def _numbers(layout: Any, value: Any) -> tuple[Any, ...]:
    return (*layout.sizes, *layout.strides) if isinstance(layout, InputLayout) else (value,)


def _mapped(
    layouts: Sequence[Any], values: Sequence[Any], function: Callable[[Any], Any]
) -> tuple[tuple[Any, ...], list[Any]]:
    """The inputs with the results of a function in place of symbols."""

    def number(value: Any) -> Any:
        return function(value) if isinstance(value, py_sym_types) else value

    return (
        tuple(
            layout._replace(
                location=layout.location and OffsetInStorage(*map(number, layout.location)),
                sizes=tuple(map(number, layout.sizes)),
                strides=tuple(map(number, layout.strides)),
            )
            if isinstance(layout, InputLayout)
            else {torch.SymInt: int, torch.SymFloat: float}.get(layout, layout)
            for layout in layouts
        ),
        [number(value) for value in values],
    )


def _new_symbol(env: ShapeEnv, source: LocalSource, value: int, *, is_size: bool) -> Any:
    symbol = env.create_symbol(
        value,
        source,
        DimDynamic.DYNAMIC,
        positive=True if is_size else None,
        do_not_specialize_zero_one=not is_size,
    )
    return env.create_symintnode(symbol, hint=value, source=source)


def floats_in(graph_module: fx.GraphModule) -> list[int]:
    """The indices of inputs that are Python floats in the program.

    Dynamo notes that only while it compiles.
    """
    return [
        index
        for index, node in enumerate(graph_module.graph.find_nodes(op="placeholder"))
        if getattr(node.meta.get("grapharg"), "pass_arg_as_tensor", False)
    ]


def with_floats(
    graph_module: fx.GraphModule, floats: Sequence[int], inputs: Sequence[Any]
) -> fx.GraphModule:
    """A copy of a graph module with numbers for inputs that are floats in the program.

    With `dynamic=True`, Dynamo passes a float as a tensor `x`, and reads it by `x.item()`.
    """
    changed = copied(graph_module)
    placeholders = changed.graph.find_nodes(op="placeholder")
    for index in floats:
        for user in list(placeholders[index].users):
            if user.target == "item":
                user.replace_all_uses_with(inputs[index].item())
                changed.graph.erase_node(user)
    changed.recompile()
    return changed


# --- keys -----------------------------------------------------------------------------------------


def allocates_more(one: Runnable, other: Runnable) -> bool:
    """True if one graph is known to make more new tensors than the other."""
    graphs = [each.compiled for each in (one, other) if isinstance(each, Observed)]
    calls = [footprint(each.graph).calls for each in graphs if isinstance(each, fx.GraphModule)]
    return len(calls) == 2 and calls[0] > calls[1]


def exactly(value: Any) -> Any:
    """A value as a key: compared as numbers, -0.0 equals 0.0, and NaN does not equal itself."""
    return value.hex() if isinstance(value, float) else value


def without_ints(key: tuple[Any, Any]) -> tuple[Any, Any]:
    layouts, values = key
    return layouts, tuple(None if is_int(value) else value for value in values)


def keep(cache: dict[Any, Any], key: Any, value: Any, most: int) -> None:
    """Add an entry to a cache; drops the oldest one if there are more than `most`."""
    cache[key] = value
    if len(cache) > most:
        del cache[next(iter(cache))]
