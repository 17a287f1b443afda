"""Aliasing scenarios: situations in which functionalization and reinplacing go wrong.

Each scenario adds a few instructions to a scene, or raises `NoChoice` if nothing there fits. The
rest of the program is drawn around it at random. Random programs alone rarely contain one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import torch

from generators.features import Features
from generators.scene import NoChoice, Pick, Scene
from programs.layouts import capacity
from programs.program import Argument, Ref
from programs.regions import Region, overlap

Scenario: TypeAlias = Callable[[Pick, Scene, Features], None]
OpOn: TypeAlias = tuple[
    str, tuple[Argument, ...]
]  # an op, and its arguments after the first tensor


def _some(
    pick: Pick, scene: Scene, accepts: Callable[[torch.Tensor], bool] = lambda tensor: True
) -> str:
    return pick.one(scene.newest_first(accepts))


def _fresh(pick: Pick, scene: Scene, name: str) -> str:
    """A new tensor like the named one, with other values."""
    if scene.values[name].dtype == torch.bool:
        return scene.call("aten.logical_not.default", Ref(name))[0]
    if pick.chance(30):
        return scene.call("aten.neg.default", Ref(name))[0]
    return scene.call("aten.add.Scalar", Ref(name), pick.integer(1, 3))[0]


def _overwrite(pick: Pick, scene: Scene, name: str) -> None:
    """Change the named tensor in place, by one of the plainest ops."""
    stores: list[OpOn] = [("aten.zero_.default", ()), ("aten.fill_.Scalar", (1,))]
    if scene.values[name].dtype != torch.bool:
        stores = [
            ("aten.add_.Scalar", (1,)),
            ("aten.mul_.Scalar", (2,)),
            ("aten.neg_.default", ()),
            *stores,
        ]
    op, args = pick.one(stores)
    scene.call(op, Ref(name), *args, named=pick.chance(30))


def _not_empty(tensor: torch.Tensor) -> bool:
    return tensor.numel() > 0


def _shaped_like(tensor: torch.Tensor) -> Callable[[torch.Tensor], bool]:
    return lambda other: other.shape == tensor.shape


def no_op_view(pick: Pick, scene: Scene, features: Features) -> None:
    """A view that shows all of its base unchanged, and then a write through either.

    A pass may remove such a view, but not the alias.
    """
    name = _some(pick, scene)
    shape = tuple(scene.values[name].shape)
    views: list[OpOn] = [
        ("aten.alias.default", ()),
        ("aten.view.default", (shape,)),
        ("aten.expand.default", (shape,)),
        ("aten.permute.default", (tuple(range(len(shape))),)),
        ("aten.detach.default", ()),
    ]
    if shape:  # a 0-d tensor has no dimension to slice
        views.append(("aten.slice.Tensor", (0, 0, 2**63 - 1, 1)))
    op, args = pick.one(views)
    view = scene.call(op, Ref(name), *args)[0]
    _overwrite(pick, scene, pick.one((view, name)))


def self_overlap(pick: Pick, scene: Scene, features: Features) -> None:
    """A view that shows an element more than once, and a store of one value through it.

    It is drawn less often than the other scenarios, because it fails in most targets, and always in
    the same way.
    """
    if not pick.chance(25):
        raise NoChoice
    name = _some(pick, scene, _not_empty)
    tensor = scene.values[name]
    views: list[OpOn] = [("aten.expand.default", ((3, *tensor.shape),))]
    if tensor.dim() and tensor.shape[0] >= 2:
        views.append(("aten.unfold.default", (0, 2, 1)))
    if capacity(tensor) >= 3:
        views.append(("aten.as_strided.default", ((2, 2), (1, 1), 0)))
    op, args = pick.one(views)
    view = scene.call(op, Ref(name), *args)[0]
    # One value everywhere is defined in eager; different values, or an update, are not.
    stores: list[OpOn] = [("aten.zero_.default", ()), ("aten.fill_.Scalar", (1,))]
    store, value = pick.one(stores)
    scene.call(store, Ref(view), *value)


def write_between_reads(pick: Pick, scene: Scene, features: Features) -> None:
    """Read a tensor, write one of its aliases, read it again."""
    name = _some(pick, scene)
    # If both reads are the same op, a pass must not merge them across the write.
    _fresh(pick, scene, name)
    _overwrite(pick, scene, pick.one((*scene.aliases(name), name)))
    _fresh(pick, scene, name)


def overlapping_slices(pick: Pick, scene: Scene, features: Features) -> None:
    """Two slices of one base overlap or touch; one is written, often with data of the other."""
    name = _some(pick, scene, lambda tensor: tensor.dim() >= 1 and tensor.shape[0] >= 3)
    size = scene.values[name].shape[0]
    middle = size // 2
    # The slices touch, or overlap by one row.
    start = pick.one((middle, max(middle - 1, 0)))
    low = scene.call("aten.slice.Tensor", Ref(name), 0, 0, middle)[0]
    high = scene.call("aten.slice.Tensor", Ref(name), 0, start, start + middle)[0]
    if pick.chance(50):
        # Through a new tensor: a copy between overlapping slices is undefined in eager.
        source = _fresh(pick, scene, high)
        scene.call("aten.copy_.default", Ref(low), Ref(source))
    else:
        _overwrite(pick, scene, low)
    if pick.chance(50):
        _overwrite(pick, scene, high)


def scatter_chain(pick: Pick, scene: Scene, features: Features) -> None:
    """What functionalization emits for a write through a view: view, change, scatter back.

    Reinplacing turns the scatter into a write again. A second round uses the result of the first.
    """
    base = _some(pick, scene, lambda tensor: tensor.dim() >= 1 and tensor.shape[0] >= 2)
    # A pass may overwrite a new tensor in place, but rarely an input.
    if pick.chance(70):
        base = _fresh(pick, scene, base)
    for _ in range(pick.integer(1, 2)):
        view_op, scatter_op, args = pick.one(
            (
                ("aten.select.int", "aten.select_scatter.default", (0, pick.integer(0, 1))),
                ("aten.slice.Tensor", "aten.slice_scatter.default", (0, pick.integer(0, 1), 2)),
                ("aten.diagonal.default", "aten.diagonal_scatter.default", (0, 0, 1)),
            )
        )
        view = scene.call(view_op, Ref(base), *args)[0]
        changed = _fresh(pick, scene, view)
        # A scatter into another base than the view's must stay a scatter.
        into = base if pick.chance(70) else _some(pick, scene, _shaped_like(scene.values[base]))
        base = scene.call(scatter_op, Ref(into), Ref(changed), *args)[0]


def copy_into_input(pick: Pick, scene: Scene, features: Features) -> None:
    """Compute something and copy it into an input, as an epilogue does.

    Later instructions may still use the value itself.
    """
    target = pick.one([view.name for view in scene.inputs])
    shape, dtype = scene.values[target].shape, scene.values[target].dtype
    like = _some(pick, scene, lambda tensor: tensor.shape == shape and tensor.dtype == dtype)
    value = _fresh(pick, scene, like)
    scene.call("aten.copy_.default", Ref(target), Ref(value), named=pick.chance(30))


def swap(pick: Pick, scene: Scene, features: Features) -> None:
    """Exchange the contents of two tensors with the help of a clone.

    If a pass removes the clone, the second copy reads what the first one wrote.
    """
    first = _some(pick, scene)
    tensor = scene.values[first]
    region = Region.of(tensor)

    def fits(other: torch.Tensor) -> bool:
        alike = other.shape == tensor.shape and other.dtype == tensor.dtype
        return alike and not overlap(Region.of(other), region)

    second = _some(pick, scene, fits)
    saved = scene.call("aten.clone.default", Ref(first))[0]
    scene.call("aten.copy_.default", Ref(first), Ref(second))
    scene.call("aten.copy_.default", Ref(second), Ref(saved))


def operands_alias(pick: Pick, scene: Scene, features: Features) -> None:
    """One call with two operands that alias, often the same tensor twice."""
    first = _some(pick, scene, lambda tensor: tensor.dtype != torch.bool)
    # A pass may overwrite a new tensor in place, unless the other operand reads it.
    if pick.chance(60):
        first = _fresh(pick, scene, first)
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


def return_overwritten(pick: Pick, scene: Scene, features: Features) -> None:
    """Values with an alias that is overwritten afterwards.

    Outputs are drawn from the newest values, so the program often returns them.
    """
    base = _fresh(pick, scene, _some(pick, scene))
    view = scene.call("aten.alias.default", Ref(base))[0]
    changed = _fresh(pick, scene, base)
    _overwrite(pick, scene, pick.one((changed, view, base)))


SCENARIO_DRAWERS: dict[str, Scenario] = {
    "no-op views": no_op_view,
    "self-overlap": self_overlap,
    "write between reads": write_between_reads,
    "overlapping slices": overlapping_slices,
    "scatter chain": scatter_chain,
    "copy into input": copy_into_input,
    "swap": swap,
    "aliased operands": operands_alias,
    "return overwritten": return_overwritten,
}
