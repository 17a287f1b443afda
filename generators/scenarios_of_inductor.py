"""Scenarios of Inductor: its graph passes, and the code that it generates.

Each function adds a few instructions to a scene, or raises `NoChoice`.
"""

from __future__ import annotations

import torch

from aliasproof.generators.scenario_steps import (
    LONG,
    OPEN_END,
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
    one_call,
    overwrite,
    put,
    rearrange,
    same_view,
    some,
    some_or_new,
    total,
    viewed_as,
    write_somewhere,
)
from aliasproof.generators.scene import NoChoice, Pick, Scene
from aliasproof.ir.program import Ref

# --- graph passes: what Inductor's patterns match, and what almost matches ------------------------

GRAPH_PASS_SCENARIOS = ScenarioTable()


def copy_that_changes_nothing(pick: Pick, scene: Scene, name: str) -> str:
    """A new tensor that equals the named one."""
    tensor = scene.values[name]
    rank = tensor.dim()
    copies: list[OpOn] = [
        ("aten.clone.default", ()),
        ("aten._to_copy.default", ()),
        ("aten.repeat.default", ((1,) * rank,)),
        ("aten.constant_pad_nd.default", ((0, 0) if rank else (),)),
    ]
    if is_arithmetic(tensor):
        copies += [("aten.add.Tensor", (0,)), ("aten.mul.Tensor", (1,)), ("aten.sub.Scalar", (0,))]
        copies += [("aten.div.Tensor", (1,)), ("aten.pow.Tensor_Scalar", (1,))]
    if is_arithmetic(tensor) and not tensor.is_floating_point() and not tensor.is_complex():
        copies += [("aten.ceil.default", ()), ("aten.trunc.default", ())]
    if rank and pick.chance(20):
        return scene.call("aten.cat.default", (Ref(name),))[0]
    if rank and pick.chance(20):
        whole = (0, 0, OPEN_END)
        return scene.call("aten.slice_scatter.default", Ref(name), Ref(name), *whole)[0]
    return one_call(pick, scene, name, copies)


@GRAPH_PASS_SCENARIOS.add(
    "a = x.clone(); b = x + 0; x.add_(1); return a, b",
    "collapsed-copies, copy-of-written-input; noop_registry in post_grad.py",
)
def equal_copies(pick: Pick, scene: Scene) -> None:
    """One or two copies of a tensor; the tensor or a copy is written, and both are returned."""
    name = some_or_new(pick, scene, 50)
    copies = [copy_that_changes_nothing(pick, scene, name) for _ in range(pick.integer(1, 2))]
    if pick.chance(60):
        write_somewhere(pick, scene, pick.one((name, *copies)))
    scene.wants(*copies, name)


def constant(pick: Pick, scene: Scene, name: str) -> str:
    """A tensor like the named one, filled with one number."""
    dtype = pick.one((None, None, torch.int64, torch.float64, torch.uint8))
    kind = pick.integer(0, 2)
    if kind == 2:
        number: int | float = pick.one((2, 100, 2.5))
        if scene.values[name].dtype in (torch.bool, torch.int64):
            number = 2
        return scene.call("aten.full_like.default", Ref(name), number, dtype=dtype)[0]
    op = ("aten.zeros_like.default", "aten.ones_like.default")[kind]
    return scene.call(op, Ref(name), dtype=dtype)[0]


@GRAPH_PASS_SCENARIOS.add(
    "y = x + zeros_like(x); x.mul_(2); return y",
    "identity-arithmetic, negative-zero, zero-times-input",
)
def constant_operand(pick: Pick, scene: Scene) -> None:
    """A tensor combined with zeros, ones or another constant tensor, and then written."""
    name = some(pick, scene, is_arithmetic)
    if pick.chance(30):
        name = scene.call("aten.neg.default", Ref(name))[0]
    number = constant(pick, scene, some(pick, scene) if pick.chance(20) else name)
    op = pick.one(("aten.add.Tensor", "aten.mul.Tensor", "aten.sub.Tensor", "aten.div.Tensor"))
    order = (name, number) if pick.chance(70) else (number, name)
    result = scene.call(op, *map(Ref, order))[0]
    if pick.chance(50):
        write_somewhere(pick, scene, pick.one((name, result)))
    # These results show signs of zeros and overflow.
    seen = ("aten.reciprocal.default", ()) if pick.chance(30) else ("aten.gt.Scalar", (0,))
    if is_real(scene.values[result]):
        scene.wants(scene.call(seen[0], Ref(result), *seen[1])[0])
    scene.wants(result)


