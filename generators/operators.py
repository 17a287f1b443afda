"""The ops that programs are drawn from, one line an op.

A line names the overload and its group (a swarm switch). Everything else is read off the schema:
what is written, what is a view, which arguments there are. An argument is drawn by its name or type
(`arguments.BY_NAME`, `BY_TYPE`) unless the line gives a drawer for it; an argument with a default
is left out unless the line gives one. `dtypes` keeps an op from first tensors that eager would
refuse.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch

from generators import arguments as draw
from generators.arguments import Drawer
from programs.program import Argument
from programs.schemas import resolve

ANY: Callable[[torch.dtype], bool] = lambda dtype: True  # noqa: E731 - a table of predicates reads better in line
NUMBERS: Callable[[torch.dtype], bool] = lambda dtype: dtype != torch.bool  # noqa: E731
REAL: Callable[[torch.dtype], bool] = lambda dtype: dtype != torch.bool and not dtype.is_complex  # noqa: E731
FLOAT: Callable[[torch.dtype], bool] = lambda dtype: dtype.is_floating_point  # noqa: E731
INEXACT: Callable[[torch.dtype], bool] = lambda dtype: dtype.is_floating_point or dtype.is_complex  # noqa: E731
COMPLEX: Callable[[torch.dtype], bool] = lambda dtype: dtype.is_complex  # noqa: E731


@dataclass(frozen=True, slots=True)
class Operator:
    """One line of the table. `drawers` override how arguments are drawn, by name."""

    name: str
    group: str
    dtypes: Callable[[torch.dtype], bool]
    drawers: dict[str, Drawer]

    def arguments(self) -> Iterator[tuple[str, Drawer, bool]]:
        """Name, drawer and whether keyword-only, of each argument to draw, in drawing order.

        `self` is not among them: all else depends on it, so it is drawn before. A dimension comes
        first, since indices depend on it; what is stored comes last, since its shape depends on
        where.
        """
        wanted = []
        for arg in resolve(self.name)._schema.arguments:
            if arg.name != "self" and (arg.name in self.drawers or not arg.has_default_value()):
                drawer = (
                    self.drawers.get(arg.name)
                    or draw.BY_NAME.get(arg.name)
                    or draw.BY_TYPE[str(arg.type)]
                )
                wanted.append((arg.name, drawer, arg.kwarg_only))
        yield from sorted(wanted, key=lambda each: _DRAWING_ORDER.get(each[0], 1))

    def bind(self, drawn: dict[str, Argument]) -> tuple[tuple[Argument, ...], dict[str, Argument]]:
        """The arguments drawn as positional and keyword arguments of the schema.

        A positional argument that was not drawn and stands before one that was is passed by its
        default.
        """
        schema = resolve(self.name)._schema.arguments
        positional = [arg for arg in schema if not arg.kwarg_only]
        while positional and positional[-1].name not in drawn:
            positional.pop()
        args = tuple(drawn.get(arg.name, arg.default_value) for arg in positional)
        return args, {
            arg.name: drawn[arg.name] for arg in schema if arg.kwarg_only and arg.name in drawn
        }


_DRAWING_ORDER = {
    "tensors": -1,
    "dim": 0,
    "dimension": 0,
    "src": 2,
    "source": 2,
    "values": 2,
    "out": 3,
}


def _line(
    group: str, name: str, dtypes: Callable[[torch.dtype], bool] = ANY, **drawers: Drawer
) -> Operator:
    return Operator(f"aten.{name}", group, dtypes, drawers)


OPERATORS: tuple[Operator, ...] = (
    # views
    _line("view", "select.int", index=draw.index_in_dimension),
    _line(
        "view",
        "slice.Tensor",
        dim=draw.dimension,
        start=draw.start_in_dimension,
        end=draw.end_in_dimension,
        step=draw.step,
    ),
    _line("view", "narrow.default", start=draw.start_in_dimension, length=draw.length_in_dimension),
    _line("view", "transpose.int"),
    _line("view", "t.default"),
    _line("view", "permute.default"),
    _line("view", "view.default", size=draw.reshaped),
    _line("view", "reshape.default", shape=draw.reshaped),
    _line("view", "flatten.using_ints"),
    _line("view", "unflatten.int", sizes=draw.factors),
    _line("view", "expand.default", size=draw.expanded),
    _line("view", "squeeze.default"),
    _line("view", "squeeze.dim"),
    _line("view", "unsqueeze.default", dim=draw.dimension_to_insert),
    _line(
        "view",
        "diagonal.default",
        offset=draw.offset_of_diagonal,
        dim1=draw.dimension,
        dim2=draw.other_dimension,
    ),
    _line("view", "unfold.default", size=draw.window, step=draw.step),
    _line("view", "split.Tensor", dim=draw.dimension, split_size=draw.piece),
    _line("view", "chunk.default", dim=draw.dimension, chunks=draw.pieces),
    _line("view", "unbind.int", dim=draw.dimension),
    _line(
        "view",
        "as_strided.default",
        size=draw.strided_sizes,
        stride=draw.strided_strides,
        storage_offset=draw.strided_offset,
    ),
    _line("view", "view.dtype", dtype=draw.dtype_of_other_size),
    _line("view", "view_as_real.default", COMPLEX),
    _line("view", "view_as_complex.default", FLOAT),
    _line("view", "real.default", COMPLEX),
    _line("view", "imag.default", COMPLEX),
    _line("view", "detach.default"),
    _line("view", "alias.default"),
    # in-place
    _line("in-place", "add_.Tensor", NUMBERS),
    _line("in-place", "add_.Scalar", NUMBERS),
    _line("in-place", "sub_.Tensor", NUMBERS, alpha=draw.number),
    _line("in-place", "mul_.Tensor"),
    _line("in-place", "mul_.Scalar"),
    _line("in-place", "div_.Tensor", INEXACT),
    _line("in-place", "neg_.default", NUMBERS),
    _line("in-place", "abs_.default", REAL),
    _line("in-place", "relu_.default", REAL),
    _line("in-place", "sign_.default", REAL),
    _line("in-place", "square_.default", NUMBERS),
    _line("in-place", "sigmoid_.default", FLOAT),
    _line("in-place", "cos_.default", FLOAT),
    _line("in-place", "bitwise_not_.default", lambda dtype: dtype in (torch.int64, torch.bool)),
    _line("in-place", "logical_not_.default"),
    _line("in-place", "fill_.Scalar"),
    _line("in-place", "fill_.Tensor", value=draw.scalar_tensor),
    _line("in-place", "zero_.default"),
    _line("in-place", "copy_.default"),
    _line("in-place", "clamp_.default", REAL, min=draw.number),
    _line("in-place", "clamp_max_.default", REAL, max=draw.number),
    _line("in-place", "lerp_.Scalar", INEXACT),
    _line("in-place", "addcmul_.default", NUMBERS, value=draw.number),
    _line("in-place", "cumsum_.default", NUMBERS),
    _line("in-place", "masked_fill_.Scalar", value=draw.number),
    _line("in-place", "masked_fill_.Tensor", value=draw.scalar_tensor),
    _line("in-place", "tril_.default"),
    # into a buffer
    _line("out=", "add.out", NUMBERS),
    _line("out=", "mul.out"),
    _line("out=", "neg.out", NUMBERS),
    _line("out=", "clamp.out", REAL, min=draw.number),
    _line("out=", "cumsum.out", REAL),
    _line("out=", "gt.Scalar_out", REAL, out=draw.bool_buffer),
    _line("out=", "where.self_out"),
    # functional
    _line("functional", "add.Tensor", NUMBERS, other=draw.partner),
    _line("functional", "add.Scalar", NUMBERS),
    _line("functional", "sub.Tensor", NUMBERS, other=draw.partner),
    _line("functional", "mul.Tensor", other=draw.partner),
    _line("functional", "mul.Scalar"),
    _line("functional", "neg.default", NUMBERS),
    _line("functional", "abs.default", REAL),
    _line("functional", "relu.default", REAL),
    _line("functional", "clone.default"),
    _line("functional", "zeros_like.default"),
    _line("functional", "full_like.default", fill_value=draw.number),
    _line("functional", "gt.Scalar", REAL),
    _line("functional", "eq.Tensor", other=draw.partner),
    _line("functional", "logical_not.default"),
    _line("functional", "clamp.default", REAL, min=draw.number),
    _line("functional", "masked_fill.Scalar", value=draw.number),
    _line("functional", "where.self", other=draw.partner),
    _line("functional", "fill.Scalar"),
    _line("functional", "copy.default"),
    _line("functional", "cat.default", dim=draw.dimension),
    _line("functional", "stack.default"),
    _line("functional", "addcmul.default", NUMBERS, value=draw.number),
    _line("functional", "flip.default", dims=lambda draft: (draw.dimension(draft),)),
    # scatters
    _line(
        "scatter",
        "select_scatter.default",
        src=draw.source_for("aten.select.int", "dim", "index"),
        index=draw.index_in_dimension,
    ),
    _line(
        "scatter",
        "slice_scatter.default",
        src=draw.source_for("aten.slice.Tensor", "dim", "start", "end", "step"),
        dim=draw.dimension,
        start=draw.start_in_dimension,
        end=draw.end_in_dimension,
        step=draw.step,
    ),
    _line(
        "scatter",
        "diagonal_scatter.default",
        src=draw.source_for("aten.diagonal.default", "offset", "dim1", "dim2"),
        offset=draw.offset_of_diagonal,
        dim1=draw.dimension,
        dim2=draw.other_dimension,
    ),
    _line(
        "scatter",
        "as_strided_scatter.default",
        src=draw.source_for("aten.as_strided.default", "size", "stride", "storage_offset"),
        size=draw.strided_sizes,
        stride=draw.strided_strides,
        storage_offset=draw.strided_offset,
    ),
    # by index
    _line("indexed", "index.Tensor"),
    _line("indexed", "index_put_.default", values=draw.values_to_put),
    _line("indexed", "index_put.default", values=draw.values_to_put),
    _line("indexed", "index_add_.default", NUMBERS, source=draw.rows_to_add),
    _line("indexed", "index_copy_.default", source=draw.rows_to_add),
    _line("indexed", "index_fill_.int_Scalar"),
    _line("indexed", "index_select.default"),
    _line("indexed", "scatter_.src", index=draw.positions_like, src=draw.at_least_index),
    _line("indexed", "scatter_.value", index=draw.positions_like),
    _line("indexed", "gather.default", index=draw.positions_like),
    # reductions
    _line("reduction", "sum.default", NUMBERS),
    _line("reduction", "sum.dim_IntList", NUMBERS, dim=lambda draft: (draw.dimension(draft),)),
    _line("reduction", "amax.default", REAL),
    _line("reduction", "cumsum.default", NUMBERS),
    _line("reduction", "matmul.default", NUMBERS, other=draw.matrix_for),
)
