"""Scenarios of memory: which tensors a compiler may compute in place or in reused memory.

Each function adds a few instructions to a scene, or raises `NoChoice`.
"""

from __future__ import annotations

import torch

from aliasproof.generators.scenario_steps import (
    OPEN_END,
    OpOn,
    ScenarioTable,
    Steps,
    has_rows,
    is_arithmetic,
    is_real,
    like,
    not_empty,
    shaped_like,
)
from aliasproof.generators.scene import NoChoice
from aliasproof.ir.program import Argument
from aliasproof.ir.regions import Region, overlap

# --- reinplacing ----------------------------------------------------------------------------------

REINPLACING_SCENARIOS = ScenarioTable()


@REINPLACING_SCENARIOS.add("y = select_scatter(y, y[0] + 1, 0, 0), twice", "reinplaced-scatter")
def scatter_chain(steps: Steps) -> None:
    """The output of functionalization for a write through a view: view, change, scatter back.

    Reinplacing turns the scatter back into a write. A second round uses the result of the first.
    """
    # A pass may overwrite a new tensor in place, but rarely an input.
    base = steps.some_or_new(70, lambda tensor: tensor.dim() >= 1 and tensor.shape[0] >= 2)
    for _ in range(steps.integer(1, 2)):
        view_op, scatter_op, args = steps.one(
            (
                ("aten.select.int", "aten.select_scatter.default", (0, steps.integer(0, 1))),
                ("aten.slice.Tensor", "aten.slice_scatter.default", (0, steps.integer(0, 1), 2)),
                ("aten.diagonal.default", "aten.diagonal_scatter.default", (0, 0, 1)),
            )
        )
        view = steps.new(view_op, base, *args)
        changed = steps.fresh(view)
        # A scatter into a base other than that of the view must stay a scatter.
        into = base if steps.chance(70) else steps.some(shaped_like(steps.at(base)))
        base = steps.new(scatter_op, into, changed, *args)


@REINPLACING_SCENARIOS.add("t = x.clone(); x.copy_(y); y.copy_(t)", "copy-of-written-input")
def swap(steps: Steps) -> None:
    """Exchange the contents of two tensors through a clone.

    If a pass removes the clone, the second copy reads what the first one wrote.
    """
    first = steps.some()
    tensor = steps.at(first)
    region = Region.of(tensor)

    def fits(other: torch.Tensor) -> bool:
        alike = other.shape == tensor.shape and other.dtype == tensor.dtype
        return alike and not overlap(Region.of(other), region)

    second = steps.some(fits)
    saved = steps.new("aten.clone.default", first)
    steps.call("aten.copy_.default", first, second)
    steps.call("aten.copy_.default", second, saved)


@REINPLACING_SCENARIOS.add("x.t() * x; x.add_(x.alias())", "reinplaced-operands, inductor-operands")
def aliased_operands(steps: Steps) -> None:
    """One call with two operands that alias, often the same tensor twice."""
    # A pass may overwrite a new tensor in place, unless the other operand reads it.
    first = steps.some_or_new(60, is_arithmetic)
    shape = steps.at(first).shape
    # An equal view, the same bytes in another order, or the same tensor twice.
    if steps.chance(50):
        view = steps.new("aten.alias.default", first)
    elif len(shape) == 2 and shape[0] == shape[1]:
        view = steps.new("aten.transpose.int", first, 0, 1)
    else:
        view = first
    op = steps.one(("aten.mul.Tensor", "aten.add.Tensor", "aten.mul_.Tensor", "aten.add_.Tensor"))
    steps.call(op, first, view)


@REINPLACING_SCENARIOS.add(
    "y = x + 1; v = y.alias(); z = y + 1; v.zero_(); return y, z", "reinplaced-result-outlives"
)
def return_overwritten(steps: Steps) -> None:
    """Values with an alias that is overwritten afterwards.

    Outputs are drawn from the newest values, so the program often returns these values.
    """
    base = steps.fresh(steps.some())
    view = steps.new("aten.alias.default", base)
    changed = steps.fresh(base)
    steps.overwrite(steps.one((changed, view, base)))


