"""Scenarios of functionalization and AOTAutograd: views, writes through them, and inputs.

Each function adds a few instructions to a scene, or raises `NoChoice`.
"""

from __future__ import annotations

import torch

from aliasproof.generators.scenario_steps import (
    OPEN_END,
    OpOn,
    ScenarioTable,
    any_view,
    combine,
    convert,
    fresh,
    has_rows,
    like,
    not_empty,
    one_call,
    overwrite,
    same_view,
    some,
    some_input,
    some_or_new,
    viewed_as,
    write_somewhere,
)
from aliasproof.generators.scene import NoChoice, Pick, Scene
from aliasproof.ir.program import Ref
from aliasproof.ir.regions import capacity

VIEW_SCENARIOS = ScenarioTable()


@VIEW_SCENARIOS.add("v = x.view(x.shape); v.add_(1)", "#120585", name="no-op views")
def no_op_views(pick: Pick, scene: Scene) -> None:
    """A view of its whole base, unchanged, and then a write through either.

    A pass may remove the view, but must keep the alias.
    """
    name = some(pick, scene)
    view = same_view(pick, scene, name)
    overwrite(pick, scene, pick.one((view, name)))


@VIEW_SCENARIOS.add(
    "x.expand(3, 4).zero_()",
    "expand-inverse, unfold-inverse, overlapping-as-strided",
    name="self-overlap",
)
def self_overlap(pick: Pick, scene: Scene) -> None:
    """A view that shows an element more than once, and a store of one value through the view.

    Drawn less often than other scenarios, because it fails in most targets, and always in the same
    way.
    """
    if not pick.chance(25):
        raise NoChoice
    name = some(pick, scene, not_empty)
    tensor = scene.values[name]
    views: list[OpOn] = [("aten.expand.default", ((3, *tensor.shape),))]
    if tensor.dim() and tensor.shape[0] >= 2:
        views.append(("aten.unfold.default", (0, 2, 1)))
    if capacity(tensor) >= 3:
        views.append(("aten.as_strided.default", ((2, 2), (1, 1), 0)))
    view = one_call(pick, scene, name, views)
    # Storing one value everywhere is defined in eager; different values, or an update, are not.
    stores: list[OpOn] = [("aten.zero_.default", ()), ("aten.fill_.Scalar", (1,))]
    store, value = pick.one(stores)
    scene.call(store, Ref(view), *value)


@VIEW_SCENARIOS.add("a = x + 1; x.mul_(2); b = x + 1", "common subexpressions across a write")
def write_between_reads(pick: Pick, scene: Scene) -> None:
    """Read a tensor, write one of its aliases, read it again."""
    name = some(pick, scene)
    # If both reads are the same op, a pass must not merge them across the write.
    fresh(pick, scene, name)
    overwrite(pick, scene, pick.one((*scene.aliases(name), name)))
    fresh(pick, scene, name)


@VIEW_SCENARIOS.add("x[0:2].copy_(x[1:3] + 1); x[1:3].zero_()", "inverses of views")
def overlapping_slices(pick: Pick, scene: Scene) -> None:
    """Two slices of one base overlap or touch; one is written, often with data of the other."""
    name = some(pick, scene, lambda tensor: tensor.dim() >= 1 and tensor.shape[0] >= 3)
    size = scene.values[name].shape[0]
    middle = size // 2
    # The slices touch, or overlap by one row.
    start = pick.one((middle, max(middle - 1, 0)))
    low = scene.call("aten.slice.Tensor", Ref(name), 0, 0, middle)[0]
    high = scene.call("aten.slice.Tensor", Ref(name), 0, start, start + middle)[0]
    if pick.chance(50):
        # Through a new tensor: a copy between overlapping slices is undefined in eager.
        source = fresh(pick, scene, high)
        scene.call("aten.copy_.default", Ref(low), Ref(source))
    else:
        overwrite(pick, scene, low)
    if pick.chance(50):
        overwrite(pick, scene, high)


@VIEW_SCENARIOS.add("x[1:].copy_(x[:-1].clone())", "reads fused with a write")
def shift(pick: Pick, scene: Scene) -> None:
    """Rows of a tensor move by one within the tensor.

    A copy of the rows is taken before the write; without it, the move is undefined in eager.
    """
    among = some_input if pick.chance(50) else some
    name = among(pick, scene, has_rows)
    ahead = scene.call("aten.slice.Tensor", Ref(name), 0, 1, OPEN_END)[0]
    behind = scene.call("aten.slice.Tensor", Ref(name), 0, 0, -1)[0]
    if pick.chance(50):
        ahead, behind = behind, ahead
    if pick.chance(50):
        saved = scene.call("aten.clone.default", Ref(behind))[0]
    else:
        saved = fresh(pick, scene, behind)
    write = "aten.copy_.default" if pick.chance(70) else "aten.add_.Tensor"
    scene.call(write, Ref(ahead), Ref(saved))


