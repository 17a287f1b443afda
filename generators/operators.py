"""The ops that programs are drawn from, one line per op.

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

from generators import number_arguments as numbers
from generators import tensor_arguments as tensors
from generators.arguments import DrawnArgument, drawn_arguments
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
        return any(argument.name == "tensors" for argument in self.arguments)

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


# --- the table ------------------------------------------------------------------------------------


def _line(
    group: str, name: str, dtypes: Callable[[torch.dtype], bool] = any_dtype, **drawers: Drawer
) -> Operator:
    """A line of the table. Raises `UserError` if an argument of the op has no drawer."""
    return Operator(f"aten.{name}", group, dtypes, drawn_arguments(f"aten.{name}", drawers))


OPERATORS: tuple[Operator, ...] = (
    # views
    _line("view", "select.int", index=numbers.index_in_dimension),
    _line(
        "view",
        "slice.Tensor",
        dim=numbers.dimension,
        start=numbers.start_in_dimension,
        end=numbers.end_in_dimension,
        step=numbers.step,
    ),
    _line(
        "view",
        "narrow.default",
        start=numbers.start_in_dimension,
        length=numbers.length_in_dimension,
    ),
    _line("view", "transpose.int"),
    _line("view", "t.default"),
    _line("view", "permute.default"),
    _line("view", "view.default", size=numbers.reshaped),
    _line("view", "reshape.default", shape=numbers.reshaped),
    _line("view", "flatten.using_ints"),
    _line("view", "unflatten.int", sizes=numbers.factors),
    _line("view", "expand.default", size=numbers.expanded),
    _line("view", "squeeze.default"),
    _line("view", "squeeze.dim"),
    _line("view", "unsqueeze.default", dim=numbers.dimension_to_insert),
    _line(
        "view",
        "diagonal.default",
        offset=numbers.offset_of_diagonal,
        dim1=numbers.dimension,
        dim2=numbers.other_dimension,
    ),
    _line("view", "unfold.default", size=numbers.window, step=numbers.step),
    _line("view", "split.Tensor", dim=numbers.dimension, split_size=numbers.piece),
    _line("view", "chunk.default", dim=numbers.dimension, chunks=numbers.pieces),
    _line("view", "unbind.int", dim=numbers.dimension),
    _line(
        "view",
        "as_strided.default",
        size=numbers.strided_sizes,
        stride=numbers.strided_strides,
        storage_offset=numbers.strided_offset,
    ),
    _line("view", "view.dtype", dtype=numbers.dtype_of_other_size),
    _line("view", "view_as_real.default", complex_),
    _line("view", "view_as_complex.default", floating),
    _line("view", "real.default", complex_),
    _line("view", "imag.default", complex_),
    _line("view", "detach.default"),
    _line("view", "alias.default"),
    # in-place
    _line("in-place", "add_.Tensor", not_bool),
    _line("in-place", "add_.Scalar", not_bool),
    _line("in-place", "sub_.Tensor", not_bool, alpha=numbers.number),
    _line("in-place", "mul_.Tensor"),
    _line("in-place", "mul_.Scalar"),
    _line("in-place", "div_.Tensor", inexact),
    _line("in-place", "neg_.default", not_bool),
    _line("in-place", "abs_.default", real),
    _line("in-place", "relu_.default", real),
    _line("in-place", "sign_.default", real),
    _line("in-place", "square_.default", not_bool),
    _line("in-place", "sigmoid_.default", floating),
    _line("in-place", "cos_.default", floating),
    _line("in-place", "bitwise_not_.default", integer_or_bool),
    _line("in-place", "logical_not_.default"),
    _line("in-place", "fill_.Scalar"),
    _line("in-place", "fill_.Tensor", value=tensors.scalar_tensor),
    _line("in-place", "zero_.default"),
    _line("in-place", "copy_.default"),
    _line("in-place", "clamp_.default", real, min=numbers.number),
    _line("in-place", "clamp_max_.default", real, max=numbers.number),
    _line("in-place", "lerp_.Scalar", inexact),
    _line("in-place", "addcmul_.default", not_bool, value=numbers.number),
    _line("in-place", "cumsum_.default", not_bool),
    _line("in-place", "masked_fill_.Scalar", value=numbers.number),
    _line("in-place", "masked_fill_.Tensor", value=tensors.scalar_tensor),
    _line("in-place", "tril_.default"),
    # into a buffer
    _line("out=", "add.out", not_bool),
    _line("out=", "mul.out"),
    _line("out=", "neg.out", not_bool),
    _line("out=", "clamp.out", real, min=numbers.number),
    _line("out=", "cumsum.out", real),
    _line("out=", "gt.Scalar_out", real, out=tensors.bool_buffer),
    _line("out=", "where.self_out"),
    # functional
    _line("functional", "add.Tensor", not_bool, other=tensors.partner),
    _line("functional", "add.Scalar", not_bool),
    _line("functional", "sub.Tensor", not_bool, other=tensors.partner),
    _line("functional", "mul.Tensor", other=tensors.partner),
    _line("functional", "mul.Scalar"),
    _line("functional", "neg.default", not_bool),
    _line("functional", "abs.default", real),
    _line("functional", "relu.default", real),
    _line("functional", "clone.default"),
    _line("functional", "zeros_like.default"),
    _line("functional", "full_like.default", fill_value=numbers.number),
    _line("functional", "gt.Scalar", real),
    _line("functional", "eq.Tensor", other=tensors.partner),
    _line("functional", "logical_not.default"),
    _line("functional", "clamp.default", real, min=numbers.number),
    _line("functional", "masked_fill.Scalar", value=numbers.number),
    _line("functional", "where.self", other=tensors.partner),
    _line("functional", "fill.Scalar"),
    _line("functional", "copy.default"),
    _line("functional", "cat.default", dim=numbers.dimension),
    _line("functional", "stack.default"),
    _line("functional", "addcmul.default", not_bool, value=numbers.number),
    _line("functional", "flip.default", dims=numbers.dimension_in_list),
    # scatters
    _line(
        "scatter",
        "select_scatter.default",
        src=tensors.source_for("aten.select.int", "dim", "index"),
        index=numbers.index_in_dimension,
    ),
    _line(
        "scatter",
        "slice_scatter.default",
        src=tensors.source_for("aten.slice.Tensor", "dim", "start", "end", "step"),
        dim=numbers.dimension,
        start=numbers.start_in_dimension,
        end=numbers.end_in_dimension,
        step=numbers.step,
    ),
    _line(
        "scatter",
        "diagonal_scatter.default",
        src=tensors.source_for("aten.diagonal.default", "offset", "dim1", "dim2"),
        offset=numbers.offset_of_diagonal,
        dim1=numbers.dimension,
        dim2=numbers.other_dimension,
    ),
    _line(
        "scatter",
        "as_strided_scatter.default",
        src=tensors.source_for("aten.as_strided.default", "size", "stride", "storage_offset"),
        size=numbers.strided_sizes,
        stride=numbers.strided_strides,
        storage_offset=numbers.strided_offset,
    ),
    # by index
    _line("indexed", "index.Tensor"),
    _line("indexed", "index_put_.default", values=tensors.values_to_put),
    _line("indexed", "index_put.default", values=tensors.values_to_put),
    _line("indexed", "index_add_.default", not_bool, source=tensors.rows_to_add),
    _line("indexed", "index_copy_.default", source=tensors.rows_to_add),
    _line("indexed", "index_fill_.int_Scalar"),
    _line("indexed", "index_select.default"),
    _line("indexed", "scatter_.src", index=tensors.positions_like, src=tensors.at_least_index),
    _line("indexed", "scatter_.value", index=tensors.positions_like),
    _line("indexed", "gather.default", index=tensors.positions_like),
    # reductions
    _line("reduction", "sum.default", not_bool),
    _line("reduction", "sum.dim_IntList", not_bool, dim=numbers.dimension_in_list),
    _line("reduction", "amax.default", real),
    _line("reduction", "cumsum.default", not_bool),
    _line("reduction", "matmul.default", not_bool, other=tensors.matrix_for),
)
