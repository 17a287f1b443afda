"""Scenarios of code generation: what is fused with a write, computed late, or shares a buffer.

Each function adds a few instructions to a scene, or raises `NoChoice`.
"""

from __future__ import annotations

import torch

from aliasproof.generators.scenario_steps import (
    CODE_GENERATION,
    GRAPH_PASSES,
    LONG,
    OpOn,
    ScenarioTable,
    a_number,
    any_view,
    combine,
    convert,
    fresh,
    has_rows,
    iota,
    is_arithmetic,
    is_matrix,
    is_real,
    lengthen,
    like,
    mask_of,
    not_empty,
    overwrite,
    put,
    rearrange,
    same_view,
    some,
    total,
    viewed_as,
    write_somewhere,
)
from aliasproof.generators.scene import NoChoice, Pick, Scene
from aliasproof.ir.program import Ref

CODE_SCENARIOS = ScenarioTable()


def product(pick: Pick, scene: Scene) -> str:
    """A matrix product, which has a buffer of its own: nothing is fused into it."""
    left = some(pick, scene, is_matrix)
    right = scene.call("aten.t.default", Ref(left))[0]
    if scene.values[left].shape[0] == scene.values[left].shape[1] and pick.chance(50):
        right = left
    return scene.call("aten.mm.default", Ref(left), Ref(right))[0]


@CODE_SCENARIOS.add("x[i] = 5; x.add_(x.flip(0) + 1)", (CODE_GENERATION,), "fused-copy-back")
def read_elsewhere(pick: Pick, scene: Scene) -> None:
    """A tensor is written with what is computed from other positions of it.

    The write must not be fused with the read.
    """
    name = some(pick, scene, has_rows)
    if pick.chance(50):
        write_somewhere(pick, scene, name)
    read = rearrange(pick, scene, name)
    if pick.chance(60):
        read = fresh(pick, scene, read)
    # A copy from a view of itself is undefined in eager.
    if scene.values[read].untyped_storage().data_ptr() == (
        scene.values[name].untyped_storage().data_ptr()
    ):
        if pick.chance(40):
            read = scene.call("aten.clone.default", Ref(read))[0]
        else:
            read = fresh(pick, scene, read)
    add = "aten.add_.Tensor" if is_arithmetic(scene.values[name]) else "aten.copy_.default"
    scene.call(pick.one(("aten.copy_.default", add)), Ref(name), Ref(read))
    if pick.chance(30):
        scene.wants(read)


@CODE_SCENARIOS.add("x[(x + 1) % 3] = v", (CODE_GENERATION,), "index-read-while-written")
def index_from_written(pick: Pick, scene: Scene) -> None:
    """The indices or the mask of a store are computed from the tensor that is written."""
    name = some(pick, scene, has_rows)
    if scene.values[name].dtype != torch.int64 and pick.chance(60):
        name = iota(scene, name, pick.integer(3, LONG))
    tensor = scene.values[name]
    value = a_number(pick, scene, name)
    if tensor.dtype == torch.int64 and pick.chance(70):
        row = name if tensor.dim() == 1 else scene.call("aten.select.int", Ref(name), -1, 0)[0]
        shifted = fresh(pick, scene, row) if pick.chance(60) else row
        index = scene.call("aten.remainder.Scalar", Ref(shifted), tensor.shape[0])[0]
    else:
        index = mask_of(pick, scene, name)
    scene.call("aten.index_put_.default", Ref(name), (Ref(index),), Ref(value))
    scene.wants(*([index] if pick.chance(30) else []), name)


@CODE_SCENARIOS.add(
    "a = x.t() + 1; x[i] = a.sum(); return a * 2",
    (CODE_GENERATION,),
    "dtype-view-read-late, view-of-replaced-buffer",
)
def view_read_late(pick: Pick, scene: Scene) -> None:
    """A value computed from a view is used before and after a write to the viewed tensor.

    If it is computed where it is used, the second use sees the write.
    """
    if pick.chance(40):
        base = product(pick, scene)
    else:
        base = some(pick, scene, has_rows)
        base = fresh(pick, scene, base) if pick.chance(30) else base
    if is_arithmetic(scene.values[base]) and pick.chance(35):
        view = viewed_as(pick, scene, base)
    elif pick.chance(40):
        view = scene.call("aten.transpose.int", Ref(base), 0, -1)[0]
    else:
        view = any_view(pick, scene, base)
    value = fresh(pick, scene, view)
    dtype = scene.values[base].dtype
    if pick.chance(60):
        stored = convert(scene, total(pick, scene, value), dtype)
        put(pick, scene, base, stored)
    else:
        write_somewhere(pick, scene, base)
    scene.wants(fresh(pick, scene, value), base)


