"""How tensor arguments are drawn: values of the scene with a dtype and a shape that fit.

Every function here takes the `Draft` of the call so far and returns one argument, or raises
`NoChoice`. The "first tensor" is the argument `self`, which is drawn before all others.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence

import torch

from aliasproof.generators.draft import Draft, Drawer
from aliasproof.generators.number_arguments import number
from aliasproof.generators.scene import FLOAT8, NoChoice
from aliasproof.ir.program import Argument, Ref
from aliasproof.ir.schemas import resolve

# --- operands -------------------------------------------------------------------------------------


def tensor_like(draft: Draft, accepts: Callable[[torch.Tensor], bool]) -> Ref:
    """A value that `accepts` accepts.

    If the scenario "aliased operands" is on, it is often one that aliases the first tensor.
    """
    fitting = draft.scene.newest_first(accepts)
    if "aliased operands" in draft.features.scenarios and draft.pick.chance(30):
        near = {*draft.scene.aliases(draft.self_name), draft.self_name}
        fitting = [name for name in fitting if name in near] or fitting
    return Ref(draft.pick.one(fitting))


def tensor_that(fits: Callable[[torch.Tensor, torch.Tensor], bool]) -> Drawer:
    """A drawer for a tensor that fits the first one. `fits(first, other)` decides that."""
    return lambda draft: tensor_like(draft, functools.partial(fits, draft.self))


any_tensor = tensor_that(lambda own, other: True)
tensor_of_own_dtype = tensor_that(lambda own, other: other.dtype == own.dtype)
tensor_of_own_kind = tensor_that(
    lambda own, other: other.dtype == own.dtype and other.shape == own.shape
)
tensor_of_same_length = tensor_that(lambda own, other: other.numel() == own.numel())
tensor_to_expand_to = tensor_that(lambda own, other: broadcasts(own.shape, other.shape))
# For shifts: fake kernels, and so all compilers, refuse a bool as the number of bits.
operand_of_same_dtype = tensor_that(
    lambda own, other: other.dtype == own.dtype and broadcasts(other.shape, own.shape)
)
# Eager warns when a copy discards imaginary parts.
copy_source = tensor_that(
    lambda own, other: (
        broadcasts(other.shape, own.shape) and (own.is_complex() or not other.is_complex())
    )
)
# Right factors of a matrix product with the first tensor; nothing fits a 0-d tensor.
matrix_for = tensor_that(
    lambda own, other: (
        other.dtype == own.dtype and other.dim() in (1, 2) and own.shape[-1:] == other.shape[:1]
    )
)


def itself(draft: Draft) -> Argument:
    """The first tensor, for an op whose schema has another name than `self` for it."""
    return Ref(draft.self_name)


def operand(draft: Draft) -> Argument:
    """A tensor of the first tensor's dtype that broadcasts to its shape.

    Rarely, it is a 0-d tensor of another dtype. The result keeps the dtype of the first tensor.
    """
    shape, dtype = draft.self.shape, draft.self.dtype
    if shape and draft.pick.chance(20):
        numbers = draft.scene.newest_first(
            lambda t: not t.dim() and t.dtype != dtype and _promotes_to(t.dtype, dtype)
        )
        if numbers:
            return Ref(draft.pick.one(numbers))
    return operand_of_same_dtype(draft)


def _promotes_to(number: torch.dtype, dtype: torch.dtype) -> bool:
    """True if a tensor keeps its dtype when combined with a 0-d tensor of the other dtype."""
    if FLOAT8 & {number, dtype}:  # eager promotes no float8
        return False
    kinds = [(d.is_complex, d.is_floating_point, d != torch.bool) for d in (number, dtype)]
    return max(kinds) == kinds[1]


def partner(draft: Draft) -> Argument:
    """A tensor of the first tensor's dtype to combine with.

    Sometimes the two broadcast to a shape that neither has.
    """
    if not draft.pick.chance(20):
        return operand(draft)
    # A result larger than both operands cannot be computed in place.
    shape, dtype = draft.self.shape, draft.self.dtype
    return tensor_like(draft, lambda t: t.dtype == dtype and combines(t.shape, shape))


def partner_or_number(draft: Draft) -> Argument:
    """A tensor to combine with, or a number, as Dynamo captures `x + 2`."""
    return number(draft) if draft.pick.chance(20) else partner(draft)


def scalar_tensor(draft: Draft) -> Argument:
    """A 0-d tensor of the first tensor's dtype; a new one if there is none."""
    dtype = draft.self.dtype
    if draft.scene.newest_first(lambda t: t.dim() == 0 and t.dtype == dtype):
        return tensor_like(draft, lambda t: t.dim() == 0 and t.dtype == dtype)
    value = 1 if dtype == torch.bool else draft.pick.integer(1, 3)
    return draft.new_full((), value)


