"""Scenarios of memory: which tensors a compiler may compute in place or in reused memory.

Each function adds a few instructions to a scene, or raises `NoChoice`.
"""

from __future__ import annotations

import torch

from aliasproof.generators.scenario_steps import (
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
    is_real,
    like,
    not_empty,
    overwrite,
    positions,
    same_view,
    shaped_like,
    some,
    some_input,
    some_or_new,
    total,
    write_somewhere,
)
from aliasproof.generators.scene import NoChoice, Pick, Scene
from aliasproof.ir.program import Argument, Ref
from aliasproof.ir.regions import Region, overlap

# --- reinplacing ----------------------------------------------------------------------------------

REINPLACING_SCENARIOS = ScenarioTable()


@REINPLACING_SCENARIOS.add("y = select_scatter(y, y[0] + 1, 0, 0), twice", "reinplaced-scatter")
def scatter_chain(pick: Pick, scene: Scene) -> None:
    """The output of functionalization for a write through a view: view, change, scatter back.

    Reinplacing turns the scatter back into a write. A second round uses the result of the first.
    """
    # A pass may overwrite a new tensor in place, but rarely an input.
    base = some_or_new(pick, scene, 70, lambda tensor: tensor.dim() >= 1 and tensor.shape[0] >= 2)
    for _ in range(pick.integer(1, 2)):
        view_op, scatter_op, args = pick.one(
            (
                ("aten.select.int", "aten.select_scatter.default", (0, pick.integer(0, 1))),
                ("aten.slice.Tensor", "aten.slice_scatter.default", (0, pick.integer(0, 1), 2)),
                ("aten.diagonal.default", "aten.diagonal_scatter.default", (0, 0, 1)),
            )
        )
        view = scene.call(view_op, Ref(base), *args)[0]
        changed = fresh(pick, scene, view)
        # A scatter into a base other than that of the view must stay a scatter.
        into = base if pick.chance(70) else some(pick, scene, shaped_like(scene.values[base]))
        base = scene.call(scatter_op, Ref(into), Ref(changed), *args)[0]


@REINPLACING_SCENARIOS.add("t = x.clone(); x.copy_(y); y.copy_(t)", "copy-of-written-input")
def swap(pick: Pick, scene: Scene) -> None:
    """Exchange the contents of two tensors through a clone.

    If a pass removes the clone, the second copy reads what the first one wrote.
    """
    first = some(pick, scene)
    tensor = scene.values[first]
    region = Region.of(tensor)

    def fits(other: torch.Tensor) -> bool:
        alike = other.shape == tensor.shape and other.dtype == tensor.dtype
        return alike and not overlap(Region.of(other), region)

    second = some(pick, scene, fits)
    saved = scene.call("aten.clone.default", Ref(first))[0]
    scene.call("aten.copy_.default", Ref(first), Ref(second))
    scene.call("aten.copy_.default", Ref(second), Ref(saved))


@REINPLACING_SCENARIOS.add("x.t() * x; x.add_(x.alias())", "reinplaced-operands, inductor-operands")
def aliased_operands(pick: Pick, scene: Scene) -> None:
    """One call with two operands that alias, often the same tensor twice."""
    # A pass may overwrite a new tensor in place, unless the other operand reads it.
    first = some_or_new(pick, scene, 60, is_arithmetic)
    shape = scene.values[first].shape
    # An equal view, the same bytes in another order, or the same tensor twice.
    if pick.chance(50):
        view = scene.call("aten.alias.default", Ref(first))[0]
    elif len(shape) == 2 and shape[0] == shape[1]:
        view = scene.call("aten.transpose.int", Ref(first), 0, 1)[0]
    else:
        view = first
    op = pick.one(("aten.mul.Tensor", "aten.add.Tensor", "aten.mul_.Tensor", "aten.add_.Tensor"))
    scene.call(op, Ref(first), Ref(view))


@REINPLACING_SCENARIOS.add(
    "y = x + 1; v = y.alias(); z = y + 1; v.zero_(); return y, z", "reinplaced-result-outlives"
)
def return_overwritten(pick: Pick, scene: Scene) -> None:
    """Values with an alias that is overwritten afterwards.

    Outputs are drawn from the newest values, so the program often returns these values.
    """
    base = fresh(pick, scene, some(pick, scene))
    view = scene.call("aten.alias.default", Ref(base))[0]
    changed = fresh(pick, scene, base)
    overwrite(pick, scene, pick.one((changed, view, base)))