@GRAPH_PASS_SCENARIOS.add(
    "full_like(x, 2).cumsum(0); ones_like(x) + full_like(y, 100)",
    "cumsum-of-constant, cumsum-of-number, folded-numbers",
)
def folded_constants(pick: Pick, scene: Scene) -> None:
    """Constant tensors combined with each other or scanned, which a compiler folds."""
    name = constant(pick, scene, some(pick, scene))
    if pick.chance(50):
        name = scene.call("aten.cumsum.default", Ref(name), 0)[0]
    else:
        other = constant(pick, scene, some(pick, scene))
        name = scene.call(pick.one(("aten.add.Tensor", "aten.mul.Tensor")), Ref(name), Ref(other))[
            0
        ]
    scene.wants(name, scene.call("aten.gt.Scalar", Ref(name), 0)[0])


@GRAPH_PASS_SCENARIOS.add(
    "zeros_like(x).scatter(0, i, 1)", "scatter-in-float32, scatter-into-number"
)
def scatter_into_constant(pick: Pick, scene: Scene) -> None:
    """A store of a number into a constant tensor, at indices along a dimension."""
    name = constant(pick, scene, some(pick, scene, not_empty))
    tensor = scene.values[name]
    shape = (1, *tensor.shape[1:]) if tensor.dim() else ()
    index = scene.call("aten.new_zeros.default", Ref(name), shape, dtype=torch.int64)[0]
    if has_rows(tensor) and pick.chance(50):
        index = scene.call("aten.add.Scalar", Ref(index), 1)[0]
    exact = tensor.dtype.is_floating_point and tensor.dtype.itemsize > 2
    number = pick.one((1, 3, 16777217.0)) if exact else 1
    op = pick.one(("aten.scatter.value", "aten.scatter_.value"))
    result = scene.call(op, Ref(name), 0, Ref(index), number, named=True)[0]
    scene.wants(result, name)


@GRAPH_PASS_SCENARIOS.add(
    "a, b = cat([x, y]).split(2); x.add_(1); return a, b", "split-of-cat, promoting-cat"
)
def split_of_cat(pick: Pick, scene: Scene) -> None:
    """Split a `cat`: the parts are its operands, if sizes and dtypes agree."""
    first = some(pick, scene, has_rows)
    second = pick.one(scene.newest_first(like(scene.values[first])))
    if pick.chance(50):
        first, second = fresh(pick, scene, first), fresh(pick, scene, second)
    if pick.chance(25):
        second = convert(scene, second, pick.one((torch.int64, torch.float64)))
    dim = pick.integer(0, scene.values[first].dim() - 1)
    whole = scene.call("aten.cat.default", (Ref(first), Ref(second)), dim)[0]
    size = scene.values[first].shape[dim]
    sizes = (size, size) if pick.chance(75) else (size - 1, size + 1)
    parts = scene.call("aten.split_with_sizes.default", Ref(whole), sizes, dim)
    if pick.chance(50):
        write_somewhere(pick, scene, pick.one((first, *parts)))
    scene.wants(*parts)


@GRAPH_PASS_SCENARIOS.add("y = cat(x.split([1, 3])); x.add_(1); return y", "cat-of-split")
def cat_of_split(pick: Pick, scene: Scene) -> None:
    """Concatenate the parts of a split: all of them or some, in any order."""
    name = some_or_new(pick, scene, 40, has_rows)
    dim = pick.integer(0, scene.values[name].dim() - 1)
    size = scene.values[name].shape[dim]
    if size < 2:
        raise NoChoice
    first = pick.integer(1, size - 1)
    parts = scene.call("aten.split_with_sizes.default", Ref(name), (first, size - first), dim)
    orders = [parts, parts, parts[::-1], parts[:1], (*parts, parts[0])]
    whole = scene.call("aten.cat.default", tuple(map(Ref, pick.one(orders))), dim)[0]
    write_somewhere(pick, scene, pick.one((name, whole)))
    scene.wants(whole, name)