@REINPLACING_SCENARIOS.add(
    "y = slice_scatter(x, x[0:2] + 1, 0, 0, 2); v = y[1:3]; x.zero_()",
    "partial overlap of scatter and view",
)
def scatter_in_part(steps: Steps) -> None:
    """A `slice_scatter` and a slice of its result that overlap partly."""
    base = steps.some_or_new(50, lambda tensor: has_rows(tensor) and tensor.shape[0] >= 3)
    size = steps.at(base).shape[0]
    start = steps.integer(0, 1)
    end = start + steps.integer(1, size - 2)
    part = steps.new("aten.slice.Tensor", base, 0, start, end)
    source = steps.fresh(part)
    scattered = steps.new("aten.slice_scatter.default", base, source, 0, start, end)
    after = steps.new("aten.slice.Tensor", scattered, 0, start + 1, end + 1)
    steps.may_overwrite(50, base, after)
    steps.wants(scattered, steps.fresh(after), base)


@REINPLACING_SCENARIOS.add("y = index_put(x.expand(2, 4), [i], v); use(x)", "reinplaced-overlap")
def expanded_then_scattered(steps: Steps) -> None:
    """A functional store into an expanded tensor: copies of one element may become different."""
    base = steps.some_or_new(70, not_empty)
    shape = tuple(steps.at(base).shape)
    wide = steps.new("aten.expand.default", base, (steps.integer(2, 3), *shape))
    kind = steps.integer(0, 2)
    if kind == 0:
        index = steps.positions(wide, steps.at(wide).shape[0])
        value = steps.a_number(wide)
        result = steps.new("aten.index_put.default", wide, (index,), value)
    elif kind == 1:
        source = steps.fresh(base)
        result = steps.new("aten.select_scatter.default", wide, source, 0, 1)
    else:
        row = steps.new("aten.unsqueeze.default", steps.fresh(base), 0)
        result = steps.new("aten.slice_scatter.default", wide, row, 0, 1, 2)
    steps.may_overwrite(30, base)
    steps.wants(result, steps.fresh(base))


@REINPLACING_SCENARIOS.add(
    "a = select_scatter(x[0:2], v, 0, 0); b = slice_scatter(x, a, 0, 0, 2); return a, b",
    "fused-scatters",
)
def nested_scatters(steps: Steps) -> None:
    """A scatter into a view, scattered into the base; often both results are returned."""
    base = steps.some_or_new(50, has_rows)
    size = steps.at(base).shape[0]
    bounds = (0, steps.integer(0, 1), steps.one((OPEN_END, size)))
    part = steps.new("aten.slice.Tensor", base, *bounds)
    inner = (1, 0) if steps.at(part).dim() > 1 and steps.chance(50) else (0, 0)
    element = steps.new("aten.select.int", part, *inner)
    source = steps.fresh(element)
    changed = steps.new("aten.select_scatter.default", part, source, *inner)
    if steps.chance(30):
        changed = steps.fresh(changed)
    into = base if steps.chance(70) else steps.some(like(steps.at(base)))
    whole = steps.new("aten.slice_scatter.default", into, changed, *bounds)
    steps.wants(changed, whole)


@REINPLACING_SCENARIOS.add(
    "y = select_scatter(x, v, 0, 0); x.zero_(); return y", "reinplaced-result-outlives"
)
def scatter_beside_write(steps: Steps) -> None:
    """A scatter of a tensor that is written later; a compiler may do the scatter in place."""
    base = steps.some(has_rows)
    results: list[str] = []
    for _ in range(steps.integer(1, 2)):
        row = steps.new("aten.select.int", base, 0, steps.integer(0, 1))
        source = steps.fresh(row)
        results += steps.call("aten.select_scatter.default", base, source, 0, steps.integer(0, 1))
    if steps.chance(50):
        steps.call("aten.copy_.default", base, steps.one(results))
    else:
        steps.write_somewhere(base)
    steps.wants(*results)


@REINPLACING_SCENARIOS.add(
    "y = diagonal_scatter(x, v); x.diagonal(1).zero_(); return y", "reinplaced-result-outlives"
)
def diagonal_write(steps: Steps) -> None:
    """A scatter into a diagonal, and a write to the matrix or another diagonal of it."""
    base = steps.some(lambda tensor: tensor.dim() == 2 and tensor.numel() > 0)
    diagonal = steps.new("aten.diagonal.default", base, steps.integer(0, 1))
    if steps.at(diagonal).numel() == 0:
        raise NoChoice
    source = steps.fresh(steps.new("aten.diagonal.default", base))
    result = steps.new("aten.diagonal_scatter.default", base, source)
    steps.overwrite(steps.one((base, diagonal)))
    steps.wants(result)


