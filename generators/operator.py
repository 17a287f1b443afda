"""`Operator`: an op that programs are drawn from; one line of a table.

A line names the overload; each group of lines is a swarm switch. The schema has the rest: which
arguments the op has, which it writes, whether it is a view. The name or type of an argument decides
how it is drawn (`aliasproof.generators.arguments`), unless the line gives a drawer. An argument
with a default is left out unless the line gives a drawer. Eager decides which dtypes the first
tensor may have (`aliasproof.generators.arguments`); `dtypes` excludes more of them.

Other facts that the harness needs to judge an op precisely are not in the line, but
`tests/generators/test_precision.py` requires them: how its kernels round, its value hash, and the
effect of equal indices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

import torch

from aliasproof.generators.arguments import FIRST_LISTS, accepts, drawn_arguments
from aliasproof.generators.draft import Drawer
from aliasproof.generators.scene import FLOAT8, has_float8_kernel
from aliasproof.ir.program import Argument
from aliasproof.ir.schemas import facts, resolve

OFTEN, USUAL, SELDOM = 6, 2, 1  # frequencies
ANY_RANK = range(64)  # torch has no tensors of a higher rank


@dataclass(frozen=True, slots=True)
class Operator:
    """One line of the table. `arguments` are the drawers by name, in drawing order.

    An op with a higher `frequency` is drawn more often than others of its group. `ranks` are the
    possible ranks of the first tensor.
    """

    name: str
    dtypes: Callable[[torch.dtype], bool]
    arguments: Mapping[str, Drawer]
    frequency: int = USUAL
    ranks: range = ANY_RANK
    group: str = ""

    @property
    def takes_tensor_list(self) -> bool:
        """True if a list of tensors is drawn in place of a first tensor."""
        return any(name in FIRST_LISTS for name in self.arguments)

    @property
    def writes(self) -> bool:
        """True if it writes to an argument."""
        return bool(facts(resolve(self.name)).writes)

    def fits(self, tensor: torch.Tensor) -> bool:
        """True if it may be the first tensor."""
        return tensor.dim() in self.ranks and self.accepts(tensor.dtype)

    def accepts(self, dtype: torch.dtype) -> bool:
        """True if the first tensor may have that dtype."""
        if dtype in FLOAT8 and not has_float8_kernel(self.name):
            return False
        return self.dtypes(dtype) and accepts(self.name, tuple(self.arguments), dtype)

    def bind(self, drawn: dict[str, Argument]) -> tuple[tuple[Argument, ...], dict[str, Argument]]:
        """The drawn arguments as positional and keyword arguments of the schema.

        A positional argument that was not drawn, but precedes one that was, gets its default.
        """
        schema = resolve(self.name)._schema.arguments
        # Arguments after the last drawn one keep their defaults.
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
    return not (dtype.is_floating_point or dtype.is_complex)


def real_part(dtype: torch.dtype) -> bool:
    """True for dtypes that are the real part of complex dtypes, except that of complex32."""
    return dtype in (torch.float32, torch.float64)


# --- a line ---------------------------------------------------------------------------------------


def line(
    name: str, dtypes: Callable[[torch.dtype], bool] = any_dtype, /, **drawers: Drawer
) -> Operator:
    """A line of the table. Raises `UserError` if an argument of the op has no drawer."""
    full = name if name.startswith("prims.") else f"aten.{name}"
    return Operator(full, dtypes, drawn_arguments(full, drawers))


def lines(
    names: str, dtypes: Callable[[torch.dtype], bool] = any_dtype, /, **drawers: Drawer
) -> tuple[Operator, ...]:
    """One line per name (names are separated by spaces), all with the same drawers."""
    return tuple(line(name, dtypes, **drawers) for name in names.split())


def group(name: str, *operators: Operator) -> tuple[Operator, ...]:
    """The lines as a group, which is a swarm switch."""
    return tuple(replace(operator, group=name) for operator in operators)


def seldom(operators: Iterable[Operator]) -> tuple[Operator, ...]:
    """The same lines, drawn less often than others of their group."""
    return tuple(replace(operator, frequency=SELDOM) for operator in operators)


def often(*operators: Operator) -> tuple[Operator, ...]:
    """The same lines, drawn more often than others of their group: few tensors fit them."""
    return tuple(replace(operator, frequency=OFTEN) for operator in operators)


def of_rank(ranks: range, *operators: Operator) -> tuple[Operator, ...]:
    """The same lines, limited to first tensors of these ranks."""
    return tuple(replace(operator, ranks=ranks) for operator in operators)


def at_least(rank: int) -> range:
    """This rank and all higher ones."""
    return range(rank, ANY_RANK.stop)


def exactly(rank: int) -> range:
    """Only this rank."""
    return range(rank, rank + 1)
