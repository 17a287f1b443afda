"""Scenarios of custom operators: what they write aliases what is read or written elsewhere.

A compiler functionalizes such a call by a copy of the base of what it writes. Then it removes the
copy where it can. Each function adds a few instructions to a scene, or raises `NoChoice`.
"""

from __future__ import annotations

from aliasproof.generators.scenario_steps import (
    AOT_AUTOGRAD,
    FUNCTIONALIZATION,
    OPEN_END,
    REINPLACING,
    ScenarioTable,
    any_view,
    fresh,
    has_rows,
    like,
    not_empty,
    overwrite,
    some,
    some_input,
)
from aliasproof.generators.scene import NoChoice, Pick, Scene
from aliasproof.ir.program import Ref

CUSTOM_SCENARIOS = ScenarioTable()


@CUSTOM_SCENARIOS.add(
    "custom_op(x[:3], x[1:])  # mutates both",
    (FUNCTIONALIZATION, REINPLACING),
    "auto_functionalized_v2 restores the views of one base",
)
def two_writes_by_one_operator(pick: Pick, scene: Scene) -> None:
    """An operator writes two views of one base: they overlap, touch, or are the same one."""
    base = some(pick, scene, has_rows)
    # What is made here may be written in place; the memory of an input may not.
    if pick.chance(50):
        base = fresh(pick, scene, base)
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


@CUSTOM_SCENARIOS.add("y = x.clone(); custom_op(x, y)  # mutates x", (REINPLACING,), "#198031")
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
        # It reads the other operand again after it has written.
        scene.call("aliasproof.add_twice.default", Ref(target), Ref(other))
    scene.wants(fresh(pick, scene, other), clone)


@CUSTOM_SCENARIOS.add(
    "t = x + 1; custom_op(x[1:]); x.copy_(t)  # mutates x[1:]",
    (AOT_AUTOGRAD, REINPLACING),
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