@REINPLACING_SCENARIOS.add(
    "y = index_put(x.clone(), [i], v); x.copy_(y); use(y)", "copy-of-written-input"
)
def put_into_clone(steps: Steps) -> None:
    """A functional store by index into a copy, while the original is read or written later."""
    name = steps.some(has_rows)
    copy = steps.new("aten.clone.default", name) if steps.chance(50) else name
    index = steps.positions(copy, steps.at(copy).shape[0])
    chosen = steps.new("aten.index.Tensor", copy, (index,))
    value = chosen if steps.chance(30) else steps.fresh(chosen)
    accumulate = steps.chance(30)
    result = steps.new("aten.index_put.default", copy, (index,), value, accumulate)
    if steps.chance(60):
        target = steps.one((name, copy))
        if steps.chance(50):
            steps.call("aten.copy_.default", target, result)
        else:
            steps.overwrite(target)
    steps.wants(result, steps.fresh(name))


@REINPLACING_SCENARIOS.add(
    "put(i, i, i); index_put(i, [i.alias()], i.flip(0))", "inductor-operands"
)
def indices_alias_destination(steps: Steps) -> None:
    """A store by index; its indices or values are the destination or a view of it."""
    known = steps.known(lambda t: t.dtype == torch.int64 and t.dim() == 1 and t.numel() > 0)
    if known and steps.chance(60):
        # Modulo the size, consecutive integers are distinct indices.
        name = steps.one(known)
        index = steps.new("aten.remainder.Scalar", name, steps.at(name).numel())
    else:
        ascending = steps.iota(steps.some(), steps.integer(1, 4))
        index = steps.new("aten.flip.default", ascending, (0,))
    view = steps.new("aten.alias.default", index) if steps.chance(30) else index
    value = index if steps.chance(60) else steps.new("aten.flip.default", index, (0,))
    kind = steps.integer(0, 2)
    if kind == 0:
        result = steps.new("aten.put.default", index, view, value)
    elif kind == 1:
        result = steps.new("aten.index_put.default", index, (view,), value, steps.chance(50))
    else:
        result = steps.new("aten.scatter.src", index, 0, view, value)
    steps.wants(result, index)


@REINPLACING_SCENARIOS.add(
    "y = x + 1; return y, select_scatter(y, x[0], 0, 1)", "reinplaced-scatter"
)
def scatter_of_other_base(steps: Steps) -> None:
    """A view of one tensor is scattered into another one, unchanged or at other positions."""
    base = steps.fresh(steps.some(has_rows))
    other = steps.fresh(base) if steps.chance(50) else base
    row = steps.new("aten.select.int", base, 0, steps.integer(0, 1))
    result = steps.new("aten.select_scatter.default", other, row, 0, steps.integer(0, 1))
    steps.wants(other, result)


@REINPLACING_SCENARIOS.add(
    "a, b = _foreach_add([x, y], 1); x.copy_(b); y.copy_(a)",
    "foreach-results, foreach-reads-other, foreach-operand-read-late",
)
def exchanged_lists(steps: Steps) -> None:
    """One call on several tensors; it reads or writes the operands of other results."""
    first = steps.some(lambda tensor: not_empty(tensor) and tensor.dtype != torch.bool)
    same = like(steps.at(first))
    if has_rows(steps.at(first)) and steps.chance(40):
        names = steps.call("aten.chunk.default", first, 2)
        if steps.at(names[0]).shape != steps.at(names[1]).shape:
            raise NoChoice
    else:
        names = (first, steps.one([name for name in steps.known(same) if name != first]))
    others = names[::-1]
    if steps.chance(25):
        computed = [steps.new("aten.add.Scalar", other, 1) for other in others]
        steps.call("aten._foreach_copy_.default", names, computed)
        return
    calls: tuple[tuple[str, tuple[Argument, ...]], ...] = (
        ("_foreach_add.Scalar", (1,)),
        ("_foreach_neg.default", ()),
        ("_foreach_add.List", (others,)),
    )
    op, args = steps.one(calls)
    results = steps.call(f"aten.{op}", names, *args)
    targets = others if steps.chance(50) else names
    for target, result in zip(targets, results, strict=True):
        if steps.chance(80):
            steps.call("aten.copy_.default", target, result)
    steps.wants(*results)


