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
    Steps,
    has_rows,
    is_arithmetic,
    is_matrix,
    is_real,
    like,
    not_empty,
)
from aliasproof.generators.scene import NoChoice

# --- graph passes: what Inductor's patterns match, and what almost matches ------------------------

GRAPH_PASS_SCENARIOS = ScenarioTable()


def copy_that_changes_nothing(steps: Steps, name: str) -> str:
    """A new tensor that equals the named one."""
    tensor = steps.at(name)
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
    if rank and steps.chance(20):
        return steps.new("aten.cat.default", (name,))
    if rank and steps.chance(20):
        whole = (0, 0, OPEN_END)
        return steps.new("aten.slice_scatter.default", name, name, *whole)
    return steps.one_call(name, copies)


@GRAPH_PASS_SCENARIOS.add(
    "a = x.clone(); b = x + 0; x.add_(1); return a, b",
    "collapsed-copies, copy-of-written-input; noop_registry in post_grad.py",
)
def equal_copies(steps: Steps) -> None:
    """One or two copies of a tensor; the tensor or a copy is written, and both are returned."""
    name = steps.some_or_new(50)
    copies = [copy_that_changes_nothing(steps, name) for _ in range(steps.integer(1, 2))]
    steps.may_write(60, name, *copies)
    steps.wants(*copies, name)


def constant(steps: Steps, name: str) -> str:
    """A tensor like the named one, filled with one number."""
    dtype = steps.one((None, None, torch.int64, torch.float64, torch.uint8))
    kind = steps.integer(0, 2)
    if kind == 2:
        number: int | float = steps.one((2, 100, 2.5))
        if steps.at(name).dtype in (torch.bool, torch.int64):
            number = 2
        return steps.new("aten.full_like.default", name, number, dtype=dtype)
    op = ("aten.zeros_like.default", "aten.ones_like.default")[kind]
    return steps.new(op, name, dtype=dtype)


@GRAPH_PASS_SCENARIOS.add(
    "y = x + zeros_like(x); x.mul_(2); return y",
    "identity-arithmetic, negative-zero, zero-times-input",
)
def constant_operand(steps: Steps) -> None:
    """A tensor combined with zeros, ones or another constant tensor, and then written."""
    name = steps.some(is_arithmetic)
    if steps.chance(30):
        name = steps.new("aten.neg.default", name)
    number = constant(steps, steps.some() if steps.chance(20) else name)
    op = steps.one(("aten.add.Tensor", "aten.mul.Tensor", "aten.sub.Tensor", "aten.div.Tensor"))
    order = (name, number) if steps.chance(70) else (number, name)
    result = steps.new(op, *order)
    steps.may_write(50, name, result)
    # These results show signs of zeros and overflow.
    seen = ("aten.reciprocal.default", ()) if steps.chance(30) else ("aten.gt.Scalar", (0,))
    if is_real(steps.at(result)):
        steps.wants(steps.new(seen[0], result, *seen[1]))
    steps.wants(result)


@GRAPH_PASS_SCENARIOS.add(
    "full_like(x, 2).cumsum(0); ones_like(x) + full_like(y, 100)",
    "cumsum-of-constant, cumsum-of-number, folded-numbers",
)
def folded_constants(steps: Steps) -> None:
    """Constant tensors combined with each other or scanned, which a compiler folds."""
    name = constant(steps, steps.some())
    if steps.chance(50):
        name = steps.new("aten.cumsum.default", name, 0)
    else:
        other = constant(steps, steps.some())
        name = steps.call(steps.one(("aten.add.Tensor", "aten.mul.Tensor")), name, other)[0]
    steps.wants(name, steps.new("aten.gt.Scalar", name, 0))


