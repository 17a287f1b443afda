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
    a_number,
    any_view,
    combine,
    convert,
    fresh,
    has_rows,
    is_arithmetic,
    is_matrix,
    is_real,
    like,
    mask_of,
    not_empty,
    overwrite,
    put,
    rearrange,
    total,
    viewed_as,
)
from aliasproof.generators.scene import Counts, NoChoice, Pick, Scene
from aliasproof.generators.tensor_arguments import combines
from aliasproof.ir.program import Input, Ref, Storage
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
    for _ in range(pick.integer(2, MOST_STEPS)):
        for _ in range(TRIES):
            try:
                pick.one(_STEPS)(pick, scene)
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


def _value(pick: Pick, scene: Scene, accepts: Callable[[torch.Tensor], bool] = not_empty) -> str:
    """A value, more often a new one, so that calls build on each other."""
    names = scene.newest_first(accepts)
    return pick.one(names[:3] if pick.chance(50) else names)


# --- steps ----------------------------------------------------------------------------------------


def compute(pick: Pick, scene: Scene) -> None:
    """Compute a value from one or two values; of several dtypes, torch promotes to one."""
    name = _value(pick, scene)
    tensor = scene.values[name]
    if tensor.is_floating_point() and pick.chance(40):
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
        scene.call(f"aten.{pick.one(functions)}.default", Ref(name))
        return
    if pick.chance(35):
        fresh(pick, scene, name)
        return
    other = pick.one(scene.newest_first(lambda it: combines(it.shape, tensor.shape)))
    if tensor.dtype == torch.bool or scene.values[other].dtype == torch.bool:
        op = pick.one(("aten.add.Tensor", "aten.mul.Tensor", "aten.logical_and.default"))
    else:
        op = pick.one(_OF_TWO)
    scene.call(op, Ref(name), Ref(other))


_OF_TWO = (
    *("aten.add.Tensor", "aten.mul.Tensor", "aten.sub.Tensor", "aten.maximum.default"),
    *("aten.minimum.default", "aten.div.Tensor", "aten.remainder.Tensor", "aten.fmod.Tensor"),
    *("aten.floor_divide.default", "aten.pow.Tensor_Tensor", "aten.copysign.Tensor"),
    *("aten.atan2.default", "aten.bitwise_and.Tensor", "aten.bitwise_xor.Tensor"),
)


def change_dtype(pick: Pick, scene: Scene) -> None:
    """Convert a value to another dtype; sometimes reinterpret its bytes."""
    name = _value(pick, scene)
    if pick.chance(20):
        viewed_as(pick, scene, name)
    else:
        convert(scene, name, pick.one(DTYPES))


def select(pick: Pick, scene: Scene) -> None:
    """Choose values by a mask: the result of a comparison, or a value of bools."""
    name = _value(pick, scene)
    other = pick.one(scene.newest_first(lambda it: it.shape == scene.values[name].shape))
    compared = _value(pick, scene, lambda it: combines(it.shape, scene.values[name].shape))
    mask = mask_of(pick, scene, compared)
    if pick.chance(30):
        mask = combine(pick, scene, mask, mask_of(pick, scene, other))
    if pick.chance(30):
        scene.call("aten.masked_fill.Scalar", Ref(name), Ref(mask), pick.one((0, 1, -1)))
    else:
        scene.call("aten.where.self", Ref(mask), Ref(name), Ref(other))


def reduce(pick: Pick, scene: Scene) -> None:
    """A reduction, often combined with its operand, as in a normalization."""
    name = _value(pick, scene, has_rows)
    tensor = scene.values[name]
    every = tuple(range(tensor.dim()))
    dims = pick.one((every[-1:], every[:1], every))
    ops = ["aten.sum.dim_IntList", "aten.any.dims", "aten.all.dims"]
    if not tensor.is_complex():
        ops += ["aten.amax.default", "aten.amin.default"] * 2
    if tensor.is_floating_point():
        ops += ["aten.mean.dim", "aten.var.correction", "aten.logsumexp.default"]
    keep = pick.chance(60)
    if pick.chance(20) and not tensor.is_complex():
        arg = pick.one(("argmin", "argmax"))
        result = scene.call(f"aten.{arg}.default", Ref(name), dims[-1], keep)[0]
    elif pick.chance(10) and not tensor.is_complex():
        result = scene.call(f"aten.{pick.one(('min', 'max'))}.dim", Ref(name), dims[-1], keep)[0]
    else:
        op = pick.one(ops)
        if "var" in op:
            result = scene.call(op, Ref(name), dims, correction=0, keepdim=keep)[0]
        else:
            result = scene.call(op, Ref(name), dims, keep)[0]
    if keep and pick.chance(60):
        scene.call(pick.one(("aten.sub.Tensor", "aten.mul.Tensor")), Ref(name), Ref(result))


