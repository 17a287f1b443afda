"""Which arguments of an op are drawn, and by which drawer.

A line of the table in `aliasproof.generators.ops` may give a drawer for any argument.
Otherwise the name or the type in the schema decides. All drawers are found when the table is built,
so a line without one fails at import and not in the middle of a campaign. A drawer takes the
`Draft` of the call so far and gives one argument, or raises `NoChoice`.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch

from aliasproof.eager.rounding import readable
from aliasproof.generators import index_arguments as indices
from aliasproof.generators import number_arguments as numbers
from aliasproof.generators import tensor_arguments as tensors
from aliasproof.generators.draft import Draft, Drawer
from aliasproof.generators.number_arguments import number
from aliasproof.generators.scene import EAGER_ERRORS, NoChoice
from aliasproof.generators.tensor_arguments import broadcasts, of_shape, tensor_like
from aliasproof.ir.eager_call import tensors_in
from aliasproof.ir.errors import UserError, did_you_mean
from aliasproof.ir.program import Argument, Ref
from aliasproof.ir.regions import Region, capacity, dense_strides, overlap, overlaps_itself, reach
from aliasproof.ir.schemas import Kind, facts, resolve

# --- accepted dtypes ------------------------------------------------------------------------------
#
# Which dtypes eager's kernels for an op accept: determined by calling eager, once per op and dtype.


# If eager refuses all of these, the reason is the small arguments and not the dtype.
_COMMON = (torch.float32, torch.float64, torch.int64, torch.bool, torch.complex64)


@functools.cache
def accepts(op: str, drawn: tuple[str, ...], dtype: torch.dtype) -> bool:
    """Whether eager runs an op on small tensors of a dtype, or refuses them for another reason.

    `drawn` are the names of the arguments that the call gets besides those without a default.
    """
    return _runs(op, drawn, dtype) or not any(_runs(op, drawn, common) for common in _COMMON)


@functools.cache
def _runs(op: str, drawn: tuple[str, ...], dtype: torch.dtype) -> bool:
    try:
        given = dict(_small_arguments(op, drawn, dtype))
        # Without its `out=` arguments, torch chooses the functional form of an op.
        buffers = facts(resolve(op)).kind is Kind.OUT
        function = resolve(op).overloadpacket if buffers else resolve(op)
        # Eager's warnings are about these small arguments only.
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            function(**given)
    except (*EAGER_ERRORS, KeyError):
        return False
    return True


def _small_arguments(
    op: str, drawn: tuple[str, ...], dtype: torch.dtype
) -> Iterable[tuple[str, Any]]:
    """An argument of each type. Raises `KeyError` for other types."""
    for argument in resolve(op)._schema.arguments:
        name = argument.name
        if argument.is_out or (name != "self" and name not in drawn):
            continue
        if name in ("mask", "condition"):
            yield name, torch.ones(1, 1, dtype=torch.bool)
        elif name == "index":
            # For these, as many dimensions as `self` has.
            sizes = (1, 1) if op.startswith(("aten.scatter", "aten.gather")) else (1,)
            yield name, torch.zeros(sizes, dtype=torch.int64)
        elif name in _TEXTS:
            yield name, _TEXTS[name]
        elif name == "value" and str(argument.type) == "Tensor":
            yield name, torch.ones(()).to(dtype)
        else:
            yield (
                name,
                _SMALL[str(argument.type).removeprefix("Optional[").removesuffix("]")](dtype),
            )


_TEXTS = {"rounding_mode": "trunc", "approximate": "none", "reduce": "amax"}

# By type in the schema.
_SMALL: dict[str, Any] = {
    "Tensor": lambda dtype: torch.ones(1, 1).to(dtype),
    "number": lambda dtype: True if dtype == torch.bool else 2,
    "float": lambda dtype: 1.0,
    "int": lambda dtype: 1,
    "bool": lambda dtype: False,
    # Lists of one item.
    "List[Tensor]": lambda dtype: [torch.ones(1, 1).to(dtype)],
    "List[number]": lambda dtype: [True if dtype == torch.bool else 2],
}


# --- buffer arguments -----------------------------------------------------------------------------
#
# Eager computes the result, so rules about sizes and dtypes need not be repeated here.


def buffer_for(op: str, name: str) -> Drawer:
    """A drawer for the `out=` argument of that name.

    It is a tensor of the scene, or a new one. Sometimes a new one has no elements, so eager resizes
    it. Resizing a buffer that has elements is deprecated in torch.
    """
    known = facts(resolve(op))
    names = [known.op._schema.arguments[index].name for index in known.writes]

    def drawer(draft: Draft) -> Argument:
        inputs = {key: draft.value(key) for key in draft.drawn if key not in names}
        # Without `out=`, torch chooses the functional overload.
        try:
            results = known.op.overloadpacket(**inputs)
        except EAGER_ERRORS as reason:
            raise NoChoice from reason
        result = list(tensors_in(results))[names.index(name)]
        operands = list(tensors_in(list(map(draft.value, draft.drawn))))
        others = [Region.of(operand) for operand in operands]

        def fits(tensor: torch.Tensor) -> bool:
            # A pointwise op casts to the dtype of the buffer, and may overwrite an operand.
            casts = known.pointwise and torch.can_cast(result.dtype, tensor.dtype)
            region = Region.of(tensor)
            return (
                tensor.shape == result.shape
                and (tensor.dtype == result.dtype or casts)
                and not overlaps_itself(region)
                and not any(
                    overlap(region, other) and not (known.pointwise and region == other)
                    for other in others
                )
            )

        fitting = draft.scene.newest_first(fits)
        if fitting and not draft.pick.chance(15):
            return tensor_like(draft, fits)
        shape = (0,) if draft.pick.chance(20) else tuple(result.shape)
        new = draft.scene.call(
            "aten.new_empty.default", Ref(draft.self_name), shape, dtype=result.dtype
        )
        return Ref(new[0])

    return drawer


# --- arguments ------------------------------------------------------------------------------------


BY_NAME: dict[str, Drawer] = {
    "dim": numbers.dimension,
    "dim0": numbers.dimension,
    "dim1": numbers.dimension,
    "dimension": numbers.dimension,
    "dims": numbers.permutation,
    "mask": tensors.mask,
    "src": tensors.copy_source,
    "weight": numbers.number,
    "condition": tensors.mask,
    "index": indices.positions,
    "indices": indices.index_list,
}

BY_TYPE: dict[str, Drawer] = {
    "Tensor": tensors.operand,
    "number": numbers.number,
    "List[Tensor]": tensors.tensor_list,
}

# A list of tensors comes first, since it provides the first tensor; then a dimension, since indices
# depend on it. Stored values come late, since their shape depends on the indices. A buffer is last,
# since its shape depends on all operands. Arguments of equal rank keep the order of the schema.
# The names of such lists: `self` is drawn as an argument only if it is a list.
FIRST_LISTS = ("self", "tensors")
_DRAWING_ORDER = {
    **dict.fromkeys(FIRST_LISTS, -1),
    "dim": 0,
    "dimension": 0,
    "src": 2,
    "source": 2,
    "values": 2,
}
_BUFFERS = 3


def drawn_arguments(op: str, drawers: Mapping[str, Drawer]) -> dict[str, Drawer]:
    """The drawers of the arguments of an op, in drawing order; `drawers` has some of them by name.

    A tensor `self` is not among them: it is drawn before all others, which depend on it. An
    argument with a default is left out unless it has an entry in `drawers`. Raises `UserError` if
    an argument has no drawer, or a drawer has no argument.
    """
    schema = resolve(op)._schema.arguments
    known = [argument.name for argument in schema]
    for name in drawers:
        if name not in known:
            raise UserError(f"{op}: takes no argument '{name}'{did_you_mean(name, known)}")
    wanted: dict[str, Drawer] = {}
    for argument in schema:
        name = argument.name
        if name == "self" and str(argument.type) == "Tensor":
            continue
        if name not in drawers and argument.has_default_value():
            continue
        drawer = drawers.get(name) or (buffer_for(op, name) if argument.is_out else None)
        drawer = drawer or BY_NAME.get(name) or BY_TYPE.get(str(argument.type))
        if drawer is None:
            raise UserError(f"{op}: no drawer for '{name}' ({argument.type}); give one in the line")
        wanted[name] = drawer
    buffers = {argument.name for argument in schema if argument.is_out}

    def order(name: str) -> int:
        return _BUFFERS if name in buffers else _DRAWING_ORDER.get(name, 1)

    return {name: wanted[name] for name in sorted(wanted, key=order)}


# --- list arguments -------------------------------------------------------------------------------
#
# How the lists of a `_foreach_` op are drawn: the tensors that it writes, and operands for each.

# Torch runs such an op on one tensor after the other, or on all at once. So the result is
# unspecified if operands overlap the tensors of other items.
UNSPECIFIED_SHARE = 10  # percent of the items that may overlap others


def tensors_to_write(draft: Draft) -> Argument:
    """One to three tensors of any shape, mostly of one dtype."""
    names = draft.scene.newest_first(lambda tensor: draft.accepts(tensor.dtype))
    chosen = [draft.pick.one(names[:4] if draft.pick.chance(50) else names)]
    dtype = draft.scene.values[chosen[0]].dtype
    alike = [name for name in names if draft.scene.values[name].dtype == dtype]
    for _ in range(draft.pick.integer(0, 2)):
        others = names if draft.pick.chance(15) else alike
        apart = _apart(draft, chosen, others)
        if apart:  # the scene may have no tensor left
            chosen.append(draft.pick.one(apart))
    return tuple(map(Ref, chosen))


def operand_per_item(draft: Draft) -> Argument:
    """For each tensor written, one of its dtype that broadcasts to its shape."""
    return _per_item(
        draft, lambda own, tensor: own.dtype == tensor.dtype and broadcasts(tensor.shape, own.shape)
    )


def source_per_item(draft: Draft) -> Argument:
    """For each tensor written, one to copy from."""

    def fits(own: torch.Tensor, tensor: torch.Tensor) -> bool:
        # Eager warns when a copy discards imaginary parts.
        real = own.is_complex() or not tensor.is_complex()
        return real and broadcasts(tensor.shape, own.shape)

    return _per_item(draft, fits)


def number_per_item(draft: Draft) -> Argument:
    """For each tensor written, a number."""
    return tuple(number(draft) for _ in draft.elements("self"))


def _per_item(
    draft: Draft, fits: Callable[[torch.Tensor, torch.Tensor], bool]
) -> tuple[Argument, ...]:
    written, chosen = draft.names("self"), []
    for index, name in enumerate(written):
        own = draft.scene.values[name]
        fitting = draft.scene.newest_first(functools.partial(fits, own))
        others = written[:index] + written[index + 1 :]
        if "aliased operands" in draft.features.scenarios and draft.pick.chance(30):
            near = {name, *draft.scene.aliases(name)}
            fitting = [candidate for candidate in fitting if candidate in near] or fitting
        chosen.append(Ref(draft.pick.one(_apart(draft, others, fitting))))
    return tuple(chosen)


def _apart(draft: Draft, written: list[str], names: list[str]) -> list[str]:
    """The names of tensors that share no byte with the written ones; rarely, all names."""
    if draft.pick.chance(UNSPECIFIED_SHARE):
        return names
    return draft.scene.apart(names, written)


# --- matrix arguments -----------------------------------------------------------------------------
#
# The shape of an operand depends on the first tensor and on the operands drawn before.


def multiplies(dtype: torch.dtype) -> bool:
    """True if eager multiplies matrices of that dtype."""
    return accepts("aten.mm.default", ("mat2",), dtype)


def _size(draft: Draft, dim: int) -> int:
    """A size of the first tensor."""
    return draft.self.shape[dim]


def _inner(draft: Draft, left: str) -> int:
    """The size over which a product sums: the columns of the left factor."""
    return draft.tensor(left).shape[-1]


def _any_size(draft: Draft) -> int:
    return draft.pick.integer(1, 3)


def _drawers(**shapes: Callable[[Draft], Sequence[int]]) -> dict[str, Drawer]:
    """A drawer per argument, for a tensor of the given shape."""
    return {name: of_shape(shape) for name, shape in shapes.items()}


_FACTORS: dict[str, Drawer] = {"beta": numbers.one_of(1, 0, 2), "alpha": numbers.one_of(1, 2, -1)}

MM = _drawers(mat2=lambda draft: (_size(draft, 1), _any_size(draft)))
BMM = _drawers(mat2=lambda draft: (_size(draft, 0), _size(draft, 2), _any_size(draft)))
MV = _drawers(vec=lambda draft: (_size(draft, 1),))
OUTER = _drawers(vec2=lambda draft: (_any_size(draft),))
ADDMM = _FACTORS | _drawers(
    mat1=lambda draft: (_size(draft, 0), _any_size(draft)),
    mat2=lambda draft: (_inner(draft, "mat1"), _size(draft, 1)),
)
ADDMV = _FACTORS | _drawers(
    mat=lambda draft: (_size(draft, 0), _any_size(draft)), vec=lambda draft: (_inner(draft, "mat"),)
)
ADDR = _FACTORS | _drawers(
    vec1=lambda draft: (_size(draft, 0),), vec2=lambda draft: (_size(draft, 1),)
)
BADDBMM = _FACTORS | _drawers(
    batch1=lambda draft: (_size(draft, 0), _size(draft, 1), _any_size(draft)),
    batch2=lambda draft: (_size(draft, 0), _inner(draft, "batch1"), _size(draft, 2)),
)
# A sum over the batch; the result is a matrix.
ADDBMM = _FACTORS | _drawers(
    batch1=lambda draft: (_any_size(draft), _size(draft, 0), _any_size(draft)),
    batch2=lambda draft: (
        draft.tensor("batch1").shape[0],
        _inner(draft, "batch1"),
        _size(draft, 1),
    ),
)


# --- metadata arguments ---------------------------------------------------------------------------
# `set_` reads the storage of its source. So the source is drawn last, with room for the layout.


def few_sizes(draft: Draft) -> Argument:
    """The sizes of the first tensor, in their order or reversed, or other small sizes."""
    shape = tuple(draft.self.shape)
    return draft.pick.one((shape, shape[::-1], (draft.self.numel(),), (2,), (1, 2), (2, 2), ()))


def dense_or_reversed_strides(draft: Draft) -> Argument:
    """Dense strides for the sizes drawn, in either order of dimensions."""
    sizes = draft.elements("size")
    return draft.pick.one((dense_strides(sizes), dense_strides(sizes[::-1])[::-1]))


def small_offset(draft: Draft) -> Argument:
    """The start of the storage, or an element behind it."""
    return draft.pick.integer(0, 2)


def source_with_room(draft: Draft) -> Argument:
    """A tensor of the first tensor's dtype, whose storage has room for the layout drawn."""
    needed = reach(draft.elements("size"), draft.elements("stride"))
    needed, dtype = needed + draft.integer("storage_offset"), draft.self.dtype
    return tensor_like(draft, lambda t: t.dtype == dtype and capacity(t) >= needed)