@CODE_SCENARIOS.add(
    "a = x + 1; b = cat([a, x]); a[i] = 5; return b, a * a", (CODE_GENERATION,), "cat-input-written"
)
def cat_and_write(pick: Pick, scene: Scene) -> None:
    """The operands of `cat` or its result are written while the others are read."""
    first = some(pick, scene, has_rows)
    if pick.chance(70):
        first = fresh(pick, scene, first)
    others = scene.newest_first(like(scene.values[first]))
    second = fresh(pick, scene, first) if pick.chance(30) else pick.one(others)
    order = (first, second) if pick.chance(60) else (second, first)
    op = "aten.cat.default" if pick.chance(75) else "aten.stack.default"
    result = scene.call(op, tuple(map(Ref, order)))[0]
    write_somewhere(pick, scene, pick.one((first, result, second)))
    scene.wants(result, combine(pick, scene, first, first), first)


@CODE_SCENARIOS.add(
    "a, i = x.min(0); x.zero_()", (CODE_GENERATION,), "narrow-minimum, bool-argmin, any-of-uint8"
)
def extremes(pick: Pick, scene: Scene) -> None:
    """The smallest or largest elements, of a dimension or all, beside a write to the operand."""
    name = some(pick, scene, lambda tensor: has_rows(tensor) and not tensor.is_complex())
    # Integers of 8 bits and bools have vectorized code of their own.
    if scene.values[name].is_floating_point():
        name = mask_of(pick, scene, name) if pick.chance(50) else name
    if not scene.values[name].is_floating_point() and pick.chance(60):
        name = convert(scene, name, pick.one((torch.uint8, torch.int8, torch.int32)))
    name = lengthen(pick, scene, name)
    dim = pick.integer(0, scene.values[name].dim() - 1)
    keep = pick.chance(30)
    reductions: list[OpOn] = [
        ("aten.amin.default", ((dim,), keep)),
        ("aten.amax.default", ((dim,), keep)),
        ("aten.min.dim", (dim, keep)),
        ("aten.max.dim", (dim, keep)),
        ("aten.argmin.default", (dim, keep)),
        ("aten.argmax.default", (dim, keep)),
        ("aten.any.dim", (dim, keep)),
        ("aten.any.default", ()),
        ("aten.all.dim", (dim, keep)),
    ]
    op, args = pick.one(reductions)
    results = scene.call(op, Ref(name), *args)
    if pick.chance(50):
        overwrite(pick, scene, name)
    scene.wants(*results)


@CODE_SCENARIOS.add(
    "a = x.sum(0, True); x.sub_(a); b = x.sum(0)",
    (CODE_GENERATION,),
    "a reduction fused with a write of its operand",
)
def write_after_reduction(pick: Pick, scene: Scene) -> None:
    """A tensor is written with the result of its own reduction, as in a normalization."""
    name = some(pick, scene, lambda tensor: has_rows(tensor) and is_arithmetic(tensor))
    real = is_real(scene.values[name])
    dim = pick.integer(0, scene.values[name].dim() - 1)
    op = pick.one(("aten.sum.dim_IntList", *(("aten.amax.default",) if real else ())))
    reduced = scene.call(op, Ref(name), (dim,), True)[0]
    reduced = convert(scene, reduced, scene.values[name].dtype)
    write = pick.one(("aten.sub_.Tensor", "aten.add_.Tensor", "aten.mul_.Tensor"))
    scene.call(write, Ref(name), Ref(reduced))
    if pick.chance(50):
        scene.wants(scene.call(op, Ref(name), (dim,), pick.chance(50))[0])
    scene.wants(reduced)


@CODE_SCENARIOS.add(
    "a = x + 1; v = a.view(int16); b = a @ x; c = b @ x; return v, c",
    (CODE_GENERATION,),
    "planned-over-output",
)
def chain_of_buffers(pick: Pick, scene: Scene) -> None:
    """Many values of one size that die soon, while a view of an early one is returned.

    The memory of a dead value becomes that of a new one.
    """
    name = some(pick, scene, not_empty)
    early = fresh(pick, scene, name)
    how = pick.integer(0, 2)
    if how == 0:
        view = viewed_as(pick, scene, early)
    elif how == 1:
        view = any_view(pick, scene, early)
    else:
        view = same_view(pick, scene, early)
    value = early
    for _ in range(pick.integer(1, 3)):
        # Products and reductions are not fused with what follows, so each value needs a buffer.
        if is_matrix(scene.values[value]) and pick.chance(60):
            value = scene.call("aten.mm.default", Ref(value), Ref(name))[0]
        elif is_arithmetic(scene.values[value]):
            sums = scene.call("aten.cumsum.default", Ref(value), 0)[0]
            value = fresh(pick, scene, sums)
        else:
            value = fresh(pick, scene, value)
    if pick.chance(40):
        overwrite(pick, scene, pick.one((early, view)))
    scene.wants(view, value)