@REINPLACING_SCENARIOS.add("_foreach_add_([x[:2], x[2:]], 1)", "foreach on views of one base")
def lists_of_views(steps: Steps) -> None:
    """One in-place call for several views of one tensor, which touch or overlap."""
    base = steps.some(lambda tensor: has_rows(tensor) and tensor.dtype != torch.bool)
    size = steps.at(base).shape[0]
    middle = size // 2
    low = steps.new("aten.slice.Tensor", base, 0, 0, middle)
    high = steps.new("aten.slice.Tensor", base, 0, size - middle, OPEN_END)
    # The documentation says one after the other; so the order matters if the views overlap.
    lists = [(low, high), (high, low), (low, base), (steps.any_view(base), high)]
    names = steps.one(lists)
    kind = steps.integer(0, 2)
    if kind == 0:
        steps.call("aten._foreach_add_.Scalar", names, 1)
    elif kind == 1:
        steps.call("aten._foreach_mul_.Scalar", names, 2)
    else:
        steps.call("aten._foreach_neg_.default", names)
    steps.wants(steps.fresh(base))


# --- custom operators -----------------------------------------------------------------------------

# To functionalize such a call, a compiler copies the base of each written view. Later passes remove
# the copies that are not needed.
CUSTOM_SCENARIOS = ScenarioTable()


@CUSTOM_SCENARIOS.add(
    "custom_op(x[:3], x[1:])  # mutates both",
    "auto_functionalized_v2 restores the views of one base",
)
def two_writes_by_one_operator(steps: Steps) -> None:
    """An operator writes two views of one base: they overlap, touch, or are equal."""
    # A pass may write a new tensor in place, but not the memory of an input.
    base = steps.some_or_new(50, has_rows)
    low, high = _two_views(steps, base)
    kind = steps.integer(0, 3)
    if kind == 0:
        other = steps.one([low, high, base])
        if steps.at(other).shape != steps.at(low).shape:
            other = low
        steps.call("aliasproof.running_sum.default", (low, high, other))
    elif kind == 1:
        third = steps.fresh(low)
        steps.call("aliasproof.store_sum.default", low, high, third)
    else:
        steps.call("aliasproof.add_both.default", low, high)
    steps.wants(steps.fresh(base), high)