@VIEW_SCENARIOS.add("v = x[1:]; a = v + 1; v.mul_(2)", "vectorized loads at an offset")
def misaligned_slices(pick: Pick, scene: Scene) -> None:
    """A slice that starts in the middle of a vector register is written and read."""
    name = some(pick, scene, lambda tensor: has_rows(tensor) and tensor.shape[0] >= 3)
    size = scene.values[name].shape[0]
    start = pick.integer(1, min(3, size - 2))
    part = scene.call("aten.slice.Tensor", Ref(name), 0, start, pick.one((OPEN_END, size - 1)))[0]
    read = fresh(pick, scene, part)
    overwrite(pick, scene, pick.one((part, name)))
    combine(pick, scene, part, read)


@VIEW_SCENARIOS.add("w = x[::2]; x[1:].t()[0].zero_(); use(w)", "inverses of views")
def nested_views(pick: Pick, scene: Scene) -> None:
    """Write through a view of a view; read the base and another view of it."""
    name = some(pick, scene, has_rows)
    beside = any_view(pick, scene, name)
    view = name
    for _ in range(pick.integer(2, 3)):
        view = any_view(pick, scene, view)
    write_somewhere(pick, scene, view)
    scene.wants(fresh(pick, scene, beside), fresh(pick, scene, name))


@VIEW_SCENARIOS.add("v = x.view(int16); v.add_(1); use(x)", "dtype-view-of-nothing, erased-input")
def view_of_other_dtype(pick: Pick, scene: Scene) -> None:
    """Write through a view of another item size, or read through one after a write."""
    name = some_or_new(pick, scene, 40, not_empty)
    view = viewed_as(pick, scene, name)
    written, read = (view, name) if pick.chance(50) else (name, view)
    write_somewhere(pick, scene, written)
    scene.wants(fresh(pick, scene, read), view)


@VIEW_SCENARIOS.add(
    "(x + 1).expand(2, 4).as_strided((3,), (1,), 1)", "as-strided-of-view, as-strided-of-new-base"
)
def strided_view(pick: Pick, scene: Scene) -> None:
    """`as_strided` of a tensor or of a view; it counts from the start of the storage."""
    name = some_or_new(pick, scene, 60, not_empty)
    if pick.chance(60):
        repeated = ("aten.expand.default", ((2, *scene.values[name].shape),))
        op, args = repeated if pick.chance(40) else ("aten.alias.default", ())
        name = scene.call(op, Ref(name), *args)[0]
        name = name if pick.chance(50) else any_view(pick, scene, name)
    room = capacity(scene.values[name])
    length = pick.integer(1, max(min(room, 4), 1))
    start = pick.integer(0, max(room - length, 0))
    strided = scene.call("aten.as_strided.default", Ref(name), (length,), (1,), start)[0]
    if pick.chance(40):
        overwrite(pick, scene, pick.one((strided, name)))
    scene.wants(strided, fresh(pick, scene, strided))


@VIEW_SCENARIOS.add("x.copy_(where(x == y, x, y))", "masked writes")
def where_copied(pick: Pick, scene: Scene) -> None:
    """A choice between a tensor and new values is copied into the tensor."""
    name = some(pick, scene, not_empty)
    tensor = scene.values[name]
    new = fresh(pick, scene, some(pick, scene, like(tensor)))
    mask = scene.call("aten.eq.Tensor", Ref(name), Ref(new))[0]
    if pick.chance(30):
        mask = scene.call("aten.logical_not.default", Ref(mask))[0]
    order = (name, new) if pick.chance(50) else (new, name)
    chosen = scene.call("aten.where.self", Ref(mask), *map(Ref, order))[0]
    scene.call("aten.copy_.default", Ref(name), Ref(chosen))
    scene.wants(chosen)


@VIEW_SCENARIOS.add("y = x + 1; z = y.relu_(); return z * y", "saved-input-written, #113930")
def updated_then_used(pick: Pick, scene: Scene) -> None:
    """An in-place op whose result is used at once, and its operand later, as in a layer."""
    name = some_or_new(pick, scene, 60, lambda tensor: tensor.is_floating_point())
    op = pick.one(("aten.relu_.default", "aten.sigmoid_.default", "aten.tanh_.default"))
    result = scene.call(op, Ref(name), named=True)[0]
    scene.wants(combine(pick, scene, result, name), result)


