"""The forms of view ops: in place on metadata (`t_` of `t`), copying (`select_copy`), and as steps.

Many view ops are steps of others: `narrow` is a slice, `split` several, `imag` a select of
`view_as_real`. These are `COMPOSITES`.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from torch._ops import OpOverload

from aliasproof.reference_pass.calls.operator_forms import aten, overloads, signature
from aliasproof.reference_pass.calls.regions import Size

Arguments: TypeAlias = tuple[Any, ...]  # of a view op, without the tensor that comes first
ViewStep: TypeAlias = tuple[OpOverload, Arguments]


@functools.cache
def view_form(op: OpOverload) -> OpOverload | None:
    """The view op of an op that changes metadata in place: `t` of `t_`; None if there is none."""
    name = op.overloadpacket.__name__
    if op.namespace != "aten" or not name.endswith("_"):
        return None
    # A view aliases its first argument without writing it. `add` does not, so `add_` has no view.
    for candidate in overloads(name[:-1]):
        info = candidate._schema.arguments[0].alias_info if candidate._schema.arguments else None
        if info is not None and not info.is_write and signature(candidate) == signature(op):
            return candidate
    return None


def mutates_only_metadata(op: OpOverload) -> bool:
    """True if an op changes the metadata of its argument, and not its contents."""
    others = (aten.set_, aten.resize_, aten.resize_as_)
    return view_form(op) is not None or op.overloadpacket in others


@functools.cache
def copy_form(op: OpOverload) -> OpOverload | None:
    """The functional form of a view op: `select_copy` of `select`; None if there is none."""
    # The overloads of the two may have other names, so they are matched by their arguments.
    wanted, forms = signature(op), overloads(op.overloadpacket.__name__ + "_copy")
    return next((form for form in forms if signature(form) == wanted), None)


@functools.cache
def copied_view(op: OpOverload) -> OpOverload | None:
    """The view op of a view-copy op: `select` of `select_copy`; None for other ops."""
    name = op.overloadpacket.__name__
    if op.namespace != "aten" or not name.endswith("_copy"):
        return None
    views = overloads(name.removesuffix("_copy"))
    return next((view for view in views if copy_form(view) is op), None)


# --- as steps -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ViewCall:
    """One result of a call of a view op.

    `given` are the arguments by name, without the tensor. `sizes` are those of the result, and
    `before` those of the results that come before it. `conj` says that the tensor has the lazy
    conjugate bit.
    """

    op: Any  # an overload, if `VIEW_STEPS` has a line for it
    given: dict[str, Any]
    # Not the tensors: a later call may change the metadata of these objects (`squeeze_`).
    sizes: tuple[Size, ...]
    before: Sequence[tuple[Size, ...]]
    conj: bool

    @property
    def index(self) -> int:
        """The index of the result among several."""
        return len(self.before)


ToSteps: TypeAlias = Callable[[ViewCall], list[ViewStep] | None]


def as_itself(call: ViewCall) -> list[ViewStep]:
    """The view op itself, with all of its arguments."""
    wanted = [argument for argument in call.op._schema.arguments[1:] if not argument.kwarg_only]
    args = tuple(call.given.get(argument.name, argument.default_value) for argument in wanted)
    return [(call.op, args)]


def _as_piece(call: ViewCall) -> list[ViewStep]:
    dim = call.given.get("dim", 0)
    # Needs the sizes of the pieces before this one: the last piece may be smaller than the others.
    sizes = [piece[dim] for piece in (*call.before, call.sizes)]
    return [(aten.slice.Tensor, (dim, sum(sizes[:-1]), sum(sizes), 1))]


def _as_piece_between(call: ViewCall) -> list[ViewStep]:
    # The indices may decrease. Then a piece is empty, and the next one starts before its end.
    bounds = [0, *call.given["indices"], sys.maxsize]
    start, end = bounds[call.index : call.index + 2]
    return [(aten.slice.Tensor, (call.given.get("dim", 0), start, end, 1))]


def _as_slice(call: ViewCall) -> list[ViewStep] | None:
    start, length = call.given["start"], call.given["length"]
    # A negative start would need the size of the dimension, and a symbol might be negative.
    if not (isinstance(start, int) and isinstance(length, int) and start >= 0):
        return None
    return [(aten.slice.Tensor, (call.given["dim"], start, start + length, 1))]


def _as_part_of_complex(call: ViewCall) -> list[ViewStep]:
    is_imag = call.op is aten.imag.default
    part: list[ViewStep] = [
        (aten.view_as_real.default, ()),
        (aten.select.int, (-1, int(is_imag))),
    ]
    if not call.conj:
        return part
    # `view_as_real` refuses the conjugate bit. So a step clears it first. The imaginary part is
    # then the negative of the requested one.
    negated: list[ViewStep] = [(aten._neg_view.default, ())] if is_imag else []
    return [(aten._conj.default, ()), *part, *negated]


RESHAPES = (
    aten._unsafe_view.default,
    aten._reshape_alias.default,
    aten.reshape.default,
    aten.flatten.using_ints,
    aten.unflatten.int,
    aten.view_as.default,
    aten.reshape_as.default,
    aten.contiguous.default,
    aten.ravel.default,
)
SPLITS = (
    aten.split.Tensor,
    aten.split.sizes,
    aten.split_with_sizes.default,
    aten.chunk.default,
    aten.unsafe_split.Tensor,
    aten.unsafe_split_with_sizes.default,
    aten.unsafe_chunk.default,
    aten.tensor_split.sections,
)

COMPOSITES: dict[OpOverload, ToSteps] = {
    # If a reshape copies, its result has a storage of its own, so there is no view to reduce.
    **dict.fromkeys(RESHAPES, lambda call: [(aten.view.default, (list(call.sizes),))]),
    **dict.fromkeys(SPLITS, _as_piece),
    aten.tensor_split.indices: _as_piece_between,
    aten.unbind.int: lambda call: [(aten.select.int, (call.given.get("dim", 0), call.index))],
    aten.narrow.default: _as_slice,
    aten.real.default: _as_part_of_complex,
    aten.imag.default: _as_part_of_complex,
}