@GRAPH_PASS_SCENARIOS.add(
    "a = cat([x, y], 1); b = cat([a, a[:, :2]], 1); a.zero_()", "cat_slice_cat in post_grad.py"
)
def cat_of_slice_of_cat(pick: Pick, scene: Scene) -> None:
    """A `cat` with a slice of another `cat`, and a write to one of them."""
    first = some(pick, scene, lambda tensor: tensor.dim() >= 2 and tensor.numel() > 0)
    second = pick.one(scene.newest_first(like(scene.values[first])))
    inner = scene.call("aten.cat.default", (Ref(first), Ref(second)), 1)[0]
    size = scene.values[first].shape[1]
    end = pick.one((size, size + 1, OPEN_END))
    part = scene.call("aten.slice.Tensor", Ref(inner), 1, pick.integer(0, 1), end)[0]
    outer = scene.call("aten.cat.default", (Ref(inner), Ref(part)), 1)[0]
    if pick.chance(60):
        write_somewhere(pick, scene, pick.one((inner, outer, first)))
    scene.wants(outer, inner)


@GRAPH_PASS_SCENARIOS.add("cat([x[0:0].double(), x])", "cat-of-empties")
def cat_of_empties(pick: Pick, scene: Scene) -> None:
    """A `cat` with operands that have no elements, of the same dtype or another."""
    name = some(pick, scene, lambda tensor: tensor.dim() >= 1 and not tensor.is_complex())
    empty = scene.call("aten.slice.Tensor", Ref(name), 0, 0, 0)[0]
    if pick.chance(60):
        empty = convert(scene, empty, pick.one((torch.float64, torch.int64)))
    others = [empty, name, *([name] if pick.chance(50) else [])]
    result = scene.call("aten.cat.default", tuple(map(Ref, others)))[0]
    if pick.chance(50):
        write_somewhere(pick, scene, pick.one((name, result)))
    scene.wants(result)


@GRAPH_PASS_SCENARIOS.add(
    "y = x.permute(1, 0).permute(1, 0); y.add_(1); return x",
    "pointless_view_pair, pointless_permute_pair, pointless_convert in joint_graph.py",
)
def undone_pair(pick: Pick, scene: Scene) -> None:
    """Two views or conversions, the second the inverse of the first, and a write to either end."""
    name = some_or_new(pick, scene, 40, not_empty)
    tensor = scene.values[name]
    shape, rank = tuple(tensor.shape), tensor.dim()
    kind = pick.integer(0, 2)
    if kind == 0:
        there = scene.call("aten.reshape.default", Ref(name), (tensor.numel(),))[0]
        back = scene.call("aten.view.default", Ref(there), shape)[0]
    elif kind == 1:
        order = tuple(reversed(range(rank)))
        there = scene.call("aten.permute.default", Ref(name), order)[0]
        back = scene.call("aten.permute.default", Ref(there), order)[0]
    else:
        wide = pick.one((torch.float64, torch.float32, torch.float16))
        if not tensor.is_floating_point():
            raise NoChoice
        there = scene.call("aten._to_copy.default", Ref(name), dtype=wide)[0]
        back = scene.call("aten._to_copy.default", Ref(there), dtype=tensor.dtype)[0]
    write_somewhere(pick, scene, pick.one((name, there, back)))
    scene.wants(back, name)


