"""Scenarios of custom operators: several arguments that are written, on one base.

A compiler functionalizes a custom operator by its schema alone: it copies the arguments, calls it,
and restores views and aliases. Each function adds a few instructions to a scene, or raises
`NoChoice`. The table at the end lists them.
"""

from __future__ import annotations

from generators.scenario import CODE_GENERATION, FUNCTIONALIZATION, REINPLACING, Scenario
from generators.scenario_steps import (
    OPEN_END,
    any_view,
    fresh,
    has_rows,
    like,
    overwrite,
    some,
    write_somewhere,
)
from generators.scene import NoChoice, Pick, Scene
from programs.program import Ref
from programs.regions import Region, overlaps_itself


def _writable(pick: Pick, scene: Scene) -> str:
    """A value with rows that no element of memory shows twice, or a new tensor."""
    name = some(pick, scene, has_rows)
    if overlaps_itself(Region.of(scene.values[name])) or pick.chance(40):
        return fresh(pick, scene, name)
    return name


def custom_writes_on_one_base(pick: Pick, scene: Scene) -> None:
    """A call that writes two views of one tensor, which touch, overlap, or are the same."""
    base = _writable(pick, scene)
    size = scene.values[base].shape[0]
    start = pick.one((1, size - size // 2))
    low = scene.call("aten.slice.Tensor", Ref(base), 0, 0, size - start)[0]
    high = scene.call("aten.slice.Tensor", Ref(base), 0, start, OPEN_END)[0]
    first, second = (low, high) if pick.chance(60) else (high, low)
    kind = pick.integer(0, 3)
    if kind == 0:
        scene.call("aliasproof.add_both.default", Ref(first), Ref(second))
    elif kind == 1:
        scene.call("aliasproof.running_sum.default", (Ref(first), Ref(second), Ref(first)))
    elif kind == 2:
        third = pick.one(scene.newest_first(like(scene.values[first])))
        scene.call("aliasproof.store_sum.default", Ref(first), Ref(second), Ref(third))
    else:
        scene.call("aliasproof.add_twice.default", Ref(first), Ref(second))
    if pick.chance(40):
        write_somewhere(pick, scene, pick.one((base, low, high)))
    scene.wants(low, high, fresh(pick, scene, base))


def custom_write_into_copy(pick: Pick, scene: Scene) -> None:
    """A call that writes a copy or a view of it, while the original is read or written."""
    name = _writable(pick, scene)
    copy = scene.call("aten.clone.default", Ref(name))[0] if pick.chance(60) else name
    written = any_view(pick, scene, copy) if pick.chance(40) else copy
    partner = pick.one(scene.newest_first(like(scene.values[written])))
    kind = pick.integer(0, 2)
    if kind == 0:
        scene.wants(*scene.call("aliasproof.double.default", Ref(written), named=True))
    elif kind == 1:
        op = "aliasproof.add_into.default"
        scene.wants(*scene.call(op, Ref(partner), Ref(written), named=True))
    else:
        scene.call("aliasproof.add_both.default", Ref(written), Ref(partner))
    if pick.chance(40):
        scene.call("aten.copy_.default", Ref(name), Ref(copy))
    elif pick.chance(40):
        overwrite(pick, scene, name)
    scene.wants(copy, fresh(pick, scene, name))


def custom_read_of_layout(pick: Pick, scene: Scene) -> None:
    """A call that shows the strides of a tensor which was written, or is a view."""
    name = some(pick, scene, has_rows)
    if scene.values[name].dim() < 2:
        raise NoChoice
    if pick.chance(60):
        turned = scene.call("aten.transpose.int", Ref(name), 0, -1)[0]
        name = fresh(pick, scene, turned) if pick.chance(50) else turned
    if pick.chance(60):
        write_somewhere(pick, scene, name)
    shown = name if pick.chance(60) else any_view(pick, scene, name)
    scene.wants(scene.call("aliasproof.strides.default", Ref(shown))[0], name)


CUSTOM_SCENARIOS: tuple[Scenario, ...] = (
    Scenario(
        "custom writes on one base",
        "add_both(x[0:3], x[1:4]); use(x)",
        (FUNCTIONALIZATION, REINPLACING),
        "auto_functionalized: views of one base",
        custom_writes_on_one_base,
    ),
    Scenario(
        "custom write into copy",
        "t = x.clone(); a = double(t); x.copy_(t); use(x)",
        (REINPLACING,),
        "auto_functionalized: reinplaced arguments",
        custom_write_into_copy,
    ),
    Scenario(
        "custom read of layout",
        "y = x.t() + 1; y[i] = 5; strides(y)",
        (CODE_GENERATION, FUNCTIONALIZATION),
        "needs_exact_strides",
        custom_read_of_layout,
    ),
)
