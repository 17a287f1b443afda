"""`Operator`: an op that programs are drawn from; it is one line of a table.

A line names the overload and its group (a swarm switch). The schema says everything else: what the
op writes, whether it is a view, which arguments it has. The name or type of an argument decides how
it is drawn (`generators.arguments`), unless the line gives a drawer. An argument with a default is
left out unless the line gives a drawer. `dtypes` keeps an op from first tensors that eager would
refuse.

What the harness must know to judge an op precisely is not in the line, but
`tests/generators/test_precision.py` asks for it: how its kernels round, what its value hash is, and
what equal indices do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from generators.arguments import FIRST_LISTS, DrawnArgument, drawn_arguments
from generators.draft import Drawer
from programs.program import Argument
from programs.schemas import resolve


@dataclass(frozen=True, slots=True)
class Operator:
    """One line of the table. `arguments` are in the order in which they are drawn."""

    name: str
    group: str
    dtypes: Callable[[torch.dtype], bool]
    arguments: tuple[DrawnArgument, ...]

    @property
    def takes_tensor_list(self) -> bool:
        """True if a list of tensors is drawn in place of a first tensor."""
        return any(argument.name in FIRST_LISTS for argument in self.arguments)

    def bind(self, drawn: dict[str, Argument]) -> tuple[tuple[Argument, ...], dict[str, Argument]]:
        """The arguments drawn as positional and keyword arguments of the schema.

        A positional argument that was not drawn, but comes before one that was, gets its default.
        """
        schema = resolve(self.name)._schema.arguments
        # What comes after the last drawn argument is left to its default.
        positional = [argument for argument in schema if not argument.kwarg_only]
        while positional and positional[-1].name not in drawn:
            positional.pop()
        args = tuple(drawn.get(argument.name, argument.default_value) for argument in positional)
        by_name = [argument.name for argument in schema if argument.kwarg_only]
        return args, {name: drawn[name] for name in by_name if name in drawn}


# --- dtypes of the first tensor -------------------------------------------------------------------


def any_dtype(dtype: torch.dtype) -> bool:
    return True


def not_bool(dtype: torch.dtype) -> bool:
    return dtype != torch.bool


def real(dtype: torch.dtype) -> bool:
    return dtype != torch.bool and not dtype.is_complex


def floating(dtype: torch.dtype) -> bool:
    return dtype.is_floating_point


def inexact(dtype: torch.dtype) -> bool:
    return dtype.is_floating_point or dtype.is_complex


def complex_(dtype: torch.dtype) -> bool:
    return dtype.is_complex


def integer_or_bool(dtype: torch.dtype) -> bool:
    return dtype in (torch.int64, torch.bool)


# --- a line ---------------------------------------------------------------------------------------


def line(
    group: str, name: str, dtypes: Callable[[torch.dtype], bool] = any_dtype, **drawers: Drawer
) -> Operator:
    """A line of the table. Raises `UserError` if an argument of the op has no drawer."""
    return Operator(f"aten.{name}", group, dtypes, drawn_arguments(f"aten.{name}", drawers))