@GRAPH_PASS_SCENARIOS.add("a = x @ x.t(); b = a + 2 * y; a.zero_(); return b", "pattern-keywords")
def fused_products(pick: Pick, scene: Scene) -> None:
    """Matrix products with a sum or another product, which a compiler merges into one call."""
    left = some(pick, scene, is_matrix)
    right = scene.call("aten.t.default", Ref(left))[0]
    first = scene.call("aten.mm.default", Ref(left), Ref(right))[0]
    shape, dtype = scene.values[first].shape, scene.values[first].dtype
    if pick.chance(40):
        other = scene.call("aten.mm.default", Ref(left), Ref(right))[0]
    else:
        added = scene.newest_first(lambda t: t.dtype == dtype and t.shape in (shape, shape[-1:]))
        other = pick.one(added)
    order = (Ref(first), Ref(other)) if pick.chance(70) else (Ref(other), Ref(first))
    factor = 2 if pick.chance(25) else 1
    result = scene.call("aten.add.Tensor", *order, alpha=factor)[0]
    if pick.chance(50):
        overwrite(pick, scene, pick.one((first, other, left)))
    scene.wants(result, *([first] if pick.chance(30) else []))


@GRAPH_PASS_SCENARIOS.add("a = x / c; return a - a.amax(0, True)", "softmax-of-integers")
def scaled_then_maximum(pick: Pick, scene: Scene) -> None:
    """A scaled tensor minus its maximum, as in a softmax; the scale may be an integer or 0."""
    name = some(pick, scene, lambda tensor: has_rows(tensor) and is_real(tensor))
    if not scene.values[name].is_floating_point() and pick.chance(40):
        name = convert(scene, name, torch.uint8)
    op = pick.one(("aten.mul.Tensor", "aten.div.Tensor"))
    if pick.chance(40):
        scaled = scene.call(op, Ref(name), pick.one((2, -1, 0.5)))[0]
    else:
        scale = a_number(pick, scene, name)
        if pick.chance(50):
            scale = convert(scene, scale, torch.float32)
        scaled = scene.call(op, Ref(name), Ref(scale))[0]
    largest = scene.call("aten.amax.default", Ref(scaled), (0,), True)[0]
    result = scene.call("aten.sub.Tensor", Ref(scaled), Ref(largest))[0]
    if pick.chance(40):
        overwrite(pick, scene, name)
    scene.wants(result)


@GRAPH_PASS_SCENARIOS.add("a = x.amax(0); x.add_(1); b = x.amax()", "reuse_partial in post_grad.py")
def reductions_of_one(pick: Pick, scene: Scene) -> None:
    """A tensor is reduced along a dimension and as a whole; one may be computed from the other."""
    name = some(pick, scene, lambda tensor: has_rows(tensor) and is_real(tensor))
    op = pick.one(("aten.amax.default", "aten.amin.default"))
    part = scene.call(op, Ref(name), (0,), pick.chance(30))[0]
    if pick.chance(40):
        write_somewhere(pick, scene, name)
    whole = scene.call(op, Ref(name))[0]
    scene.wants(part, whole)


@GRAPH_PASS_SCENARIOS.add(
    "a = x * 2; x.add_(1); b = x * 2; a.zero_()", "common subexpressions across a write"
)
def repeated_expression(pick: Pick, scene: Scene) -> None:
    """The same computation twice, with a write to its operand or its result in between."""
    name = some(pick, scene, is_arithmetic)
    number = pick.integer(1, 2)
    op = pick.one(("aten.mul.Tensor", "aten.mul.Scalar"))
    first = scene.call(op, Ref(name), number)[0]
    if pick.chance(70):
        write_somewhere(pick, scene, pick.one((name, first)))
    second = scene.call(op, Ref(name), number)[0]
    if pick.chance(30):
        overwrite(pick, scene, pick.one((first, second)))
    scene.wants(first, second, combine(pick, scene, first, second))


# --- code generation: what is fused with a write, computed late, or shares a buffer ---------------

CODE_SCENARIOS = ScenarioTable()


def product(pick: Pick, scene: Scene) -> str:
    """A matrix product, which has a buffer of its own: Inductor fuses nothing into it."""
    left = some(pick, scene, is_matrix)
    right = scene.call("aten.t.default", Ref(left))[0]
    if scene.values[left].shape[0] == scene.values[left].shape[1] and pick.chance(50):
        right = left
    return scene.call("aten.mm.default", Ref(left), Ref(right))[0]