def mask(draft: Draft) -> Argument:
    """A bool tensor that broadcasts to the first tensor's shape.

    If there is none, a comparison is added to the scene.
    """
    shape = draft.self.shape
    masks = draft.scene.newest_first(lambda t: t.dtype == torch.bool and broadcasts(t.shape, shape))
    if masks:
        return Ref(draft.pick.one(masks))
    # Complex values are not ordered.
    compare = "aten.eq.Scalar" if draft.self.is_complex() else "aten.gt.Scalar"
    return Ref(draft.scene.call(compare, Ref(draft.self_name), 2)[0])


def tensor_to_convert_like(draft: Draft) -> Argument:
    """A tensor of the first tensor's dtype, so that the conversion does nothing, or of another."""
    own = draft.self.dtype
    if draft.pick.chance(50):
        return tensor_like(draft, lambda tensor: tensor.dtype == own)
    return tensor_like(draft, lambda tensor: tensor.dtype.is_complex or not own.is_complex)


def separate_tensor(
    draft: Draft, accepts: Callable[[torch.Tensor], bool], shape: Sequence[int]
) -> Ref:
    """A value of the first tensor's dtype that `accepts` accepts, and that does not overlap it.

    If there is none, one of that shape is added to the scene: another value reshaped, or a
    constant.
    """
    dtype, count = draft.self.dtype, math.prod(shape)
    values = draft.scene.newest_first(lambda t: t.dtype == dtype and not draft.overlaps_self(t))
    fitting = [name for name in values if accepts(draft.scene.values[name])]
    if fitting and not draft.pick.chance(20):
        return Ref(draft.pick.one(fitting))
    reshaped = [name for name in values if draft.scene.values[name].numel() == count]
    if reshaped and draft.pick.chance(70):
        other = Ref(draft.pick.one(reshaped))
        return Ref(draft.scene.call("aten.reshape.default", other, tuple(shape))[0])
    constant = draft.pick.one([True] if dtype == torch.bool else [2, -1, 3])
    return draft.new_full(shape, constant)


def of_shape(shape: Callable[[Draft], Sequence[int]]) -> Drawer:
    """A drawer for a tensor of a shape that depends on the arguments drawn before."""

    def drawer(draft: Draft) -> Argument:
        wanted = tuple(shape(draft))
        return separate_tensor(draft, lambda t: tuple(t.shape) == wanted, wanted)

    return drawer


def tensor_list(draft: Draft) -> Argument:
    """Two or three tensors of one dtype and shape; the first of them becomes the first tensor."""
    # `cat` refuses 0-d tensors.
    first = draft.pick.one(draft.scene.newest_first(lambda t: t.dim() > 0))
    shape, dtype = draft.scene.values[first].shape, draft.scene.values[first].dtype
    like = draft.scene.newest_first(lambda t: t.shape == shape and t.dtype == dtype)
    others = [draft.pick.one(like) for _ in range(draft.pick.integer(1, 2))]
    return tuple(Ref(name) for name in (first, *others))


# --- the source of a scatter ----------------------------------------------------------------------


def source_for(view_op: str, *arguments: str) -> Drawer:
    """A drawer for the source of a scatter.

    The source has the shape of the view that `view_op` gives with the arguments drawn so far.
    """

    def drawer(draft: Draft) -> Argument:
        args = [draft.drawn[name] for name in arguments]
        # Eager computes the shape. It refuses some arguments, such as two equal dimensions.
        try:
            view = resolve(view_op)(draft.self, *args)
        except (RuntimeError, IndexError) as reason:
            raise NoChoice from reason
        shape, dtype = view.shape, view.dtype
        fitting = draft.scene.newest_first(lambda t: t.dtype == dtype and t.shape == shape)
        if fitting and not draft.pick.chance(40):
            return Ref(draft.pick.one(fitting))
        # As functionalization does: take the view, change it, scatter it back.
        taken = draft.scene.call(view_op, Ref(draft.self_name), *args)[0]
        return Ref(draft.scene.call("aten.neg.default", Ref(taken))[0])

    return drawer


# --- shapes that go together ----------------------------------------------------------------------


def broadcasts(shape: torch.Size, to: torch.Size) -> bool:
    """True if a tensor of that shape can be expanded to the other."""
    padded = (1,) * (len(to) - len(shape)) + tuple(shape)
    return len(shape) <= len(to) and all(
        own in (1, wanted) for own, wanted in zip(padded, to, strict=True)
    )


def combines(one: torch.Size, other: torch.Size) -> bool:
    """True if tensors of these shapes broadcast together."""
    pairs = zip(reversed(one), reversed(other), strict=False)
    return all(1 in pair or pair[0] == pair[1] for pair in pairs)