@GRAPH_PASS_SCENARIOS.add(
    "zeros_like(x).scatter(0, i, 1)", "scatter-in-float32, scatter-into-number"
)
def scatter_into_constant(steps: Steps) -> None:
    """A store of a number into a constant tensor, at indices along a dimension."""
    name = constant(steps, steps.some(not_empty))
    tensor = steps.at(name)
    shape = (1, *tensor.shape[1:]) if tensor.dim() else ()
    index = steps.new("aten.new_zeros.default", name, shape, dtype=torch.int64)
    if has_rows(tensor) and steps.chance(50):
        index = steps.new("aten.add.Scalar", index, 1)
    exact = tensor.dtype.is_floating_point and tensor.dtype.itemsize > 2
    number = steps.one((1, 3, 16777217.0)) if exact else 1
    op = steps.one(("aten.scatter.value", "aten.scatter_.value"))
    result = steps.new(op, name, 0, index, number, named=True)
    steps.wants(result, name)


@GRAPH_PASS_SCENARIOS.add(
    "a, b = cat([x, y]).split(2); x.add_(1); return a, b", "split-of-cat, promoting-cat"
)
def split_of_cat(steps: Steps) -> None:
    """Split a `cat`: the parts are its operands, if sizes and dtypes agree."""
    first = steps.some(has_rows)
    second = steps.one(steps.known(like(steps.at(first))))
    if steps.chance(50):
        first, second = steps.fresh(first), steps.fresh(second)
    if steps.chance(25):
        second = steps.convert(second, steps.one((torch.int64, torch.float64)))
    dim = steps.integer(0, steps.at(first).dim() - 1)
    whole = steps.new("aten.cat.default", (first, second), dim)
    size = steps.at(first).shape[dim]
    sizes = (size, size) if steps.chance(75) else (size - 1, size + 1)
    parts = steps.call("aten.split_with_sizes.default", whole, sizes, dim)
    steps.may_write(50, first, *parts)
    steps.wants(*parts)


@GRAPH_PASS_SCENARIOS.add("y = cat(x.split([1, 3])); x.add_(1); return y", "cat-of-split")
def cat_of_split(steps: Steps) -> None:
    """Concatenate the parts of a split: all of them or some, in any order."""
    name = steps.some_or_new(40, has_rows)
    dim = steps.integer(0, steps.at(name).dim() - 1)
    size = steps.at(name).shape[dim]
    if size < 2:
        raise NoChoice
    first = steps.integer(1, size - 1)
    parts = steps.call("aten.split_with_sizes.default", name, (first, size - first), dim)
    orders = [parts, parts, parts[::-1], parts[:1], (*parts, parts[0])]
    whole = steps.new("aten.cat.default", steps.one(orders), dim)
    steps.write_somewhere(steps.one((name, whole)))
    steps.wants(whole, name)


@GRAPH_PASS_SCENARIOS.add(
    "a = cat([x, y], 1); b = cat([a, a[:, :2]], 1); a.zero_()", "cat_slice_cat in post_grad.py"
)
def cat_of_slice_of_cat(steps: Steps) -> None:
    """A `cat` with a slice of another `cat`, and a write to one of them."""
    first = steps.some(lambda tensor: tensor.dim() >= 2 and tensor.numel() > 0)
    second = steps.one(steps.known(like(steps.at(first))))
    inner = steps.new("aten.cat.default", (first, second), 1)
    size = steps.at(first).shape[1]
    end = steps.one((size, size + 1, OPEN_END))
    part = steps.new("aten.slice.Tensor", inner, 1, steps.integer(0, 1), end)
    outer = steps.new("aten.cat.default", (inner, part), 1)
    steps.may_write(60, inner, outer, first)
    steps.wants(outer, inner)


@GRAPH_PASS_SCENARIOS.add("cat([x[0:0].double(), x])", "cat-of-empties")
def cat_of_empties(steps: Steps) -> None:
    """A `cat` with operands that have no elements, of the same dtype or another."""
    name = steps.some(lambda tensor: tensor.dim() >= 1 and not tensor.is_complex())
    empty = steps.new("aten.slice.Tensor", name, 0, 0, 0)
    if steps.chance(60):
        empty = steps.convert(empty, steps.one((torch.float64, torch.int64)))
    others = [empty, name, *([name] if steps.chance(50) else [])]
    result = steps.new("aten.cat.default", others)
    steps.may_write(50, name, result)
    steps.wants(result)


