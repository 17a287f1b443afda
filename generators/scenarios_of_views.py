"""Scenarios of functionalization and AOTAutograd: views, writes through them, and inputs.

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
    like,
    not_empty,
)
from aliasproof.generators.scene import NoChoice
from aliasproof.ir.regions import capacity

VIEW_SCENARIOS = ScenarioTable()


@VIEW_SCENARIOS.add("v = x.view(x.shape); v.add_(1)", "#120585", name="no-op views")
def no_op_views(steps: Steps) -> None:
    """A view of its whole base, unchanged, and then a write through either.

    A pass may remove the view, but must keep the alias.
    """
    name = steps.some()
    view = steps.same_view(name)
    steps.overwrite(steps.one((view, name)))


@VIEW_SCENARIOS.add(
    "x.expand(3, 4).zero_()",
    "expand-inverse, unfold-inverse, overlapping-as-strided",
    name="self-overlap",
)
def self_overlap(steps: Steps) -> None:
    """A view that shows an element more than once, and a store of one value through the view.

    Drawn less often than other scenarios, because it fails in most targets, and always in the same
    way.
    """
    if not steps.chance(25):
        raise NoChoice
    name = steps.some(not_empty)
    tensor = steps.at(name)
    views: list[OpOn] = [("aten.expand.default", ((3, *tensor.shape),))]
    if tensor.dim() and tensor.shape[0] >= 2:
        views.append(("aten.unfold.default", (0, 2, 1)))
    if capacity(tensor) >= 3:
        views.append(("aten.as_strided.default", ((2, 2), (1, 1), 0)))
    view = steps.one_call(name, views)
    # Storing one value everywhere is defined in eager; different values, or an update, are not.
    stores: list[OpOn] = [("aten.zero_.default", ()), ("aten.fill_.Scalar", (1,))]
    store, value = steps.one(stores)
    steps.call(store, view, *value)


@VIEW_SCENARIOS.add("a = x + 1; x.mul_(2); b = x + 1", "common subexpressions across a write")
def write_between_reads(steps: Steps) -> None:
    """Read a tensor, write one of its aliases, read it again."""
    name = steps.some()
    # If both reads are the same op, a pass must not merge them across the write.
    steps.fresh(name)
    steps.overwrite(steps.one((*steps.scene.aliases(name), name)))
    steps.fresh(name)


@VIEW_SCENARIOS.add("x[0:2].copy_(x[1:3] + 1); x[1:3].zero_()", "inverses of views")
def overlapping_slices(steps: Steps) -> None:
    """Two slices of one base overlap or touch; one is written, often with data of the other."""
    name = steps.some(lambda tensor: tensor.dim() >= 1 and tensor.shape[0] >= 3)
    size = steps.at(name).shape[0]
    middle = size // 2
    # The slices touch, or overlap by one row.
    start = steps.one((middle, max(middle - 1, 0)))
    low = steps.new("aten.slice.Tensor", name, 0, 0, middle)
    high = steps.new("aten.slice.Tensor", name, 0, start, start + middle)
    if steps.chance(50):
        # Through a new tensor: a copy between overlapping slices is undefined in eager.
        source = steps.fresh(high)
        steps.call("aten.copy_.default", low, source)
    else:
        steps.overwrite(low)
    steps.may_overwrite(50, high)


@VIEW_SCENARIOS.add("x[1:].copy_(x[:-1].clone())", "reads fused with a write")
def shift(steps: Steps) -> None:
    """Rows of a tensor move by one within the tensor.

    A copy of the rows is taken before the write; without it, the move is undefined in eager.
    """
    among = steps.some_input if steps.chance(50) else steps.some
    name = among(has_rows)
    ahead = steps.new("aten.slice.Tensor", name, 0, 1, OPEN_END)
    behind = steps.new("aten.slice.Tensor", name, 0, 0, -1)
    if steps.chance(50):
        ahead, behind = behind, ahead
    if steps.chance(50):
        saved = steps.new("aten.clone.default", behind)
    else:
        saved = steps.fresh(behind)
    write = "aten.copy_.default" if steps.chance(70) else "aten.add_.Tensor"
    steps.call(write, ahead, saved)


@VIEW_SCENARIOS.add("v = x[1:]; a = v + 1; v.mul_(2)", "vectorized loads at an offset")
def misaligned_slices(steps: Steps) -> None:
    """A slice that starts in the middle of a vector register is written and read."""
    name = steps.some(lambda tensor: has_rows(tensor) and tensor.shape[0] >= 3)
    size = steps.at(name).shape[0]
    start = steps.integer(1, min(3, size - 2))
    part = steps.new("aten.slice.Tensor", name, 0, start, steps.one((OPEN_END, size - 1)))
    read = steps.fresh(part)
    steps.overwrite(steps.one((part, name)))
    steps.combine(part, read)


@VIEW_SCENARIOS.add("w = x[::2]; x[1:].t()[0].zero_(); use(w)", "inverses of views")
def nested_views(steps: Steps) -> None:
    """Write through a view of a view; read the base and another view of it."""
    name = steps.some(has_rows)
    beside = steps.any_view(name)
    view = name
    for _ in range(steps.integer(2, 3)):
        view = steps.any_view(view)
    steps.write_somewhere(view)
    steps.wants(steps.fresh(beside), steps.fresh(name))


@VIEW_SCENARIOS.add("v = x.view(int16); v.add_(1); use(x)", "dtype-view-of-nothing, erased-input")
def view_of_other_dtype(steps: Steps) -> None:
    """Write through a view of another item size, or read through one after a write."""
    name = steps.some_or_new(40, not_empty)
    view = steps.viewed_as(name)
    written, read = (view, name) if steps.chance(50) else (name, view)
    steps.write_somewhere(written)
    steps.wants(steps.fresh(read), view)


@VIEW_SCENARIOS.add(
    "(x + 1).expand(2, 4).as_strided((3,), (1,), 1)", "as-strided-of-view, as-strided-of-new-base"
)
def strided_view(steps: Steps) -> None:
    """`as_strided` of a tensor or of a view; it counts from the start of the storage."""
    name = steps.some_or_new(60, not_empty)
    if steps.chance(60):
        repeated = ("aten.expand.default", ((2, *steps.at(name).shape),))
        op, args = repeated if steps.chance(40) else ("aten.alias.default", ())
        name = steps.new(op, name, *args)
        name = name if steps.chance(50) else steps.any_view(name)
    room = capacity(steps.at(name))
    length = steps.integer(1, max(min(room, 4), 1))
    start = steps.integer(0, max(room - length, 0))
    strided = steps.new("aten.as_strided.default", name, (length,), (1,), start)
    steps.may_overwrite(40, strided, name)
    steps.wants(strided, steps.fresh(strided))


@VIEW_SCENARIOS.add("x.copy_(where(x == y, x, y))", "masked writes")
def where_copied(steps: Steps) -> None:
    """A choice between a tensor and new values is copied into the tensor."""
    name = steps.some(not_empty)
    tensor = steps.at(name)
    new = steps.fresh(steps.some(like(tensor)))
    mask = steps.new("aten.eq.Tensor", name, new)
    if steps.chance(30):
        mask = steps.new("aten.logical_not.default", mask)
    order = (name, new) if steps.chance(50) else (new, name)
    chosen = steps.new("aten.where.self", mask, *order)
    steps.call("aten.copy_.default", name, chosen)
    steps.wants(chosen)


@VIEW_SCENARIOS.add("y = x + 1; z = y.relu_(); return z * y", "saved-input-written, #113930")
def updated_then_used(steps: Steps) -> None:
    """An in-place op whose result is used at once, and its operand later, as in a layer."""
    name = steps.some_or_new(60, lambda tensor: tensor.is_floating_point())
    op = steps.one(("aten.relu_.default", "aten.sigmoid_.default", "aten.tanh_.default"))
    result = steps.new(op, name, named=True)
    steps.wants(steps.combine(result, name), result)


@VIEW_SCENARIOS.add("x.copy_(y.double()); y.zero_()", "lost-strides")
def copy_between_dtypes(steps: Steps) -> None:
    """A copy from a tensor of another dtype, and then a write to this source."""
    target = steps.some(not_empty)
    shape, dtype = steps.at(target).shape, steps.at(target).dtype
    if dtype.is_complex or dtype == torch.bool:
        raise NoChoice
    source = steps.some(lambda tensor: tensor.shape == shape and not tensor.is_complex())
    source = steps.convert(source, steps.one((torch.float32, torch.int64, torch.float64)))
    if steps.at(source).dtype == dtype:
        raise NoChoice
    steps.call("aten.copy_.default", target, source)
    steps.overwrite(source)
    steps.wants(steps.fresh(target))


# --- inputs: what is written and returned of them -------------------------------------------------

INPUT_SCENARIOS = ScenarioTable()


@INPUT_SCENARIOS.add("t = y + 1; x.copy_(t); use(t)", "the epilogue")
def copy_into_input(steps: Steps) -> None:
    """Compute something and copy it into an input, as an epilogue does.

    Later instructions may still use the computed value.
    """
    target = steps.some_input()
    value = steps.fresh(steps.some(like(steps.at(target))))
    steps.call("aten.copy_.default", target, value, named=steps.chance(30))


@INPUT_SCENARIOS.add("t = x.clone(); x.add_(1); x.copy_(z); y.copy_(t)", "copy-of-written-input")
def copies_beside_a_clone(steps: Steps) -> None:
    """A clone of an input, the input written several times, and the clone read in between."""
    name = steps.some_input()
    saved = steps.new("aten.clone.default", name)
    for _ in range(steps.integer(1, 3)):
        if steps.chance(50):
            steps.overwrite(name)
        else:
            source = steps.fresh(steps.some(like(steps.at(name))))
            steps.call("aten.copy_.default", name, source)
    others = [view.name for view in steps.scene.inputs if view.name != name]
    fitting = [other for other in others if like(steps.at(name))(steps.at(other))]
    if fitting and steps.chance(60):
        steps.call("aten.copy_.default", steps.one(fitting), saved)
    steps.wants(saved)


@INPUT_SCENARIOS.add(
    "x.add_(1); y.mul_(2); return y[:1], x",
    "renumbered-input, tangents-of-merged-inputs, write-to-float64-number",
)
def several_inputs_written(steps: Steps) -> None:
    """All inputs are written, and some are returned, themselves or as views."""
    names = [view.name for view in steps.scene.inputs]
    for name in names if steps.chance(60) else names[:1]:
        steps.write_somewhere(name)
    returned = steps.one(names)
    if steps.chance(50):
        returned = steps.any_view(returned)
    steps.wants(returned, steps.one(names))


@INPUT_SCENARIOS.add("x.add_(1); a, b = x.split(1); return a, b", "multi-output-view-of-written")
def parts_of_written(steps: Steps) -> None:
    """The parts of an input that is written before or after the split."""
    name = steps.some_input(has_rows)
    early = steps.chance(50)
    if early:
        steps.write_somewhere(name)
    rows = steps.at(name).shape[0]
    splits = [("aten.chunk.default", (2,)), ("aten.split.Tensor", ((rows + 1) // 2,))]
    op, args = steps.one(splits if rows > 3 else [*splits, ("aten.unbind.int", ())])
    parts = steps.call(op, name, *args)
    if not early or steps.chance(30):
        steps.write_somewhere(name)
    steps.wants(*parts[:2])


@INPUT_SCENARIOS.add(
    "x.add_(1); a = x * 2; b = x * 3; return a, b, b.view(2)", "renumbered-outputs"
)
def views_of_outputs(steps: Steps) -> None:
    """Outputs that are views of other outputs, and a write to an input."""
    name = steps.some_input()
    steps.may_write(60, name)
    first, second = steps.fresh(name), steps.fresh(name)
    viewed = steps.one((first, second))
    view = steps.same_view(viewed) if steps.chance(50) else steps.any_view(viewed)
    steps.wants(first, second, view)


@INPUT_SCENARIOS.add("a = -x; b = a * y; x.add_(1); return b", "recomputed-from-written")
def input_read_twice(steps: Steps) -> None:
    """A product of an input with itself or another, and then a write to the input.

    The gradient of the product needs the values from before the write.
    """
    name = steps.some_input()
    changed = steps.fresh(name)
    partner = steps.one(steps.known(like(steps.at(changed))))
    product = steps.combine(changed, partner)
    steps.write_somewhere(name)
    steps.wants(product)