@VIEW_SCENARIOS.add("x.copy_(y.double()); y.zero_()", "lost-strides")
def copy_between_dtypes(pick: Pick, scene: Scene) -> None:
    """A copy from a tensor of another dtype, and then a write to this source."""
    target = some(pick, scene, not_empty)
    shape, dtype = scene.values[target].shape, scene.values[target].dtype
    if dtype.is_complex or dtype == torch.bool:
        raise NoChoice
    source = some(pick, scene, lambda tensor: tensor.shape == shape and not tensor.is_complex())
    source = convert(scene, source, pick.one((torch.float32, torch.int64, torch.float64)))
    if scene.values[source].dtype == dtype:
        raise NoChoice
    scene.call("aten.copy_.default", Ref(target), Ref(source))
    overwrite(pick, scene, source)
    scene.wants(fresh(pick, scene, target))


# --- inputs: what is written and returned of them -------------------------------------------------

INPUT_SCENARIOS = ScenarioTable()


@INPUT_SCENARIOS.add("t = y + 1; x.copy_(t); use(t)", "the epilogue")
def copy_into_input(pick: Pick, scene: Scene) -> None:
    """Compute something and copy it into an input, as an epilogue does.

    Later instructions may still use the computed value.
    """
    target = some_input(pick, scene)
    value = fresh(pick, scene, some(pick, scene, like(scene.values[target])))
    scene.call("aten.copy_.default", Ref(target), Ref(value), named=pick.chance(30))


@INPUT_SCENARIOS.add("t = x.clone(); x.add_(1); x.copy_(z); y.copy_(t)", "copy-of-written-input")
def copies_beside_a_clone(pick: Pick, scene: Scene) -> None:
    """A clone of an input, the input written several times, and the clone read in between."""
    name = some_input(pick, scene)
    saved = scene.call("aten.clone.default", Ref(name))[0]
    for _ in range(pick.integer(1, 3)):
        if pick.chance(50):
            overwrite(pick, scene, name)
        else:
            source = fresh(pick, scene, some(pick, scene, like(scene.values[name])))
            scene.call("aten.copy_.default", Ref(name), Ref(source))
    others = [view.name for view in scene.inputs if view.name != name]
    fitting = [other for other in others if like(scene.values[name])(scene.values[other])]
    if fitting and pick.chance(60):
        scene.call("aten.copy_.default", Ref(pick.one(fitting)), Ref(saved))
    scene.wants(saved)


@INPUT_SCENARIOS.add(
    "x.add_(1); y.mul_(2); return y[:1], x",
    "renumbered-input, tangents-of-merged-inputs, write-to-float64-number",
)
def several_inputs_written(pick: Pick, scene: Scene) -> None:
    """All inputs are written, and some are returned, themselves or as views."""
    names = [view.name for view in scene.inputs]
    for name in names if pick.chance(60) else names[:1]:
        write_somewhere(pick, scene, name)
    returned = pick.one(names)
    if pick.chance(50):
        returned = any_view(pick, scene, returned)
    scene.wants(returned, pick.one(names))


@INPUT_SCENARIOS.add("x.add_(1); a, b = x.split(1); return a, b", "multi-output-view-of-written")
def parts_of_written(pick: Pick, scene: Scene) -> None:
    """The parts of an input that is written before or after the split."""
    name = some_input(pick, scene, has_rows)
    early = pick.chance(50)
    if early:
        write_somewhere(pick, scene, name)
    rows = scene.values[name].shape[0]
    splits = [("aten.chunk.default", (2,)), ("aten.split.Tensor", ((rows + 1) // 2,))]
    op, args = pick.one(splits if rows > 3 else [*splits, ("aten.unbind.int", ())])
    parts = scene.call(op, Ref(name), *args)
    if not early or pick.chance(30):
        write_somewhere(pick, scene, name)
    scene.wants(*parts[:2])


@INPUT_SCENARIOS.add(
    "x.add_(1); a = x * 2; b = x * 3; return a, b, b.view(2)", "renumbered-outputs"
)
def views_of_outputs(pick: Pick, scene: Scene) -> None:
    """Outputs that are views of other outputs, and a write to an input."""
    name = some_input(pick, scene)
    if pick.chance(60):
        write_somewhere(pick, scene, name)
    first, second = fresh(pick, scene, name), fresh(pick, scene, name)
    viewed = pick.one((first, second))
    view = same_view(pick, scene, viewed) if pick.chance(50) else any_view(pick, scene, viewed)
    scene.wants(first, second, view)


@INPUT_SCENARIOS.add("a = -x; b = a * y; x.add_(1); return b", "recomputed-from-written")
def input_read_twice(pick: Pick, scene: Scene) -> None:
    """A product of an input with itself or another, and then a write to the input.

    The gradient of the product needs the values from before the write.
    """
    name = some_input(pick, scene)
    changed = fresh(pick, scene, name)
    partner = pick.one(scene.newest_first(like(scene.values[changed])))
    product = combine(pick, scene, changed, partner)
    write_somewhere(pick, scene, name)
    scene.wants(product)