@GRAPH_PASS_SCENARIOS.add(
    "y = x.permute(1, 0).permute(1, 0); y.add_(1); return x",
    "pointless_view_pair, pointless_permute_pair, pointless_convert in joint_graph.py",
)
def undone_pair(steps: Steps) -> None:
    """Two views or conversions, the second the inverse of the first, and a write to either end."""
    name = steps.some_or_new(40, not_empty)
    tensor = steps.at(name)
    shape, rank = tuple(tensor.shape), tensor.dim()
    kind = steps.integer(0, 2)
    if kind == 0:
        there = steps.new("aten.reshape.default", name, (tensor.numel(),))
        back = steps.new("aten.view.default", there, shape)
    elif kind == 1:
        order = tuple(reversed(range(rank)))
        there = steps.new("aten.permute.default", name, order)
        back = steps.new("aten.permute.default", there, order)
    else:
        wide = steps.one((torch.float64, torch.float32, torch.float16))
        if not tensor.is_floating_point():
            raise NoChoice
        there = steps.new("aten._to_copy.default", name, dtype=wide)
        back = steps.new("aten._to_copy.default", there, dtype=tensor.dtype)
    steps.write_somewhere(steps.one((name, there, back)))
    steps.wants(back, name)


@GRAPH_PASS_SCENARIOS.add("a = x @ x.t(); b = a + 2 * y; a.zero_(); return b", "pattern-keywords")
def fused_products(steps: Steps) -> None:
    """Matrix products with a sum or another product, which a compiler merges into one call."""
    left = steps.some(is_matrix)
    right = steps.new("aten.t.default", left)
    first = steps.new("aten.mm.default", left, right)
    shape, dtype = steps.at(first).shape, steps.at(first).dtype
    if steps.chance(40):
        other = steps.new("aten.mm.default", left, right)
    else:
        added = steps.known(lambda t: t.dtype == dtype and t.shape in (shape, shape[-1:]))
        other = steps.one(added)
    order = (first, other) if steps.chance(70) else (other, first)
    factor = 2 if steps.chance(25) else 1
    result = steps.new("aten.add.Tensor", *order, alpha=factor)
    steps.may_overwrite(50, first, other, left)
    steps.wants(result, *([first] if steps.chance(30) else []))


@GRAPH_PASS_SCENARIOS.add("a = x / c; return a - a.amax(0, True)", "softmax-of-integers")
def scaled_then_maximum(steps: Steps) -> None:
    """A scaled tensor minus its maximum, as in a softmax; the scale may be an integer or 0."""
    name = steps.some(lambda tensor: has_rows(tensor) and is_real(tensor))
    if not steps.at(name).is_floating_point() and steps.chance(40):
        name = steps.convert(name, torch.uint8)
    op = steps.one(("aten.mul.Tensor", "aten.div.Tensor"))
    if steps.chance(40):
        scaled = steps.new(op, name, steps.one((2, -1, 0.5)))
    else:
        scale = steps.a_number(name)
        if steps.chance(50):
            scale = steps.convert(scale, torch.float32)
        scaled = steps.new(op, name, scale)
    largest = steps.new("aten.amax.default", scaled, (0,), True)
    result = steps.new("aten.sub.Tensor", scaled, largest)
    steps.may_overwrite(40, name)
    steps.wants(result)


@GRAPH_PASS_SCENARIOS.add("a = x.amax(0); x.add_(1); b = x.amax()", "reuse_partial in post_grad.py")
def reductions_of_one(steps: Steps) -> None:
    """A tensor is reduced along a dimension and as a whole; one may be computed from the other."""
    name = steps.some(lambda tensor: has_rows(tensor) and is_real(tensor))
    op = steps.one(("aten.amax.default", "aten.amin.default"))
    part = steps.new(op, name, (0,), steps.chance(30))
    steps.may_write(40, name)
    whole = steps.new(op, name)
    steps.wants(part, whole)