def _two_views(steps: Steps, base: str) -> tuple[str, str]:
    """Two views of a base, of equal sizes."""
    tensor = steps.at(base)
    if steps.chance(25):
        view = steps.any_view(base)
        again = steps.new("aten.alias.default", view) if steps.chance(50) else view
        return view, again
    dim = steps.one([dim for dim, size in enumerate(tensor.shape) if size >= 2])
    size = tensor.shape[dim]
    if steps.chance(30):
        first = steps.new("aten.select.int", base, dim, 0)
        return first, steps.new("aten.select.int", base, dim, -1)
    start = steps.one((1, size - size // 2))
    low = steps.new("aten.slice.Tensor", base, dim, 0, size - start)
    high = steps.new("aten.slice.Tensor", base, dim, start, OPEN_END)
    return low, high


@CUSTOM_SCENARIOS.add("y = x.clone(); custom_op(x, y)  # mutates x", "#198031")
def operator_beside_clone(steps: Steps) -> None:
    """An operator writes a tensor; a clone of it is another operand, or is read later."""
    name = steps.some_input(not_empty) if steps.chance(60) else steps.some(not_empty)
    clone = steps.new("aten.clone.default", name)
    target, other = (name, clone) if steps.chance(70) else (clone, name)
    kind = steps.integer(0, 3)
    if kind == 0:
        (before,) = steps.call("aliasproof.double.default", target, named=True)
        steps.wants(before)
    elif kind == 1:
        steps.call("aliasproof.add_both.default", target, other)
    else:
        # This operator reads the other operand again after it has written.
        steps.call("aliasproof.add_twice.default", target, other)
    steps.wants(steps.fresh(other), clone)


@CUSTOM_SCENARIOS.add(
    "t = x + 1; custom_op(x[1:]); x.copy_(t)  # mutates x[1:]",
    "the epilogue beside auto_functionalized_v2",
)
def operator_before_copy(steps: Steps) -> None:
    """An operator writes a view of an input, and then `copy_` overwrites the input."""
    name = steps.some_input(has_rows)
    view = steps.any_view(name)
    same = [other for other in steps.known(like(steps.at(view))) if other != view]
    before = steps.fresh(name)
    if same and steps.chance(60):
        steps.call("aliasproof.add_both.default", view, steps.one(same))
    else:
        steps.call("aliasproof.double.default", view)
    read = steps.fresh(view)
    if steps.at(before).shape != steps.at(name).shape:
        raise NoChoice
    steps.call("aten.copy_.default", name, before)
    steps.may_overwrite(50, before)
    steps.wants(read, view)


# --- memory planning ------------------------------------------------------------------------------

# A pass could compute parts inside their concatenation, and results in a dead storage or a cache.
PLANNING_SCENARIOS = ScenarioTable()

# Dtypes by item size: a dead storage of one dtype has room for the other.
_DTYPES = {4: (torch.float32, torch.int32), 8: (torch.float64, torch.int64, torch.complex64)}


def _use_again(steps: Steps, *names: str) -> None:
    """Overwrite, read or return some of the values afterwards; the others are dead."""
    for name in names:
        kind = steps.integer(0, 7)
        if kind == 1:
            steps.overwrite(name)
        elif kind == 2:
            steps.wants(steps.fresh(name))
        elif kind == 3:
            steps.wants(name)


def _part(steps: Steps, base: str, before: list[str]) -> str:
    """A tensor like `base`: computed, a view of a computed one, or made from earlier parts."""
    kind = steps.integer(0, 6)
    if before and kind == 1:
        return steps.one(before)
    if before and kind == 2:
        return steps.fresh(steps.one(before))
    if kind == 3 and steps.at(base).dim() == 2:
        other = steps.fresh(steps.new("aten.transpose.int", base, 0, 1))
        return steps.new("aten.transpose.int", other, 0, 1)
    if kind == 4:
        return steps.same_view(steps.fresh(base))
    if kind == 5:
        pair = steps.new("aten.stack.default", (steps.fresh(base), base))
        return steps.new("aten.select.int", pair, 0, steps.integer(0, 1))
    return steps.fresh(base)


def _join(steps: Steps, parts: list[str]) -> str:
    """The concatenation of parts of equal shape."""
    rank = steps.at(parts[0]).dim()
    op = "aten.cat.default" if rank and steps.chance(60) else "aten.stack.default"
    dim = steps.integer(0, rank - 1 if op == "aten.cat.default" else rank)
    return steps.new(op, parts, dim)


@PLANNING_SCENARIOS.add(
    "p = x + 1; q = p * 2; y = cat([p, q.t(), p]); p.zero_()",
    "parts are computed in their concatenation",
)
def joined_parts(steps: Steps) -> None:
    """A concatenation of parts that are computed earlier and often used again."""
    base = steps.some(not_empty)
    parts: list[str] = []
    for _ in range(steps.integer(2, 3)):
        parts.append(_part(steps, base, parts))
    joined = _join(steps, parts)
    _use_again(steps, *dict.fromkeys(parts), base)
    steps.wants(joined)


@PLANNING_SCENARIOS.add(
    "c = cat([p, q]); return stack([c, c + 1]), cat([p, r])",
    "parts are computed in their concatenation",
)
def nested_joins(steps: Steps) -> None:
    """A concatenation of concatenations; a part may be in both."""
    base = steps.some(not_empty)
    first, second, third = (_part(steps, base, []) for _ in range(3))
    inner = _join(steps, [first, second])
    other = _part(steps, inner, [])
    outer = _join(steps, steps.one(([inner, other], [other, inner], [inner, inner])))
    again = _join(steps, [first, third])
    _use_again(steps, inner, first)
    steps.wants(again, outer)


@PLANNING_SCENARIOS.add(
    "y = constant_pad_nd(x + 1, [1, 2]); return y", "parts are computed in their concatenation"
)
def padded_part(steps: Steps) -> None:
    """A pad of a computed part, at some sides, also by negative amounts."""
    base = steps.some(lambda tensor: tensor.dim() >= 1 and tensor.numel() > 0)
    part = _part(steps, base, [])
    sides = steps.integer(1, steps.at(base).dim())
    pads = tuple(steps.one((0, 1, 2, 1, -1)) for _ in range(2 * sides))
    padded = steps.new("aten.constant_pad_nd.default", part, pads, steps.integer(0, 1))
    _use_again(steps, part)
    steps.wants(padded)


@PLANNING_SCENARIOS.add(
    "a, b = chunk(x + 1, 2); y = cat([a * 2, b])", "parts are views of what is split"
)
def parts_go_on(steps: Steps) -> None:
    """Split a computed tensor, change some parts, and concatenate them again."""
    whole = steps.fresh(steps.some(has_rows))
    splits: tuple[OpOn, ...] = (("aten.split.Tensor", (1,)), ("aten.chunk.default", (2,)))
    op, args = steps.one((*splits, ("aten.unbind.int", (0,))))
    parts = list(steps.call(op, whole, *args))
    changed = [steps.fresh(part) if steps.chance(60) else part for part in parts]
    joined = "aten.stack.default" if op == "aten.unbind.int" else "aten.cat.default"
    result = steps.new(joined, changed)
    _use_again(steps, whole, changed[0])
    steps.wants(result)


@PLANNING_SCENARIOS.add(
    "a = x.repeat(3); s = a.sum(); b = x.repeat(2) + s; return b",
    "a result takes over a storage that nobody reads any more",
)
def dead_storages(steps: Steps) -> None:
    """Tensors of several sizes die; a later one could reuse the memory of an earlier one."""
    base = value = steps.some(not_empty)
    sums: list[str] = []
    for _ in range(steps.integer(2, 4)):
        sizes = (steps.integer(1, 3), *(1,) * steps.at(base).dim())
        value = steps.new("aten.repeat.default", steps.fresh(base), sizes)
        value = steps.fresh(value)
        # A view keeps the storage alive.
        if steps.chance(25):
            steps.wants(steps.any_view(value))
        sums.append(steps.total(value))
    steps.wants(value, *sums)


@PLANNING_SCENARIOS.add(
    "a = c[:, None] * r; s = a.sum(0); return c[:, None] + s",
    "a result takes over a storage that nobody reads any more",
)
def broadcast_beside_dead(steps: Steps) -> None:
    """A result that is larger than each operand, and a dead tensor of its size or more."""
    row = steps.some(lambda tensor: tensor.dim() == 1 and tensor.numel() > 0)
    column = steps.new("aten.unsqueeze.default", steps.fresh(row), 1)
    dead = steps.combine(column, row)
    if steps.chance(30):
        dead = steps.new("aten.repeat.default", dead, (2, 1))
    small = steps.new("aten.sum.dim_IntList", dead, (steps.integer(0, 1),))
    if steps.at(small).shape != steps.at(row).shape:
        small = row
    wide = steps.combine(column, steps.fresh(small))
    _use_again(steps, dead)
    steps.wants(small, wide)


@PLANNING_SCENARIOS.add(
    "a = x + 1; m = a != 1; return m.to(int32) + 1", "a storage is taken over in another dtype"
)
def dead_in_other_dtype(steps: Steps) -> None:
    """Tensors of equal size in bytes and different dtypes; they die one after the other."""
    base = steps.some(lambda tensor: is_real(tensor) and tensor.itemsize in _DTYPES)
    dtypes = _DTYPES[steps.at(base).itemsize]
    first = steps.fresh(base)
    second = steps.fresh(steps.convert(first, steps.one(dtypes)))
    mask = steps.new("aten.ne.Scalar", second, 1)
    third = steps.fresh(steps.convert(mask, steps.one(dtypes)))
    _use_again(steps, first, second)
    steps.wants(mask, third)


@PLANNING_SCENARIOS.add(
    "p = x + 1; custom_op(p[1:]); return cat([p, p * 2])",
    "opaque calls may keep or show the memory of their operands",
)
def opaque_between(steps: Steps) -> None:
    """An opaque operator takes a part, or a tensor whose memory could be reused."""
    base = steps.some(not_empty)
    first, second = (_part(steps, base, []) for _ in range(2))
    given = steps.any_view(first) if steps.chance(40) else first
    kind = steps.integer(0, 3)
    if kind == 0:
        second = steps.new("aliasproof.plus.default", first, second)
    elif kind == 1:
        steps.wants(*steps.call("aliasproof.double.default", given, named=True))
    elif kind == 2:
        steps.wants(*steps.call("aliasproof.location.default", given))
    else:
        steps.wants(*steps.call("aliasproof.strides.default", given))
    third = steps.fresh(second)
    result = _join(steps, [first, third]) if steps.chance(60) else steps.fresh(third)
    _use_again(steps, second, first)
    steps.wants(result)


def _row_stored(steps: Steps, cache: str, row: str, at: int) -> str:
    """The cache with one more row; `row` has size 1 in dimension 0."""
    kind = steps.integer(0, 3)
    if kind == 0:
        return steps.new("aten.slice_scatter.default", cache, row, 0, at, at + 1)
    if kind == 1:
        element = steps.new("aten.select.int", row, 0, 0)
        return steps.new("aten.select_scatter.default", cache, element, 0, at)
    index = steps.new("aten.new_full.default", row, (1,), at, dtype=torch.int64)
    if kind == 2:
        return steps.new("aten.index_copy.default", cache, 0, index, row)
    return steps.new("aten.index_put.default", cache, (index,), row)


@PLANNING_SCENARIOS.add(
    "c = index_copy(cache, 0, i, k); use(c[: i + 1]); cache.copy_(c)", "a cache is updated in place"
)
def cache_with_new_rows(steps: Steps) -> None:
    """A cache gets a row per step; each step may read the rows that are there."""
    first = steps.some(has_rows)
    cache = before = steps.fresh(first) if steps.chance(40) else first
    for _ in range(steps.integer(1, 3)):
        at = steps.integer(0, steps.at(cache).shape[0] - 1)
        row = steps.new("aten.slice.Tensor", cache, 0, at, at + 1)
        before, cache = cache, _row_stored(steps, cache, steps.fresh(row), at)
        if steps.chance(50):
            shown = steps.new("aten.slice.Tensor", cache, 0, 0, at + 1)
            steps.wants(steps.fresh(shown))
    if steps.chance(50):
        steps.call("aten.copy_.default", first, cache)
    _use_again(steps, before)
    steps.wants(cache)


@PLANNING_SCENARIOS.add("w = cat([x[1:], k]); x.copy_(w)", "a cache is updated in place")
def rolling_window(steps: Steps) -> None:
    """A window drops its first row and gets a new last one, step by step."""
    first = window = row = steps.some(has_rows)
    for _ in range(steps.integer(1, 3)):
        row = steps.fresh(steps.new("aten.slice.Tensor", window, 0, 0, 1))
        if steps.chance(60):
            rest = steps.new("aten.slice.Tensor", window, 0, 1, OPEN_END)
            window = steps.new("aten.cat.default", (rest, row))
        else:
            window = steps.new("aten.roll.default", window, (-1,), (0,))
            window = _row_stored(steps, window, row, steps.at(window).shape[0] - 1)
    if steps.chance(50):
        steps.call("aten.copy_.default", first, window)
    steps.wants(row, window)


@PLANNING_SCENARIOS.add(
    "a, b = f(x, y), x; a, b = f(a, b), a; x.copy_(a); y.copy_(b)", "a cache is updated in place"
)
def double_buffers(steps: Steps) -> None:
    """Two buffers swap: each step computes one from the other, and both are stored at the end."""
    first = steps.some(not_empty)
    others = [name for name in steps.known(like(steps.at(first))) if name != first]
    second = steps.one(others) if others else steps.fresh(first)
    front, back = first, second
    for _ in range(steps.integer(1, 3)):
        front, back = steps.combine(front, back), front
    if steps.chance(70):
        steps.call("aten.copy_.default", first, steps.one((front, back)))
    if steps.chance(70):
        steps.call("aten.copy_.default", second, steps.one((front, back)))
    steps.wants(back, front)


@PLANNING_SCENARIOS.add(
    "a = x + 1; b = x * 2; y = where(a != b, a * b, b); return y",
    "any dead operand may hold the result",
)
def operands_die_together(steps: Steps) -> None:
    """Several operands die at one call, and each has room for the result."""
    base = steps.some(not_empty)
    names = [_part(steps, base, [])]
    names += [_part(steps, base, names) for _ in range(2)]
    kept = steps.any_view(steps.one(names)) if steps.chance(30) else None
    result = steps.combine(names[0], names[1])
    if steps.chance(50):
        mask = steps.new("aten.ne.Tensor", names[1], names[2])
        result = steps.new("aten.where.self", mask, result, names[2])
    _use_again(steps, names[0])
    steps.wants(*([kept] if kept else []), result)