@REINPLACING_SCENARIOS.add(
    "y = slice_scatter(x, x[0:2] + 1, 0, 0, 2); v = y[1:3]; x.zero_()",
    "partial overlap of scatter and view",
)
def scatter_in_part(pick: Pick, scene: Scene) -> None:
    """A `slice_scatter` and a slice of its result that overlap partly."""
    base = some_or_new(pick, scene, 50, lambda tensor: has_rows(tensor) and tensor.shape[0] >= 3)
    size = scene.values[base].shape[0]
    start = pick.integer(0, 1)
    end = start + pick.integer(1, size - 2)
    part = scene.call("aten.slice.Tensor", Ref(base), 0, start, end)[0]
    source = fresh(pick, scene, part)
    scattered = scene.call("aten.slice_scatter.default", Ref(base), Ref(source), 0, start, end)[0]
    after = scene.call("aten.slice.Tensor", Ref(scattered), 0, start + 1, end + 1)[0]
    if pick.chance(50):
        overwrite(pick, scene, pick.one((base, after)))
    scene.wants(scattered, fresh(pick, scene, after), base)


@REINPLACING_SCENARIOS.add("y = index_put(x.expand(2, 4), [i], v); use(x)", "reinplaced-overlap")
def expanded_then_scattered(pick: Pick, scene: Scene) -> None:
    """A functional store into an expanded tensor: copies of one element may become different."""
    base = some_or_new(pick, scene, 70, not_empty)
    shape = tuple(scene.values[base].shape)
    wide = scene.call("aten.expand.default", Ref(base), (pick.integer(2, 3), *shape))[0]
    kind = pick.integer(0, 2)
    if kind == 0:
        index = positions(pick, scene, wide, scene.values[wide].shape[0])
        value = a_number(pick, scene, wide)
        args = (Ref(wide), (Ref(index),), Ref(value))
        result = scene.call("aten.index_put.default", *args)[0]
    elif kind == 1:
        source = fresh(pick, scene, base)
        result = scene.call("aten.select_scatter.default", Ref(wide), Ref(source), 0, 1)[0]
    else:
        row = scene.call("aten.unsqueeze.default", Ref(fresh(pick, scene, base)), 0)[0]
        result = scene.call("aten.slice_scatter.default", Ref(wide), Ref(row), 0, 1, 2)[0]
    if pick.chance(30):
        overwrite(pick, scene, base)
    scene.wants(result, fresh(pick, scene, base))


@REINPLACING_SCENARIOS.add(
    "a = select_scatter(x[0:2], v, 0, 0); b = slice_scatter(x, a, 0, 0, 2); return a, b",
    "fused-scatters",
)
def nested_scatters(pick: Pick, scene: Scene) -> None:
    """A scatter into a view, scattered into the base; often both results are returned."""
    base = some_or_new(pick, scene, 50, has_rows)
    size = scene.values[base].shape[0]
    bounds = (0, pick.integer(0, 1), pick.one((OPEN_END, size)))
    part = scene.call("aten.slice.Tensor", Ref(base), *bounds)[0]
    inner = (1, 0) if scene.values[part].dim() > 1 and pick.chance(50) else (0, 0)
    element = scene.call("aten.select.int", Ref(part), *inner)[0]
    source = Ref(fresh(pick, scene, element))
    changed = scene.call("aten.select_scatter.default", Ref(part), source, *inner)[0]
    if pick.chance(30):
        changed = fresh(pick, scene, changed)
    into = base if pick.chance(70) else some(pick, scene, like(scene.values[base]))
    whole = scene.call("aten.slice_scatter.default", Ref(into), Ref(changed), *bounds)[0]
    scene.wants(changed, whole)