@GRAPH_PASS_SCENARIOS.add(
    "a = x * 2; x.add_(1); b = x * 2; a.zero_()", "common subexpressions across a write"
)
def repeated_expression(steps: Steps) -> None:
    """The same computation twice, with a write to its operand or its result in between."""
    name = steps.some(is_arithmetic)
    number = steps.integer(1, 2)
    op = steps.one(("aten.mul.Tensor", "aten.mul.Scalar"))
    first = steps.new(op, name, number)
    steps.may_write(70, name, first)
    second = steps.new(op, name, number)
    steps.may_overwrite(30, first, second)
    steps.wants(first, second, steps.combine(first, second))


# --- code generation: what is fused with a write, computed late, or shares a buffer ---------------

CODE_SCENARIOS = ScenarioTable()


def product(steps: Steps) -> str:
    """A matrix product, which has a buffer of its own: Inductor fuses nothing into it."""
    left = steps.some(is_matrix)
    right = steps.new("aten.t.default", left)
    if steps.at(left).shape[0] == steps.at(left).shape[1] and steps.chance(50):
        right = left
    return steps.new("aten.mm.default", left, right)


@CODE_SCENARIOS.add("x[i] = 5; x.add_(x.flip(0) + 1)", "fused-copy-back")
def read_elsewhere(steps: Steps) -> None:
    """A tensor is written with values computed from other positions of the same tensor.

    The write must not be fused with the read.
    """
    name = steps.some(has_rows)
    steps.may_write(50, name)
    read = steps.rearrange(name)
    if steps.chance(60):
        read = steps.fresh(read)
    # A copy from a view of itself is undefined in eager.
    if steps.at(read).untyped_storage().data_ptr() == (steps.at(name).untyped_storage().data_ptr()):
        if steps.chance(40):
            read = steps.new("aten.clone.default", read)
        else:
            read = steps.fresh(read)
    add = "aten.add_.Tensor" if is_arithmetic(steps.at(name)) else "aten.copy_.default"
    steps.call(steps.one(("aten.copy_.default", add)), name, read)
    if steps.chance(30):
        steps.wants(read)


@CODE_SCENARIOS.add("x[(x + 1) % 3] = v", "index-read-while-written")
def index_from_written(steps: Steps) -> None:
    """The indices or the mask of a store are computed from the written tensor."""
    name = steps.some(has_rows)
    if steps.at(name).dtype != torch.int64 and steps.chance(60):
        name = steps.iota(name, steps.integer(3, LONG))
    tensor = steps.at(name)
    value = steps.a_number(name)
    if tensor.dtype == torch.int64 and steps.chance(70):
        row = name if tensor.dim() == 1 else steps.new("aten.select.int", name, -1, 0)
        shifted = steps.fresh(row) if steps.chance(60) else row
        index = steps.new("aten.remainder.Scalar", shifted, tensor.shape[0])
    else:
        index = steps.mask_of(name)
    steps.call("aten.index_put_.default", name, (index,), value)
    steps.wants(*([index] if steps.chance(30) else []), name)


@CODE_SCENARIOS.add(
    "a = x.t() + 1; x[i] = a.sum(); return a * 2", "dtype-view-read-late, view-of-replaced-buffer"
)
def view_read_late(steps: Steps) -> None:
    """A value computed from a view is used before and after a write to the viewed tensor.

    If a compiler computes the value at each use, the second use sees the write.
    """
    if steps.chance(40):
        base = product(steps)
    else:
        base = steps.some_or_new(30, has_rows)
    if is_arithmetic(steps.at(base)) and steps.chance(35):
        view = steps.viewed_as(base)
    elif steps.chance(40):
        view = steps.new("aten.transpose.int", base, 0, -1)
    else:
        view = steps.any_view(base)
    value = steps.fresh(view)
    dtype = steps.at(base).dtype
    if steps.chance(60):
        stored = steps.convert(steps.total(value), dtype)
        steps.put(base, stored)
    else:
        steps.write_somewhere(base)
    steps.wants(steps.fresh(value), base)