def new_sizes(draft: Draft) -> Argument:
    """Other sizes: fewer elements, as many, or more; additional elements are uninitialised."""
    shape: torch.Size = draft.self.shape
    count = draft.self.numel()
    sizes: list[tuple[int, ...]] = [
        tuple(shape[::-1]),
        (count,),
        (max(count - 1, 0),),
        (min(count, 2),),
        (*shape, 1),
        (count + 1,),
    ]
    return draft.pick.one(sizes)


# --- random arguments -----------------------------------------------------------------------------


def training(draft: Draft) -> Argument:
    """Whether a dropout draws random numbers; mostly it does."""
    return not draft.pick.chance(20)


inner_probability = numbers.one_of(0.5, 0.25)  # other than 0 and 1
limit = numbers.one_of(2, 3, 10, 100)  # of the integers drawn; small, so that they can be indices


def probabilities(draft: Draft) -> Argument:
    """A tensor of probabilities that broadcasts to the first tensor's shape."""
    shape = draft.self.shape

    def fits(tensor: torch.Tensor) -> bool:
        if not tensor.is_floating_point() or not broadcasts(tensor.shape, shape):
            return False
        values = readable(tensor)
        return bool(((values >= 0) & (values <= 1)).all())

    return tensor_like(draft, fits)
