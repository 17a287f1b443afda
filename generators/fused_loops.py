"""Programs for the scheduler and the code generator: calls that one loop nest may compute.

Inductor fuses calls over the same elements into a loop, splits it at the length of a vector
register, and allocates buffers for values that cross loops. So the inputs of such a program have
few sizes, around that length, and several dtypes. Steps read and write the same values: a value has
several readers, before and after a write; reads are at other positions than writes; a sum or an
index is computed from a written value. The program returns the last values and the written ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from aliasproof.generators.scenario_steps import (
    Steps,
    has_rows,
    is_arithmetic,
    is_matrix,
    is_real,
    like,
    not_empty,
)
from aliasproof.generators.scene import Counts, NoChoice, Pick, Scene
from aliasproof.generators.tensor_arguments import combines
from aliasproof.ir.program import Input, Storage
from aliasproof.ir.regions import dense_strides

# Around the numbers of elements that fit in a register of 16, 32 or 64 bytes, by item size.
SIZES = (1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 129)
LONGEST_DEEP = 33  # the last of three dimensions
FEW = (1, 2, 3, 5)
DTYPES = (
    torch.float32,
    torch.float32,
    torch.int64,
    torch.bool,
    torch.uint8,
    torch.int8,
    torch.bfloat16,
    torch.float16,
    torch.float64,
    torch.int32,
    torch.int16,
)
# Fractions of both signs, and large values: a formula of generated code may round or overflow where
# eager's kernel does not.
VALUES = (("0.5", "-0.25", "1", "0.0", "2"), ("-1", "3", "-7", "0.1"), ("inf", "1", "-2"))
MOST_STEPS = 9
TRIES = 4

Shape = tuple[int, ...]


def loop_scene(pick: Pick, counts: Counts) -> Scene:
    """A scene of calls over the same elements."""
    scene = Scene(*_inputs(pick), pick.integer(0, 99), counts)
    steps = Steps(pick, scene)
    for _ in range(pick.integer(2, MOST_STEPS)):
        for _ in range(TRIES):
            try:
                pick.one(_STEPS)(steps)
                break
            except NoChoice:
                continue
    written = {name for call in scene.instructions for name in call.written}
    newest = scene.newest_first()[:3]
    scene.wants(*(name for name in scene.values if name in written or name in newest))
    return scene


def _inputs(pick: Pick) -> tuple[tuple[Storage, ...], tuple[Input, ...]]:
    """Tensors of one shape and few dtypes, and some that are broadcast to it or are longer."""
    long = pick.one(SIZES)
    few = [pick.one(FEW) for _ in range(3)]
    # If two dimensions are longer than a tile of vectors, both loops have a tail.
    deep = (2, few[2], long) if long <= LONGEST_DEEP else (long, long + few[2])
    shape: Shape = pick.one(((long,), (few[0], long), (long, few[1]), deep))
    dtypes = [pick.one(DTYPES) for _ in range(pick.integer(1, 3))]
    shapes = [shape] * pick.integer(1, 3)
    if pick.chance(40):
        shapes.append(pick.one((shape[-1:], (*shape[:-1], 1), (), (pick.one(SIZES),), (3, *shape))))
    storages: list[Storage] = []
    views: list[Input] = []
    for sizes in shapes:
        dtype = pick.one(dtypes)
        strides, offset = dense_strides(sizes), 0
        if len(sizes) >= 2 and pick.chance(25):
            strides = dense_strides(sizes[::-1])[::-1]
        if pick.chance(20):
            offset = pick.integer(1, 3)
        length = offset + math.prod(sizes)
        values = pick.one(VALUES) if dtype.is_floating_point and pick.chance(40) else ()
        storages.append(Storage(dtype, length, values[:length]))
        views.append(Input(f"x{len(views)}", len(views), dtype, sizes, strides, offset))
    return tuple(storages), tuple(views)


# --- which value ----------------------------------------------------------------------------------


def _value(steps: Steps, accepts: Callable[[torch.Tensor], bool] = not_empty) -> str:
    """A value, more often a new one, so that calls build on each other."""
    names = steps.known(accepts)
    return steps.one(names[:3] if steps.chance(50) else names)


# --- steps ----------------------------------------------------------------------------------------


def compute(steps: Steps) -> None:
    """Compute a value from one or two values; of several dtypes, torch promotes to one."""
    name = _value(steps)
    tensor = steps.at(name)
    if tensor.is_floating_point() and steps.chance(40):
        functions = (
            "sigmoid",
            "exp",
            "sqrt",
            "reciprocal",
            "floor",
            "round",
            "sign",
            "erf",
            "tanh",
        )
        steps.call(f"aten.{steps.one(functions)}.default", name)
        return
    if steps.chance(35):
        steps.fresh(name)
        return
    other = steps.one(steps.known(lambda it: combines(it.shape, tensor.shape)))
    if tensor.dtype == torch.bool or steps.at(other).dtype == torch.bool:
        op = steps.one(("aten.add.Tensor", "aten.mul.Tensor", "aten.logical_and.default"))
    else:
        op = steps.one(_OF_TWO)
    steps.call(op, name, other)


_OF_TWO = (
    *("aten.add.Tensor", "aten.mul.Tensor", "aten.sub.Tensor", "aten.maximum.default"),
    *("aten.minimum.default", "aten.div.Tensor", "aten.remainder.Tensor", "aten.fmod.Tensor"),
    *("aten.floor_divide.default", "aten.pow.Tensor_Tensor", "aten.copysign.Tensor"),
    *("aten.atan2.default", "aten.bitwise_and.Tensor", "aten.bitwise_xor.Tensor"),
)


def change_dtype(steps: Steps) -> None:
    """Convert a value to another dtype; sometimes reinterpret its bytes."""
    name = _value(steps)
    if steps.chance(20):
        steps.viewed_as(name)
    else:
        steps.convert(name, steps.one(DTYPES))


def select(steps: Steps) -> None:
    """Choose values by a mask: the result of a comparison, or a value of bools."""
    name = _value(steps)
    other = steps.one(steps.known(lambda it: it.shape == steps.at(name).shape))
    compared = _value(steps, lambda it: combines(it.shape, steps.at(name).shape))
    mask = steps.mask_of(compared)
    if steps.chance(30):
        mask = steps.combine(mask, steps.mask_of(other))
    if steps.chance(30):
        steps.call("aten.masked_fill.Scalar", name, mask, steps.one((0, 1, -1)))
    else:
        steps.call("aten.where.self", mask, name, other)


def reduce(steps: Steps) -> None:
    """A reduction, often combined with its operand, as in a normalization."""
    name = _value(steps, has_rows)
    tensor = steps.at(name)
    every = tuple(range(tensor.dim()))
    dims = steps.one((every[-1:], every[:1], every))
    ops = ["aten.sum.dim_IntList", "aten.any.dims", "aten.all.dims"]
    if not tensor.is_complex():
        ops += ["aten.amax.default", "aten.amin.default"] * 2
    if tensor.is_floating_point():
        ops += ["aten.mean.dim", "aten.var.correction", "aten.logsumexp.default"]
    keep = steps.chance(60)
    if steps.chance(20) and not tensor.is_complex():
        arg = steps.one(("argmin", "argmax"))
        result = steps.new(f"aten.{arg}.default", name, dims[-1], keep)
    elif steps.chance(10) and not tensor.is_complex():
        result = steps.new(f"aten.{steps.one(('min', 'max'))}.dim", name, dims[-1], keep)
    else:
        op = steps.one(ops)
        if "var" in op:
            result = steps.new(op, name, dims, correction=0, keepdim=keep)
        else:
            result = steps.new(op, name, dims, keep)
    if keep and steps.chance(60):
        steps.call(steps.one(("aten.sub.Tensor", "aten.mul.Tensor")), name, result)


def scan(steps: Steps) -> None:
    """A value that no loop over elements computes: a scan, a sort, a matrix product."""
    name = _value(steps, has_rows)
    tensor = steps.at(name)
    dim = steps.integer(0, tensor.dim() - 1)
    if is_matrix(tensor) and steps.chance(40):
        turned = steps.new("aten.t.default", name)
        steps.call("aten.mm.default", name, turned)
    elif steps.chance(30):
        steps.call("aten.sort.stable", name, stable=True, dim=dim)
    elif is_real(tensor) and steps.chance(40):
        steps.call(f"aten.{steps.one(('cummax', 'cummin'))}.default", name, dim)
    else:
        steps.call("aten.cumsum.default", name, dim)


def move(steps: Steps) -> None:
    """Move elements to other positions: transpose, slice, pad or concatenate."""
    name = _value(steps, has_rows)
    tensor = steps.at(name)
    how = steps.integer(0, 4)
    if how == 0:
        steps.rearrange(name)
    elif how == 1:
        steps.any_view(name)
    elif how == 2:
        other = steps.one(steps.known(like(tensor)))
        joined = steps.one(("cat", "stack"))
        steps.call(f"aten.{joined}.default", (name, other), steps.one((0, -1)))
    elif how == 3:
        pad = steps.one(((1, 0), (0, 1), (1, 1), (-1, 1), (0, 7)))
        steps.call("aten.constant_pad_nd.default", name, pad)
    else:
        rows = _indices(steps, tensor.shape[0])
        steps.call("aten.index.Tensor", name, (rows,))


def _indices(steps: Steps, size: int) -> str:
    """Positions in a dimension of this size, mostly computed from a value."""
    integers = steps.known(lambda it: it.dtype == torch.int64 and 0 < it.numel() <= size)
    source = steps.one(integers) if integers and steps.chance(70) else None
    if source is None:
        base = steps.known(lambda it: it.dim() == 1 and 0 < it.numel() <= size)
        source = steps.convert(steps.one(base), torch.int64)
    return steps.new("aten.remainder.Scalar", source, size)


def write(steps: Steps) -> None:
    """Write a value: all of it, a view of it, or some elements. Mostly, a call has read it."""
    read = {name for call in steps.scene.instructions for name in call.refs}
    known = [name for name in steps.known(not_empty) if name in read]
    name = steps.one(known) if known and steps.chance(60) else _value(steps)
    tensor = steps.at(name)
    how = steps.integer(0, 5)
    if how == 0:
        steps.overwrite(name)
    elif how == 1:
        steps.overwrite(steps.any_view(name))
    elif how == 2:  # the stored value is computed from the tensor, or from another one
        source = _value(steps, is_arithmetic)
        steps.put(name, steps.convert(steps.total(source), tensor.dtype))
    elif how == 3:
        if tensor.dim() == 0:
            raise NoChoice
        rows = _indices(steps, tensor.shape[0])
        value = steps.a_number(name)
        steps.call("aten.index_put_.default", name, (rows,), value)
    else:
        source = steps.one(steps.known(lambda it: it.shape == tensor.shape))
        if steps.chance(50):
            source = steps.rearrange(source)
        memory = tensor.untyped_storage().data_ptr()
        if steps.at(source).untyped_storage().data_ptr() == memory:
            source = steps.fresh(source)
        add = is_arithmetic(tensor) and steps.at(source).dtype == tensor.dtype
        op = "aten.add_.Tensor" if add and steps.chance(50) else "aten.copy_.default"
        steps.call(op, name, source)


# The steps, each repeated by its frequency.
_STEPS: tuple[Callable[[Steps], None], ...] = (
    *(compute,) * 3,
    *(write,) * 3,
    *(reduce,) * 2,
    *(move,) * 2,
    *(change_dtype,) * 2,
    select,
    scan,
)
