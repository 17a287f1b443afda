"""Scenarios of reinplacing: calls that a compiler may put in place, and what forbids it.

Each function adds a few instructions to a scene, or raises `NoChoice`.
"""

from __future__ import annotations

import torch

from aliasproof.generators.scenario_steps import (
    FUNCTIONALIZATION,
    GRAPH_PASSES,
    OPEN_END,
    REINPLACING,
    ScenarioTable,
    a_number,
    any_view,
    fresh,
    has_rows,
    iota,
    like,
    not_empty,
    overwrite,
    positions,
    shaped_like,
    some,
    write_somewhere,
)
from aliasproof.generators.scene import NoChoice, Pick, Scene
from aliasproof.ir.program import Argument, Ref
from aliasproof.ir.regions import Region, overlap

REINPLACING_SCENARIOS = ScenarioTable()


@REINPLACING_SCENARIOS.add(
    "y = select_scatter(y, y[0] + 1, 0, 0), twice", (REINPLACING,), "reinplaced-scatter"
)
def scatter_chain(pick: Pick, scene: Scene) -> None:
    """What functionalization emits for a write through a view: view, change, scatter back.

    Reinplacing turns the scatter into a write again. A second round uses the result of the first.
    """
    base = some(pick, scene, lambda tensor: tensor.dim() >= 1 and tensor.shape[0] >= 2)
    # A pass may overwrite a new tensor in place, but rarely an input.
    if pick.chance(70):
        base = fresh(pick, scene, base)
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
        # A scatter into another base than the view's must stay a scatter.
        into = base if pick.chance(70) else some(pick, scene, shaped_like(scene.values[base]))
        base = scene.call(scatter_op, Ref(into), Ref(changed), *args)[0]


@REINPLACING_SCENARIOS.add(
    "t = x.clone(); x.copy_(y); y.copy_(t)", (REINPLACING, GRAPH_PASSES), "copy-of-written-input"
)
def swap(pick: Pick, scene: Scene) -> None:
    """Exchange the contents of two tensors with the help of a clone.

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


@REINPLACING_SCENARIOS.add(
    "x.t() * x; x.add_(x.alias())", (REINPLACING,), "reinplaced-operands, inductor-operands"
)
def aliased_operands(pick: Pick, scene: Scene) -> None:
    """One call with two operands that alias, often the same tensor twice."""
    first = some(pick, scene, lambda tensor: tensor.dtype != torch.bool)
    # A pass may overwrite a new tensor in place, unless the other operand reads it.
    if pick.chance(60):
        first = fresh(pick, scene, first)
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
    "y = x + 1; v = y.alias(); z = y + 1; v.zero_(); return y, z",
    (REINPLACING,),
    "reinplaced-result-outlives",
)
def return_overwritten(pick: Pick, scene: Scene) -> None:
    """Values with an alias that is overwritten afterwards.

    Outputs are drawn from the newest values, so the program often returns them.
    """
    base = fresh(pick, scene, some(pick, scene))
    view = scene.call("aten.alias.default", Ref(base))[0]
    changed = fresh(pick, scene, base)
    overwrite(pick, scene, pick.one((changed, view, base)))


@REINPLACING_SCENARIOS.add(
    "y = slice_scatter(x, x[0:2] + 1, 0, 0, 2); v = y[1:3]; x.zero_()",
    (REINPLACING,),
    "partial overlap of scatter and view",
)
def scatter_in_part(pick: Pick, scene: Scene) -> None:
    """A `slice_scatter` and a slice of its result that overlap in part."""
    base = some(pick, scene, lambda tensor: has_rows(tensor) and tensor.shape[0] >= 3)
    if pick.chance(50):
        base = fresh(pick, scene, base)
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


@REINPLACING_SCENARIOS.add(
    "y = index_put(x.expand(2, 4), [i], v); use(x)", (REINPLACING,), "reinplaced-overlap"
)
def expanded_then_scattered(pick: Pick, scene: Scene) -> None:
    """A functional store into an expanded tensor: each copy may get another value."""
    base = some(pick, scene, not_empty)
    if pick.chance(70):
        base = fresh(pick, scene, base)
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
    (REINPLACING,),
    "fused-scatters",
)
def nested_scatters(pick: Pick, scene: Scene) -> None:
    """A scatter into a view, scattered into the base; often both results are returned."""
    base = some(pick, scene, has_rows)
    if pick.chance(50):
        base = fresh(pick, scene, base)
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
    "y = select_scatter(x, v, 0, 0); x.zero_(); return y",
    (REINPLACING,),
    "reinplaced-result-outlives",
)
def scatter_beside_write(pick: Pick, scene: Scene) -> None:
    """A scatter of a tensor that is written later; a compiler may put the scatter into it."""
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
    "y = diagonal_scatter(x, v); x.diagonal(1).zero_(); return y",
    (REINPLACING,),
    "reinplaced-result-outlives",
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
    "y = index_put(x.clone(), [i], v); x.copy_(y); use(y)",
    (REINPLACING, GRAPH_PASSES),
    "copy-of-written-input",
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
    "put(i, i, i); index_put(i, [i.alias()], i.flip(0))", (REINPLACING,), "inductor-operands"
)
def indices_alias_destination(pick: Pick, scene: Scene) -> None:
    """A store by index whose indices or values are the destination or a view of it."""
    known = scene.newest_first(lambda t: t.dtype == torch.int64 and t.dim() == 1 and t.numel() > 0)
    if known and pick.chance(60):
        # Modulo the size, consecutive integers are different indices.
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
    "y = x + 1; return y, select_scatter(y, x[0], 0, 1)", (REINPLACING,), "reinplaced-scatter"
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
    (REINPLACING,),
    "foreach-results, foreach-reads-other, foreach-operand-read-late",
)
def exchanged_lists(pick: Pick, scene: Scene) -> None:
    """One call for several tensors; it reads or writes the operands of other results."""
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


@REINPLACING_SCENARIOS.add(
    "_foreach_add_([x[:2], x[2:]], 1)",
    (FUNCTIONALIZATION, REINPLACING),
    "foreach on views of one base",
)
def lists_of_views(pick: Pick, scene: Scene) -> None:
    """One in-place call for several views of one tensor, which touch or overlap."""
    base = some(pick, scene, lambda tensor: has_rows(tensor) and tensor.dtype != torch.bool)
    size = scene.values[base].shape[0]
    middle = size // 2
    low = scene.call("aten.slice.Tensor", Ref(base), 0, 0, middle)[0]
    high = scene.call("aten.slice.Tensor", Ref(base), 0, size - middle, OPEN_END)[0]
    # One after the other, as the documentation says; so the order matters where they overlap.
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