@CODE_SCENARIOS.add("x[i] = 5; x.add_(x.flip(0) + 1)", "fused-copy-back")
def read_elsewhere(pick: Pick, scene: Scene) -> None:
    """A tensor is written with values computed from other positions of the same tensor.

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


@CODE_SCENARIOS.add("x[(x + 1) % 3] = v", "index-read-while-written")
def index_from_written(pick: Pick, scene: Scene) -> None:
    """The indices or the mask of a store are computed from the written tensor."""
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
    "a = x.t() + 1; x[i] = a.sum(); return a * 2", "dtype-view-read-late, view-of-replaced-buffer"
)
def view_read_late(pick: Pick, scene: Scene) -> None:
    """A value computed from a view is used before and after a write to the viewed tensor.

    If a compiler computes the value at each use, the second use sees the write.
    """
    if pick.chance(40):
        base = product(pick, scene)
    else:
        base = some_or_new(pick, scene, 30, has_rows)
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


@CODE_SCENARIOS.add("a = x + 1; b = cat([a, x]); a[i] = 5; return b, a * a", "cat-input-written")
def cat_and_write(pick: Pick, scene: Scene) -> None:
    """The operands of `cat` or its result are written, and then the others are read."""
    first = some_or_new(pick, scene, 70, has_rows)
    others = scene.newest_first(like(scene.values[first]))
    second = fresh(pick, scene, first) if pick.chance(30) else pick.one(others)
    order = (first, second) if pick.chance(60) else (second, first)
    op = "aten.cat.default" if pick.chance(75) else "aten.stack.default"
    result = scene.call(op, tuple(map(Ref, order)))[0]
    write_somewhere(pick, scene, pick.one((first, result, second)))
    scene.wants(result, combine(pick, scene, first, first), first)


@CODE_SCENARIOS.add("a, i = x.min(0); x.zero_()", "narrow-minimum, bool-argmin, any-of-uint8")
def extremes(pick: Pick, scene: Scene) -> None:
    """The smallest or largest elements, per dimension or of all, with a write to the operand."""
    name = some(pick, scene, lambda tensor: has_rows(tensor) and not tensor.is_complex())
    # Integers of 8 bits and bools have separate vectorized code.
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
    "a = x.sum(0, True); x.sub_(a); b = x.sum(0)", "a reduction fused with a write of its operand"
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
    "a = x + 1; v = a.view(int16); b = a @ x; c = b @ x; return v, c", "planned-over-output"
)
def chain_of_buffers(pick: Pick, scene: Scene) -> None:
    """Many values of one size that die soon, while a view of an early one is returned.

    A new value can reuse the memory of a dead one.
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
        # Products and reductions are not fused with their readers, so each value needs a buffer.
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


@CODE_SCENARIOS.add("a = x + 1; b = a.flip(0) + 1; b[i] = 5; return b", "in-place buffers")
def born_as_another_dies(pick: Pick, scene: Scene) -> None:
    """The last read of a value is by the call that makes a value of equal size."""
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
    "floor-of-quotient, remainder-of-infinity, rounded-by-reciprocal",
)
def rounded_quotients(pick: Pick, scene: Scene) -> None:
    """Quotients and remainders; generated code uses other formulas than eager's kernel."""
    name = some(pick, scene, lambda tensor: is_real(tensor) and not_empty(tensor))
    divisor = pick.one(scene.newest_first(like(scene.values[name])))
    if scene.values[name].is_floating_point() and pick.chance(60):
        # A tenth is not representable in binary, so quotients are rounded.
        changes = (("aten.mul.Scalar", 0.1), ("aten.add.Scalar", float("inf")))
        op, number = pick.one(changes)
        divisor = scene.call(op, Ref(divisor), number)[0]
    name, divisor = lengthen(pick, scene, name), lengthen(pick, scene, divisor)
    # Only floating-point numbers can be rounded to decimals.
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


@CODE_SCENARIOS.add("a = ldexp(x.half(), y); x.zero_(); return a", "ldexp-dtype, complex-numbers")
def promoted_operands(pick: Pick, scene: Scene) -> None:
    """Operands of several dtypes, 0-d or not; the result has the promoted dtype."""
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
    "a = x + 1; v = a[1:]; w = a[::2]; v[i] = 5; return w, a", "views of a buffer that is written"
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