@REINPLACING_SCENARIOS.add(
    "y = select_scatter(x, v, 0, 0); x.zero_(); return y", "reinplaced-result-outlives"
)
def scatter_beside_write(pick: Pick, scene: Scene) -> None:
    """A scatter of a tensor that is written later; a compiler may do the scatter in place."""
    base = some(pick, scene, has_rows)
    results: list[str] = []
    for _ in range(pick.integer(1, 2)):
        row = scene.call("aten.select.int", Ref(base), 0, pick.integer(0, 1))[0]
        source = Ref(fresh(pick, scene, row))
        args = (Ref(base), source, 0, pick.integer(0, 1))
        results += scene.call("aten.select_scatter.default", *args)
    if pick.chance(50):
        scene.call("aten.copy_.default", Ref(base), Ref(pick.one(results)))
    else:
        write_somewhere(pick, scene, base)
    scene.wants(*results)


@REINPLACING_SCENARIOS.add(
    "y = diagonal_scatter(x, v); x.diagonal(1).zero_(); return y", "reinplaced-result-outlives"
)
def diagonal_write(pick: Pick, scene: Scene) -> None:
    """A scatter into a diagonal, and a write to the matrix or another diagonal of it."""
    base = some(pick, scene, lambda tensor: tensor.dim() == 2 and tensor.numel() > 0)
    diagonal = scene.call("aten.diagonal.default", Ref(base), pick.integer(0, 1))[0]
    if scene.values[diagonal].numel() == 0:
        raise NoChoice
    source = fresh(pick, scene, scene.call("aten.diagonal.default", Ref(base))[0])
    result = scene.call("aten.diagonal_scatter.default", Ref(base), Ref(source))[0]
    overwrite(pick, scene, pick.one((base, diagonal)))
    scene.wants(result)


@REINPLACING_SCENARIOS.add(
    "y = index_put(x.clone(), [i], v); x.copy_(y); use(y)", "copy-of-written-input"
)
def put_into_clone(pick: Pick, scene: Scene) -> None:
    """A functional store by index into a copy, while the original is read or written later."""
    name = some(pick, scene, has_rows)
    copy = scene.call("aten.clone.default", Ref(name))[0] if pick.chance(50) else name
    index = positions(pick, scene, copy, scene.values[copy].shape[0])
    chosen = scene.call("aten.index.Tensor", Ref(copy), (Ref(index),))[0]
    value = chosen if pick.chance(30) else fresh(pick, scene, chosen)
    accumulate = pick.chance(30)
    args = (Ref(copy), (Ref(index),), Ref(value), accumulate)
    result = scene.call("aten.index_put.default", *args)[0]
    if pick.chance(60):
        target = pick.one((name, copy))
        if pick.chance(50):
            scene.call("aten.copy_.default", Ref(target), Ref(result))
        else:
            overwrite(pick, scene, target)
    scene.wants(result, fresh(pick, scene, name))


@REINPLACING_SCENARIOS.add(
    "put(i, i, i); index_put(i, [i.alias()], i.flip(0))", "inductor-operands"
)
def indices_alias_destination(pick: Pick, scene: Scene) -> None:
    """A store by index; its indices or values are the destination or a view of it."""
    known = scene.newest_first(lambda t: t.dtype == torch.int64 and t.dim() == 1 and t.numel() > 0)
    if known and pick.chance(60):
        # Modulo the size, consecutive integers are distinct indices.
        name = pick.one(known)
        index = scene.call("aten.remainder.Scalar", Ref(name), scene.values[name].numel())[0]
    else:
        ascending = iota(scene, some(pick, scene), pick.integer(1, 4))
        index = scene.call("aten.flip.default", Ref(ascending), (0,))[0]
    view = scene.call("aten.alias.default", Ref(index))[0] if pick.chance(30) else index
    value = index if pick.chance(60) else scene.call("aten.flip.default", Ref(index), (0,))[0]
    kind = pick.integer(0, 2)
    if kind == 0:
        result = scene.call("aten.put.default", Ref(index), Ref(view), Ref(value))[0]
    elif kind == 1:
        args = (Ref(index), (Ref(view),), Ref(value), pick.chance(50))
        result = scene.call("aten.index_put.default", *args)[0]
    else:
        result = scene.call("aten.scatter.src", Ref(index), 0, Ref(view), Ref(value))[0]
    scene.wants(result, index)


@REINPLACING_SCENARIOS.add(
    "y = x + 1; return y, select_scatter(y, x[0], 0, 1)", "reinplaced-scatter"
)
def scatter_of_other_base(pick: Pick, scene: Scene) -> None:
    """A view of one tensor is scattered into another one, unchanged or at other positions."""
    base = fresh(pick, scene, some(pick, scene, has_rows))
    other = fresh(pick, scene, base) if pick.chance(50) else base
    row = scene.call("aten.select.int", Ref(base), 0, pick.integer(0, 1))[0]
    args = (Ref(other), Ref(row), 0, pick.integer(0, 1))
    result = scene.call("aten.select_scatter.default", *args)[0]
    scene.wants(other, result)