@CODE_SCENARIOS.add("a = x + 1; b = cat([a, x]); a[i] = 5; return b, a * a", "cat-input-written")
def cat_and_write(steps: Steps) -> None:
    """The operands of `cat` or its result are written, and then the others are read."""
    first = steps.some_or_new(70, has_rows)
    others = steps.known(like(steps.at(first)))
    second = steps.fresh(first) if steps.chance(30) else steps.one(others)
    order = (first, second) if steps.chance(60) else (second, first)
    op = "aten.cat.default" if steps.chance(75) else "aten.stack.default"
    result = steps.new(op, order)
    steps.write_somewhere(steps.one((first, result, second)))
    steps.wants(result, steps.combine(first, first), first)


@CODE_SCENARIOS.add("a, i = x.min(0); x.zero_()", "narrow-minimum, bool-argmin, any-of-uint8")
def extremes(steps: Steps) -> None:
    """The smallest or largest elements, per dimension or of all, with a write to the operand."""
    name = steps.some(lambda tensor: has_rows(tensor) and not tensor.is_complex())
    # Integers of 8 bits and bools have separate vectorized code.
    if steps.at(name).is_floating_point():
        name = steps.mask_of(name) if steps.chance(50) else name
    if not steps.at(name).is_floating_point() and steps.chance(60):
        name = steps.convert(name, steps.one((torch.uint8, torch.int8, torch.int32)))
    name = steps.lengthen(name)
    dim = steps.integer(0, steps.at(name).dim() - 1)
    keep = steps.chance(30)
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
    op, args = steps.one(reductions)
    results = steps.call(op, name, *args)
    steps.may_overwrite(50, name)
    steps.wants(*results)


@CODE_SCENARIOS.add(
    "a = x.sum(0, True); x.sub_(a); b = x.sum(0)", "a reduction fused with a write of its operand"
)
def write_after_reduction(steps: Steps) -> None:
    """A tensor is written with the result of its own reduction, as in a normalization."""
    name = steps.some(lambda tensor: has_rows(tensor) and is_arithmetic(tensor))
    real = is_real(steps.at(name))
    dim = steps.integer(0, steps.at(name).dim() - 1)
    op = steps.one(("aten.sum.dim_IntList", *(("aten.amax.default",) if real else ())))
    reduced = steps.new(op, name, (dim,), True)
    reduced = steps.convert(reduced, steps.at(name).dtype)
    write = steps.one(("aten.sub_.Tensor", "aten.add_.Tensor", "aten.mul_.Tensor"))
    steps.call(write, name, reduced)
    if steps.chance(50):
        steps.wants(steps.new(op, name, (dim,), steps.chance(50)))
    steps.wants(reduced)


@CODE_SCENARIOS.add(
    "a = x + 1; v = a.view(int16); b = a @ x; c = b @ x; return v, c", "planned-over-output"
)
def chain_of_buffers(steps: Steps) -> None:
    """Many values of one size that die soon, while a view of an early one is returned.

    A new value can reuse the memory of a dead one.
    """
    name = steps.some(not_empty)
    early = steps.fresh(name)
    how = steps.integer(0, 2)
    if how == 0:
        view = steps.viewed_as(early)
    elif how == 1:
        view = steps.any_view(early)
    else:
        view = steps.same_view(early)
    value = early
    for _ in range(steps.integer(1, 3)):
        # Products and reductions are not fused with their readers, so each value needs a buffer.
        if is_matrix(steps.at(value)) and steps.chance(60):
            value = steps.new("aten.mm.default", value, name)
        elif is_arithmetic(steps.at(value)):
            sums = steps.new("aten.cumsum.default", value, 0)
            value = steps.fresh(sums)
        else:
            value = steps.fresh(value)
    steps.may_overwrite(40, early, view)
    steps.wants(view, value)