@CODE_SCENARIOS.add(
    "a = x + 1; b = a.flip(0) + 1; b[i] = 5; return b", (CODE_GENERATION,), "in-place buffers"
)
def born_as_another_dies(pick: Pick, scene: Scene) -> None:
    """A value is read for the last time by the call that makes one of the same size."""
    name = some(pick, scene, not_empty)
    dying = fresh(pick, scene, name)
    kept = scene.call("aten.clone.default", Ref(dying))[0] if pick.chance(40) else name
    born = rearrange(pick, scene, dying)
    born = fresh(pick, scene, born)
    if pick.chance(60):
        write_somewhere(pick, scene, born)
    scene.wants(born, combine(pick, scene, kept, kept))


@CODE_SCENARIOS.add(
    "x // (y * 0.1); x % y; round(x * 2500, decimals=-3)",
    (CODE_GENERATION, GRAPH_PASSES),
    "floor-of-quotient, remainder-of-infinity, rounded-by-reciprocal",
)
def rounded_quotients(pick: Pick, scene: Scene) -> None:
    """Quotients and remainders, whose generated code is another formula than eager's kernel."""
    name = some(pick, scene, lambda tensor: is_real(tensor) and not_empty(tensor))
    divisor = pick.one(scene.newest_first(like(scene.values[name])))
    if scene.values[name].is_floating_point() and pick.chance(60):
        # A tenth is no floating point number, so a quotient is rounded.
        changes = (("aten.mul.Scalar", 0.1), ("aten.add.Scalar", float("inf")))
        op, number = pick.one(changes)
        divisor = scene.call(op, Ref(divisor), number)[0]
    name, divisor = lengthen(pick, scene, name), lengthen(pick, scene, divisor)
    # Integers have no decimals.
    kind = pick.integer(0, 3 if scene.values[name].is_floating_point() else 2)
    if kind == 0:
        mode = pick.one(("floor", "trunc"))
        args = (Ref(name), Ref(divisor))
        result = scene.call("aten.div.Tensor_mode", *args, rounding_mode=mode)[0]
    elif kind == 3:
        scaled = scene.call("aten.mul.Scalar", Ref(name), 2500)[0]
        decimals = pick.one((-3, -2))
        result = scene.call("aten.round.decimals", Ref(scaled), decimals=decimals)[0]
    else:
        op = pick.one(("aten.remainder.Tensor", "aten.fmod.Tensor"))
        result = scene.call(op, Ref(name), Ref(divisor))[0]
    if pick.chance(50):
        overwrite(pick, scene, name)
    scene.wants(result)


@CODE_SCENARIOS.add(
    "a = ldexp(x.half(), y); x.zero_(); return a",
    (CODE_GENERATION, GRAPH_PASSES),
    "ldexp-dtype, complex-numbers",
)
def promoted_operands(pick: Pick, scene: Scene) -> None:
    """Operands of several dtypes, with dimensions and without: the result has one dtype."""
    name = some(pick, scene, not_empty)
    own = scene.values[name].dtype
    dtypes = (torch.float32, torch.float64, torch.int64, torch.float16, torch.uint8)
    wider = (*dtypes, torch.complex128) if own.is_complex else dtypes
    source = scene.newest_first(lambda tensor: not tensor.is_complex() or own.is_complex)
    other = pick.one(source)
    if pick.chance(50):
        other = a_number(pick, scene, other)
    other = convert(scene, other, pick.one([dtype for dtype in wider if dtype != own]))
    ops = ["aten.add.Tensor", "aten.mul.Tensor", "aten.eq.Tensor"]
    if not own.is_complex and own != torch.bool:
        ops += ["aten.maximum.default", "aten.ldexp.Tensor", "aten.copysign.Tensor"]
    op = pick.one(ops)
    result = scene.call(op, Ref(name), Ref(other))[0]
    overwrite(pick, scene, pick.one((name, other)))
    scene.wants(result)


@CODE_SCENARIOS.add(
    "a = x + 1; v = a[1:]; w = a[::2]; v[i] = 5; return w, a",
    (CODE_GENERATION,),
    "views of a buffer that is written",
)
def write_beside_view(pick: Pick, scene: Scene) -> None:
    """Two views of one new tensor: one is written by index, the other is read and returned."""
    base = product(pick, scene) if pick.chance(40) else fresh(pick, scene, some(pick, scene))
    if not has_rows(scene.values[base]):
        raise NoChoice
    one, other = any_view(pick, scene, base), any_view(pick, scene, base)
    before = fresh(pick, scene, other)
    write_somewhere(pick, scene, one)
    scene.wants(other, before, base)