@REINPLACING_SCENARIOS.add(
    "a, b = _foreach_add([x, y], 1); x.copy_(b); y.copy_(a)",
    "foreach-results, foreach-reads-other, foreach-operand-read-late",
)
def exchanged_lists(pick: Pick, scene: Scene) -> None:
    """One call on several tensors; it reads or writes the operands of other results."""
    first = some(pick, scene, lambda tensor: not_empty(tensor) and tensor.dtype != torch.bool)
    same = like(scene.values[first])
    if has_rows(scene.values[first]) and pick.chance(40):
        names = scene.call("aten.chunk.default", Ref(first), 2)
        if scene.values[names[0]].shape != scene.values[names[1]].shape:
            raise NoChoice
    else:
        names = (first, pick.one([name for name in scene.newest_first(same) if name != first]))
    operands, others = tuple(map(Ref, names)), tuple(map(Ref, reversed(names)))
    if pick.chance(25):
        computed = [scene.call("aten.add.Scalar", other, 1)[0] for other in others]
        scene.call("aten._foreach_copy_.default", operands, tuple(map(Ref, computed)))
        return
    calls: tuple[tuple[str, tuple[Argument, ...]], ...] = (
        ("_foreach_add.Scalar", (1,)),
        ("_foreach_neg.default", ()),
        ("_foreach_add.List", (others,)),
    )
    op, args = pick.one(calls)
    results = scene.call(f"aten.{op}", operands, *args)
    targets = tuple(reversed(names)) if pick.chance(50) else names
    for target, result in zip(targets, results, strict=True):
        if pick.chance(80):
            scene.call("aten.copy_.default", Ref(target), Ref(result))
    scene.wants(*results)


@REINPLACING_SCENARIOS.add("_foreach_add_([x[:2], x[2:]], 1)", "foreach on views of one base")
def lists_of_views(pick: Pick, scene: Scene) -> None:
    """One in-place call for several views of one tensor, which touch or overlap."""
    base = some(pick, scene, lambda tensor: has_rows(tensor) and tensor.dtype != torch.bool)
    size = scene.values[base].shape[0]
    middle = size // 2
    low = scene.call("aten.slice.Tensor", Ref(base), 0, 0, middle)[0]
    high = scene.call("aten.slice.Tensor", Ref(base), 0, size - middle, OPEN_END)[0]
    # The documentation says one after the other; so the order matters if the views overlap.
    lists = [(low, high), (high, low), (low, base), (any_view(pick, scene, base), high)]
    names = tuple(map(Ref, pick.one(lists)))
    kind = pick.integer(0, 2)
    if kind == 0:
        scene.call("aten._foreach_add_.Scalar", names, 1)
    elif kind == 1:
        scene.call("aten._foreach_mul_.Scalar", names, 2)
    else:
        scene.call("aten._foreach_neg_.default", names)
    scene.wants(fresh(pick, scene, base))


# --- custom operators -----------------------------------------------------------------------------

# To functionalize such a call, a compiler copies the base of each written view. Later passes remove
# the copies that are not needed.
CUSTOM_SCENARIOS = ScenarioTable()


@CUSTOM_SCENARIOS.add(
    "custom_op(x[:3], x[1:])  # mutates both",
    "auto_functionalized_v2 restores the views of one base",
)
def two_writes_by_one_operator(pick: Pick, scene: Scene) -> None:
    """An operator writes two views of one base: they overlap, touch, or are equal."""
    # A pass may write a new tensor in place, but not the memory of an input.
    base = some_or_new(pick, scene, 50, has_rows)
    low, high = _two_views(pick, scene, base)
    kind = pick.integer(0, 3)
    if kind == 0:
        other = pick.one([low, high, base])
        if scene.values[other].shape != scene.values[low].shape:
            other = low
        scene.call("aliasproof.running_sum.default", (Ref(low), Ref(high), Ref(other)))
    elif kind == 1:
        third = fresh(pick, scene, low)
        scene.call("aliasproof.store_sum.default", Ref(low), Ref(high), Ref(third))
    else:
        scene.call("aliasproof.add_both.default", Ref(low), Ref(high))
    scene.wants(fresh(pick, scene, base), high)