@CODE_SCENARIOS.add("a = x + 1; b = a.flip(0) + 1; b[i] = 5; return b", "in-place buffers")
def born_as_another_dies(steps: Steps) -> None:
    """The last read of a value is by the call that makes a value of equal size."""
    name = steps.some(not_empty)
    dying = steps.fresh(name)
    kept = steps.new("aten.clone.default", dying) if steps.chance(40) else name
    born = steps.rearrange(dying)
    born = steps.fresh(born)
    steps.may_write(60, born)
    steps.wants(born, steps.combine(kept, kept))


@CODE_SCENARIOS.add(
    "x // (y * 0.1); x % y; round(x * 2500, decimals=-3)",
    "floor-of-quotient, remainder-of-infinity, rounded-by-reciprocal",
)
def rounded_quotients(steps: Steps) -> None:
    """Quotients and remainders; generated code uses other formulas than eager's kernel."""
    name = steps.some(lambda tensor: is_real(tensor) and not_empty(tensor))
    divisor = steps.one(steps.known(like(steps.at(name))))
    if steps.at(name).is_floating_point() and steps.chance(60):
        # A tenth is not representable in binary, so quotients are rounded.
        changes = (("aten.mul.Scalar", 0.1), ("aten.add.Scalar", float("inf")))
        op, number = steps.one(changes)
        divisor = steps.new(op, divisor, number)
    name, divisor = steps.lengthen(name), steps.lengthen(divisor)
    # Only floating-point numbers can be rounded to decimals.
    kind = steps.integer(0, 3 if steps.at(name).is_floating_point() else 2)
    if kind == 0:
        mode = steps.one(("floor", "trunc"))
        result = steps.new("aten.div.Tensor_mode", name, divisor, rounding_mode=mode)
    elif kind == 3:
        scaled = steps.new("aten.mul.Scalar", name, 2500)
        decimals = steps.one((-3, -2))
        result = steps.new("aten.round.decimals", scaled, decimals=decimals)
    else:
        op = steps.one(("aten.remainder.Tensor", "aten.fmod.Tensor"))
        result = steps.new(op, name, divisor)
    steps.may_overwrite(50, name)
    steps.wants(result)


@CODE_SCENARIOS.add("a = ldexp(x.half(), y); x.zero_(); return a", "ldexp-dtype, complex-numbers")
def promoted_operands(steps: Steps) -> None:
    """Operands of several dtypes, 0-d or not; the result has the promoted dtype."""
    name = steps.some(not_empty)
    own = steps.at(name).dtype
    dtypes = (torch.float32, torch.float64, torch.int64, torch.float16, torch.uint8)
    wider = (*dtypes, torch.complex128) if own.is_complex else dtypes
    source = steps.known(lambda tensor: not tensor.is_complex() or own.is_complex)
    other = steps.one(source)
    if steps.chance(50):
        other = steps.a_number(other)
    other = steps.convert(other, steps.one([dtype for dtype in wider if dtype != own]))
    ops = ["aten.add.Tensor", "aten.mul.Tensor", "aten.eq.Tensor"]
    if not own.is_complex and own != torch.bool:
        ops += ["aten.maximum.default", "aten.ldexp.Tensor", "aten.copysign.Tensor"]
    op = steps.one(ops)
    result = steps.new(op, name, other)
    steps.overwrite(steps.one((name, other)))
    steps.wants(result)


@CODE_SCENARIOS.add(
    "a = x + 1; v = a[1:]; w = a[::2]; v[i] = 5; return w, a", "views of a buffer that is written"
)
def write_beside_view(steps: Steps) -> None:
    """Two views of one new tensor: one is written by index, the other is read and returned."""
    base = product(steps) if steps.chance(40) else steps.fresh(steps.some())
    if not has_rows(steps.at(base)):
        raise NoChoice
    one, other = steps.any_view(base), steps.any_view(base)
    before = steps.fresh(other)
    steps.write_somewhere(one)
    steps.wants(other, before, base)
