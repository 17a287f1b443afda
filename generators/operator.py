"""`Operator`: an op that programs are drawn from; it is one line of a table.

A line names the overload and its group (a swarm switch). The schema says everything else: what the
op writes, whether it is a view, which arguments it has. The name or type of an argument decides how
it is drawn (`generators.arguments`), unless the line gives a drawer. An argument with a default is
left out unless the line gives a drawer. Which dtypes the first tensor may have is asked of eager
(`generators.accepted_dtypes`); `dtypes` excludes more of them.

What the harness must know to judge an op precisely is not in the line, but
`tests/generators/test_precision.py` asks for it: how its kernels round, what its value hash is, and
what equal indices do.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import torch

from generators.accepted_dtypes import accepts
from generators.arguments import FIRST_LISTS, DrawnArgument, drawn_arguments
from generators.draft import Drawer
from programs.program import Argument
from programs.rounding_tables import rounding_name
from programs.schemas import Kind, facts, resolve

USUAL, SELDOM = 4, 1  # frequencies


@dataclass(frozen=True, slots=True)
class Operator:
    """One line of the table. `arguments` are in the order in which they are drawn.

    An op with a higher `frequency` is drawn more often than the others of its group.
    """

    name: str
    group: str
    dtypes: Callable[[torch.dtype], bool]
    arguments: tuple[DrawnArgument, ...]
    frequency: int = USUAL

    @property
    def takes_tensor_list(self) -> bool:
        """True if a list of tensors is drawn in place of a first tensor."""
        return any(argument.name in FIRST_LISTS for argument in self.arguments)

    def accepts(self, dtype: torch.dtype) -> bool:
        """True if the first tensor may have that dtype."""
        if dtype in FLOAT8 and not _has_float8_kernel(self.name):
            return False
        return self.dtypes(dtype) and accepts(
            self.name, tuple(argument.name for argument in self.arguments), dtype
        )

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

FLOAT8 = frozenset({torch.float8_e4m3fn, torch.float8_e5m2})

# Views need no kernel. Of the other ops, these have one for float8 on CPU in torch 2.13. None of
# them computes with the values.
# fmt: off
_FLOAT8_KERNELS = frozenset({
    "abs", "fill", "zero", "copy", "clone", "zeros_like", "full_like", "where", "cat", "stack",
    "select_scatter", "slice_scatter", "diagonal_scatter", "as_strided_scatter", "index",
    "index_select", "to", "_to_copy", "contiguous", "eq", "repeat", "view_copy",
})
# fmt: on


@functools.cache
def _has_float8_kernel(name: str) -> bool:
    op = resolve(name)
    changes_metadata = torch.Tag.inplace_view in op.tags
    kernels = changes_metadata or facts(op).kind is Kind.VIEW
    return kernels or rounding_name(op) in _FLOAT8_KERNELS


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
    return not (dtype.is_floating_point or dtype.is_complex)


def real_part(dtype: torch.dtype) -> bool:
    """True for the dtypes of the parts of complex numbers, except that of complex32."""
    return dtype in (torch.float32, torch.float64)


# --- a line ---------------------------------------------------------------------------------------


def line(
    group: str,
    name: str,
    dtypes: Callable[[torch.dtype], bool] = any_dtype,
    **drawers: Drawer,
) -> Operator:
    """A line of the table. Raises `UserError` if an argument of the op has no drawer."""
    arguments = drawn_arguments(f"aten.{name}", drawers)
    return Operator(f"aten.{name}", group, dtypes, arguments)


def lines(group: str, names: str, **drawers: Drawer) -> tuple[Operator, ...]:
    """A line per name; names are separated by spaces, and the same drawers serve them all."""
    return tuple(line(group, name, any_dtype, **drawers) for name in names.split())


def seldom(operators: Iterable[Operator]) -> tuple[Operator, ...]:
    """The same lines, drawn less often than the others of their group."""
    return tuple(replace(operator, frequency=SELDOM) for operator in operators)