def _two_views(pick: Pick, scene: Scene, base: str) -> tuple[str, str]:
    """Two views of a base, of equal sizes."""
    tensor = scene.values[base]
    if pick.chance(25):
        view = any_view(pick, scene, base)
        again = scene.call("aten.alias.default", Ref(view))[0] if pick.chance(50) else view
        return view, again
    dim = pick.one([dim for dim, size in enumerate(tensor.shape) if size >= 2])
    size = tensor.shape[dim]
    if pick.chance(30):
        first = scene.call("aten.select.int", Ref(base), dim, 0)[0]
        return first, scene.call("aten.select.int", Ref(base), dim, -1)[0]
    start = pick.one((1, size - size // 2))
    low = scene.call("aten.slice.Tensor", Ref(base), dim, 0, size - start)[0]
    high = scene.call("aten.slice.Tensor", Ref(base), dim, start, OPEN_END)[0]
    return low, high


@CUSTOM_SCENARIOS.add("y = x.clone(); custom_op(x, y)  # mutates x", "#198031")
def operator_beside_clone(pick: Pick, scene: Scene) -> None:
    """An operator writes a tensor; a clone of it is another operand, or is read later."""
    name = some_input(pick, scene, not_empty) if pick.chance(60) else some(pick, scene, not_empty)
    clone = scene.call("aten.clone.default", Ref(name))[0]
    target, other = (name, clone) if pick.chance(70) else (clone, name)
    kind = pick.integer(0, 3)
    if kind == 0:
        (before,) = scene.call("aliasproof.double.default", Ref(target), named=True)
        scene.wants(before)
    elif kind == 1:
        scene.call("aliasproof.add_both.default", Ref(target), Ref(other))
    else:
        # This operator reads the other operand again after it has written.
        scene.call("aliasproof.add_twice.default", Ref(target), Ref(other))
    scene.wants(fresh(pick, scene, other), clone)


@CUSTOM_SCENARIOS.add(
    "t = x + 1; custom_op(x[1:]); x.copy_(t)  # mutates x[1:]",
    "the epilogue beside auto_functionalized_v2",
)
def operator_before_copy(pick: Pick, scene: Scene) -> None:
    """An operator writes a view of an input, and then `copy_` overwrites the input."""
    name = some_input(pick, scene, has_rows)
    view = any_view(pick, scene, name)
    same = [other for other in scene.newest_first(like(scene.values[view])) if other != view]
    before = fresh(pick, scene, name)
    if same and pick.chance(60):
        scene.call("aliasproof.add_both.default", Ref(view), Ref(pick.one(same)))
    else:
        scene.call("aliasproof.double.default", Ref(view))
    read = fresh(pick, scene, view)
    if scene.values[before].shape != scene.values[name].shape:
        raise NoChoice
    scene.call("aten.copy_.default", Ref(name), Ref(before))
    if pick.chance(50):
        overwrite(pick, scene, before)
    scene.wants(read, view)


# --- memory planning ------------------------------------------------------------------------------

# A pass could compute parts inside their concatenation, and results in a dead storage or a cache.
PLANNING_SCENARIOS = ScenarioTable()

# Dtypes by item size: a dead storage of one dtype has room for the other.
_DTYPES = {4: (torch.float32, torch.int32), 8: (torch.float64, torch.int64, torch.complex64)}


def _use_again(pick: Pick, scene: Scene, *names: str) -> None:
    """Overwrite, read or return some of the values afterwards; the others are dead."""
    for name in names:
        kind = pick.integer(0, 7)
        if kind == 1:
            overwrite(pick, scene, name)
        elif kind == 2:
            scene.wants(fresh(pick, scene, name))
        elif kind == 3:
            scene.wants(name)


def _part(pick: Pick, scene: Scene, base: str, before: list[str]) -> str:
    """A tensor like `base`: computed, a view of a computed one, or made from earlier parts."""
    kind = pick.integer(0, 6)
    if before and kind == 1:
        return pick.one(before)
    if before and kind == 2:
        return fresh(pick, scene, pick.one(before))
    if kind == 3 and scene.values[base].dim() == 2:
        other = fresh(pick, scene, scene.call("aten.transpose.int", Ref(base), 0, 1)[0])
        return scene.call("aten.transpose.int", Ref(other), 0, 1)[0]
    if kind == 4:
        return same_view(pick, scene, fresh(pick, scene, base))
    if kind == 5:
        pair = scene.call("aten.stack.default", (Ref(fresh(pick, scene, base)), Ref(base)))[0]
        return scene.call("aten.select.int", Ref(pair), 0, pick.integer(0, 1))[0]
    return fresh(pick, scene, base)


def _join(pick: Pick, scene: Scene, parts: list[str]) -> str:
    """The concatenation of parts of equal shape."""
    rank = scene.values[parts[0]].dim()
    op = "aten.cat.default" if rank and pick.chance(60) else "aten.stack.default"
    dim = pick.integer(0, rank - 1 if op == "aten.cat.default" else rank)
    return scene.call(op, tuple(map(Ref, parts)), dim)[0]


@PLANNING_SCENARIOS.add(
    "p = x + 1; q = p * 2; y = cat([p, q.t(), p]); p.zero_()",
    "parts are computed in their concatenation",
)
def joined_parts(pick: Pick, scene: Scene) -> None:
    """A concatenation of parts that are computed earlier and often used again."""
    base = some(pick, scene, not_empty)
    parts: list[str] = []
    for _ in range(pick.integer(2, 3)):
        parts.append(_part(pick, scene, base, parts))
    joined = _join(pick, scene, parts)
    _use_again(pick, scene, *dict.fromkeys(parts), base)
    scene.wants(joined)


@PLANNING_SCENARIOS.add(
    "c = cat([p, q]); return stack([c, c + 1]), cat([p, r])",
    "parts are computed in their concatenation",
)
def nested_joins(pick: Pick, scene: Scene) -> None:
    """A concatenation of concatenations; a part may be in both."""
    base = some(pick, scene, not_empty)
    first, second, third = (_part(pick, scene, base, []) for _ in range(3))
    inner = _join(pick, scene, [first, second])
    other = _part(pick, scene, inner, [])
    outer = _join(pick, scene, pick.one(([inner, other], [other, inner], [inner, inner])))
    again = _join(pick, scene, [first, third])
    _use_again(pick, scene, inner, first)
    scene.wants(again, outer)


@PLANNING_SCENARIOS.add(
    "y = constant_pad_nd(x + 1, [1, 2]); return y", "parts are computed in their concatenation"
)
def padded_part(pick: Pick, scene: Scene) -> None:
    """A pad of a computed part, at some sides, also by negative amounts."""
    base = some(pick, scene, lambda tensor: tensor.dim() >= 1 and tensor.numel() > 0)
    part = _part(pick, scene, base, [])
    sides = pick.integer(1, scene.values[base].dim())
    pads = tuple(pick.one((0, 1, 2, 1, -1)) for _ in range(2 * sides))
    padded = scene.call("aten.constant_pad_nd.default", Ref(part), pads, pick.integer(0, 1))[0]
    _use_again(pick, scene, part)
    scene.wants(padded)


@PLANNING_SCENARIOS.add(
    "a, b = chunk(x + 1, 2); y = cat([a * 2, b])", "parts are views of what is split"
)
def parts_go_on(pick: Pick, scene: Scene) -> None:
    """Split a computed tensor, change some parts, and concatenate them again."""
    whole = fresh(pick, scene, some(pick, scene, has_rows))
    splits: tuple[OpOn, ...] = (("aten.split.Tensor", (1,)), ("aten.chunk.default", (2,)))
    op, args = pick.one((*splits, ("aten.unbind.int", (0,))))
    parts = list(scene.call(op, Ref(whole), *args))
    changed = [fresh(pick, scene, part) if pick.chance(60) else part for part in parts]
    joined = "aten.stack.default" if op == "aten.unbind.int" else "aten.cat.default"
    result = scene.call(joined, tuple(map(Ref, changed)))[0]
    _use_again(pick, scene, whole, changed[0])
    scene.wants(result)


@PLANNING_SCENARIOS.add(
    "a = x.repeat(3); s = a.sum(); b = x.repeat(2) + s; return b",
    "a result takes over a storage that nobody reads any more",
)
def dead_storages(pick: Pick, scene: Scene) -> None:
    """Tensors of several sizes die; a later one could reuse the memory of an earlier one."""
    base = value = some(pick, scene, not_empty)
    sums: list[str] = []
    for _ in range(pick.integer(2, 4)):
        sizes = (pick.integer(1, 3), *(1,) * scene.values[base].dim())
        value = scene.call("aten.repeat.default", Ref(fresh(pick, scene, base)), sizes)[0]
        value = fresh(pick, scene, value)
        # A view keeps the storage alive.
        if pick.chance(25):
            scene.wants(any_view(pick, scene, value))
        sums.append(total(pick, scene, value))
    scene.wants(value, *sums)


@PLANNING_SCENARIOS.add(
    "a = c[:, None] * r; s = a.sum(0); return c[:, None] + s",
    "a result takes over a storage that nobody reads any more",
)
def broadcast_beside_dead(pick: Pick, scene: Scene) -> None:
    """A result that is larger than each operand, and a dead tensor of its size or more."""
    row = some(pick, scene, lambda tensor: tensor.dim() == 1 and tensor.numel() > 0)
    column = scene.call("aten.unsqueeze.default", Ref(fresh(pick, scene, row)), 1)[0]
    dead = combine(pick, scene, column, row)
    if pick.chance(30):
        dead = scene.call("aten.repeat.default", Ref(dead), (2, 1))[0]
    small = scene.call("aten.sum.dim_IntList", Ref(dead), (pick.integer(0, 1),))[0]
    if scene.values[small].shape != scene.values[row].shape:
        small = row
    wide = combine(pick, scene, column, fresh(pick, scene, small))
    _use_again(pick, scene, dead)
    scene.wants(small, wide)


@PLANNING_SCENARIOS.add(
    "a = x + 1; m = a != 1; return m.to(int32) + 1", "a storage is taken over in another dtype"
)
def dead_in_other_dtype(pick: Pick, scene: Scene) -> None:
    """Tensors of equal size in bytes and different dtypes; they die one after the other."""
    base = some(pick, scene, lambda tensor: is_real(tensor) and tensor.itemsize in _DTYPES)
    dtypes = _DTYPES[scene.values[base].itemsize]
    first = fresh(pick, scene, base)
    second = fresh(pick, scene, convert(scene, first, pick.one(dtypes)))
    mask = scene.call("aten.ne.Scalar", Ref(second), 1)[0]
    third = fresh(pick, scene, convert(scene, mask, pick.one(dtypes)))
    _use_again(pick, scene, first, second)
    scene.wants(mask, third)


@PLANNING_SCENARIOS.add(
    "p = x + 1; custom_op(p[1:]); return cat([p, p * 2])",
    "opaque calls may keep or show the memory of their operands",
)
def opaque_between(pick: Pick, scene: Scene) -> None:
    """An opaque operator takes a part, or a tensor whose memory could be reused."""
    base = some(pick, scene, not_empty)
    first, second = (_part(pick, scene, base, []) for _ in range(2))
    given = any_view(pick, scene, first) if pick.chance(40) else first
    kind = pick.integer(0, 3)
    if kind == 0:
        second = scene.call("aliasproof.plus.default", Ref(first), Ref(second))[0]
    elif kind == 1:
        scene.wants(*scene.call("aliasproof.double.default", Ref(given), named=True))
    elif kind == 2:
        scene.wants(*scene.call("aliasproof.location.default", Ref(given)))
    else:
        scene.wants(*scene.call("aliasproof.strides.default", Ref(given)))
    third = fresh(pick, scene, second)
    result = _join(pick, scene, [first, third]) if pick.chance(60) else fresh(pick, scene, third)
    _use_again(pick, scene, second, first)
    scene.wants(result)


def _row_stored(pick: Pick, scene: Scene, cache: str, row: str, at: int) -> str:
    """The cache with one more row; `row` has size 1 in dimension 0."""
    kind = pick.integer(0, 3)
    if kind == 0:
        return scene.call("aten.slice_scatter.default", Ref(cache), Ref(row), 0, at, at + 1)[0]
    if kind == 1:
        element = Ref(scene.call("aten.select.int", Ref(row), 0, 0)[0])
        return scene.call("aten.select_scatter.default", Ref(cache), element, 0, at)[0]
    index = Ref(scene.call("aten.new_full.default", Ref(row), (1,), at, dtype=torch.int64)[0])
    if kind == 2:
        return scene.call("aten.index_copy.default", Ref(cache), 0, index, Ref(row))[0]
    return scene.call("aten.index_put.default", Ref(cache), (index,), Ref(row))[0]


@PLANNING_SCENARIOS.add(
    "c = index_copy(cache, 0, i, k); use(c[: i + 1]); cache.copy_(c)", "a cache is updated in place"
)
def cache_with_new_rows(pick: Pick, scene: Scene) -> None:
    """A cache gets a row per step; each step may read the rows that are there."""
    first = some(pick, scene, has_rows)
    cache = before = fresh(pick, scene, first) if pick.chance(40) else first
    for _ in range(pick.integer(1, 3)):
        at = pick.integer(0, scene.values[cache].shape[0] - 1)
        row = scene.call("aten.slice.Tensor", Ref(cache), 0, at, at + 1)[0]
        before, cache = cache, _row_stored(pick, scene, cache, fresh(pick, scene, row), at)
        if pick.chance(50):
            shown = scene.call("aten.slice.Tensor", Ref(cache), 0, 0, at + 1)[0]
            scene.wants(fresh(pick, scene, shown))
    if pick.chance(50):
        scene.call("aten.copy_.default", Ref(first), Ref(cache))
    _use_again(pick, scene, before)
    scene.wants(cache)


@PLANNING_SCENARIOS.add("w = cat([x[1:], k]); x.copy_(w)", "a cache is updated in place")
def rolling_window(pick: Pick, scene: Scene) -> None:
    """A window drops its first row and gets a new last one, step by step."""
    first = window = row = some(pick, scene, has_rows)
    for _ in range(pick.integer(1, 3)):
        row = fresh(pick, scene, scene.call("aten.slice.Tensor", Ref(window), 0, 0, 1)[0])
        if pick.chance(60):
            rest = scene.call("aten.slice.Tensor", Ref(window), 0, 1, OPEN_END)[0]
            window = scene.call("aten.cat.default", (Ref(rest), Ref(row)))[0]
        else:
            window = scene.call("aten.roll.default", Ref(window), (-1,), (0,))[0]
            window = _row_stored(pick, scene, window, row, scene.values[window].shape[0] - 1)
    if pick.chance(50):
        scene.call("aten.copy_.default", Ref(first), Ref(window))
    scene.wants(row, window)


@PLANNING_SCENARIOS.add(
    "a, b = f(x, y), x; a, b = f(a, b), a; x.copy_(a); y.copy_(b)", "a cache is updated in place"
)
def double_buffers(pick: Pick, scene: Scene) -> None:
    """Two buffers swap: each step computes one from the other, and both are stored at the end."""
    first = some(pick, scene, not_empty)
    others = [name for name in scene.newest_first(like(scene.values[first])) if name != first]
    second = pick.one(others) if others else fresh(pick, scene, first)
    front, back = first, second
    for _ in range(pick.integer(1, 3)):
        front, back = combine(pick, scene, front, back), front
    if pick.chance(70):
        scene.call("aten.copy_.default", Ref(first), Ref(pick.one((front, back))))
    if pick.chance(70):
        scene.call("aten.copy_.default", Ref(second), Ref(pick.one((front, back))))
    scene.wants(back, front)


@PLANNING_SCENARIOS.add(
    "a = x + 1; b = x * 2; y = where(a != b, a * b, b); return y",
    "any dead operand may hold the result",
)
def operands_die_together(pick: Pick, scene: Scene) -> None:
    """Several operands die at one call, and each has room for the result."""
    base = some(pick, scene, not_empty)
    names = [_part(pick, scene, base, [])]
    names += [_part(pick, scene, base, names) for _ in range(2)]
    kept = any_view(pick, scene, pick.one(names)) if pick.chance(30) else None
    result = combine(pick, scene, names[0], names[1])
    if pick.chance(50):
        mask = scene.call("aten.ne.Tensor", Ref(names[1]), Ref(names[2]))[0]
        result = scene.call("aten.where.self", Ref(mask), Ref(result), Ref(names[2]))[0]
    _use_again(pick, scene, names[0])
    scene.wants(*([kept] if kept else []), result)