def scan(pick: Pick, scene: Scene) -> None:
    """A value that no loop over elements computes: a scan, a sort, a matrix product."""
    name = _value(pick, scene, has_rows)
    tensor = scene.values[name]
    dim = pick.integer(0, tensor.dim() - 1)
    if is_matrix(tensor) and pick.chance(40):
        turned = scene.call("aten.t.default", Ref(name))[0]
        scene.call("aten.mm.default", Ref(name), Ref(turned))
    elif pick.chance(30):
        scene.call("aten.sort.stable", Ref(name), stable=True, dim=dim)
    elif is_real(tensor) and pick.chance(40):
        scene.call(f"aten.{pick.one(('cummax', 'cummin'))}.default", Ref(name), dim)
    else:
        scene.call("aten.cumsum.default", Ref(name), dim)


def move(pick: Pick, scene: Scene) -> None:
    """Move elements to other positions: transpose, slice, pad or concatenate."""
    name = _value(pick, scene, has_rows)
    tensor = scene.values[name]
    how = pick.integer(0, 4)
    if how == 0:
        rearrange(pick, scene, name)
    elif how == 1:
        any_view(pick, scene, name)
    elif how == 2:
        other = pick.one(scene.newest_first(like(tensor)))
        joined = pick.one(("cat", "stack"))
        scene.call(f"aten.{joined}.default", (Ref(name), Ref(other)), pick.one((0, -1)))
    elif how == 3:
        pad = pick.one(((1, 0), (0, 1), (1, 1), (-1, 1), (0, 7)))
        scene.call("aten.constant_pad_nd.default", Ref(name), pad)
    else:
        rows = _indices(pick, scene, tensor.shape[0])
        scene.call("aten.index.Tensor", Ref(name), (Ref(rows),))


def _indices(pick: Pick, scene: Scene, size: int) -> str:
    """Positions in a dimension of this size, mostly computed from a value."""
    integers = scene.newest_first(lambda it: it.dtype == torch.int64 and 0 < it.numel() <= size)
    source = pick.one(integers) if integers and pick.chance(70) else None
    if source is None:
        base = scene.newest_first(lambda it: it.dim() == 1 and 0 < it.numel() <= size)
        source = convert(scene, pick.one(base), torch.int64)
    return scene.call("aten.remainder.Scalar", Ref(source), size)[0]


def write(pick: Pick, scene: Scene) -> None:
    """Write a value: all of it, a view of it, or some elements. Mostly, a call has read it."""
    read = {name for call in scene.instructions for name in call.refs}
    known = [name for name in scene.newest_first(not_empty) if name in read]
    name = pick.one(known) if known and pick.chance(60) else _value(pick, scene)
    tensor = scene.values[name]
    how = pick.integer(0, 5)
    if how == 0:
        overwrite(pick, scene, name)
    elif how == 1:
        overwrite(pick, scene, any_view(pick, scene, name))
    elif how == 2:  # the stored value is computed from the tensor, or from another one
        source = _value(pick, scene, is_arithmetic)
        put(pick, scene, name, convert(scene, total(pick, scene, source), tensor.dtype))
    elif how == 3:
        if tensor.dim() == 0:
            raise NoChoice
        rows = _indices(pick, scene, tensor.shape[0])
        value = a_number(pick, scene, name)
        scene.call("aten.index_put_.default", Ref(name), (Ref(rows),), Ref(value))
    else:
        source = pick.one(scene.newest_first(lambda it: it.shape == tensor.shape))
        if pick.chance(50):
            source = rearrange(pick, scene, source)
        memory = tensor.untyped_storage().data_ptr()
        if scene.values[source].untyped_storage().data_ptr() == memory:
            source = fresh(pick, scene, source)
        add = is_arithmetic(tensor) and scene.values[source].dtype == tensor.dtype
        op = "aten.add_.Tensor" if add and pick.chance(50) else "aten.copy_.default"
        scene.call(op, Ref(name), Ref(source))


# The steps, each repeated by its frequency.
_STEPS: tuple[Callable[[Pick, Scene], None], ...] = (
    *(compute,) * 3,
    *(write,) * 3,
    *(reduce,) * 2,
    *(move,) * 2,
    *(change_dtype,) * 2,
    select,
    scan,
)
