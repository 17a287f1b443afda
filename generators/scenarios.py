"""Situations in which functionalization and reinplacing go wrong, drawn on purpose.

Each scenario adds a few instructions to a scene, or raises `NoChoice` if nothing there fits. The
rest of the program is drawn around it at random.
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


def _some(
    pick: Pick, scene: Scene, accepts: Callable[[torch.Tensor], bool] = lambda tensor: True
) -> str:
    return pick.one(scene.newest_first(accepts))


def _fresh(pick: Pick, scene: Scene, name: str) -> str:
    """A new tensor like the named one, with other numbers."""
    if scene.values[name].dtype == torch.bool:
        return scene.call("aten.logical_not.default", Ref(name))[0]
    if pick.chance(30):
        return scene.call("aten.neg.default", Ref(name))[0]
    return scene.call("aten.add.Scalar", Ref(name), pick.integer(1, 3))[0]


def _overwrite(pick: Pick, scene: Scene, name: str) -> None:
    """Change the named tensor in place, in one of the plainest ways."""
    stores: list[tuple[str, tuple[Argument, ...]]] = [
        ("aten.zero_.default", ()),
        ("aten.fill_.Scalar", (1,)),
    ]
    if scene.values[name].dtype != torch.bool:
        stores = [
            ("aten.add_.Scalar", (1,)),
            ("aten.mul_.Scalar", (2,)),
            ("aten.neg_.default", ()),
            *stores,
        ]
    op, args = pick.one(stores)
    scene.call(op, Ref(name), *args, named=pick.chance(30))


def _numeric(tensor: torch.Tensor) -> bool:
    return tensor.numel() > 0


def _shaped_like(tensor: torch.Tensor) -> Callable[[torch.Tensor], bool]:
    return lambda each: each.shape == tensor.shape


def no_op_view(pick: Pick, scene: Scene, features: Features) -> None:
    """A view that shows all of its base unchanged, and then a write through either."""
    name = _some(pick, scene)
    shape = tuple(scene.values[name].shape)
    views: list[tuple[str, tuple[Argument, ...]]] = [
        ("aten.alias.default", ()),
        ("aten.view.default", (shape,)),
        ("aten.expand.default", (shape,)),
        ("aten.permute.default", (tuple(range(len(shape))),)),
        ("aten.detach.default", ()),
    ]
    if shape:
        views.append(("aten.slice.Tensor", (0, 0, 2**63 - 1, 1)))
    op, args = pick.one(views)
    view = scene.call(op, Ref(name), *args)[0]
    _overwrite(pick, scene, pick.one((view, name)))


def self_overlap(pick: Pick, scene: Scene, features: Features) -> None:
    """A view that shows an element more than once, and a store of one value through it.

    One that fits goes wrong in most targets, in the same way, so it is drawn less often than the
    others.
    """
    if not pick.chance(25):
        raise NoChoice
    name = _some(pick, scene, _numeric)
    tensor = scene.values[name]
    ways: list[tuple[str, tuple[Argument, ...]]] = [("aten.expand.default", ((3, *tensor.shape),))]
    if tensor.dim() and tensor.shape[0] >= 2:
        ways.append(("aten.unfold.default", (0, 2, 1)))
    if capacity(tensor) >= 3:
        ways.append(("aten.as_strided.default", ((2, 2), (1, 1), 0)))
    op, args = pick.one(ways)
    view = scene.call(op, Ref(name), *args)[0]
    store: tuple[str, tuple[Argument, ...]] = pick.one(
        (("aten.zero_.default", ()), ("aten.fill_.Scalar", (1,)))
    )
    scene.call(store[0], Ref(view), *store[1])


def write_between_reads(pick: Pick, scene: Scene, features: Features) -> None:
    """Read a tensor, write one of its aliases, read it again."""
    name = _some(pick, scene)
    _fresh(pick, scene, name)
    _overwrite(pick, scene, pick.one((*scene.aliases(name), name)))
    _fresh(pick, scene, name)


def overlapping_slices(pick: Pick, scene: Scene, features: Features) -> None:
    """Two overlapping or touching slices of one base; one is written, often with what the other holds."""
    name = _some(pick, scene, lambda each: each.dim() >= 1 and each.shape[0] >= 3)
    size = scene.values[name].shape[0]
    middle = size // 2
    start = pick.one((middle, max(middle - 1, 0)))
    low = scene.call("aten.slice.Tensor", Ref(name), 0, 0, middle)[0]
    high = scene.call("aten.slice.Tensor", Ref(name), 0, start, start + middle)[0]
    if pick.chance(50):
        source = _fresh(pick, scene, high)
        scene.call("aten.copy_.default", Ref(low), Ref(source))
    else:
        _overwrite(pick, scene, low)
    if pick.chance(50):
        _overwrite(pick, scene, high)


def scatter_chain(pick: Pick, scene: Scene, features: Features) -> None:
    """What functionalization emits for writes through views: view, change, scatter back, once or twice."""
    base = _some(pick, scene, lambda each: each.dim() >= 1 and each.shape[0] >= 2)
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
        into = base if pick.chance(70) else _some(pick, scene, _shaped_like(scene.values[base]))
        base = scene.call(scatter_op, Ref(into), Ref(changed), *args)[0]


def copy_into_input(pick: Pick, scene: Scene, features: Features) -> None:
    """Compute something and copy it into an input; the value itself stays in reach."""
    target = pick.one([each.name for each in scene.inputs])
    shape = scene.values[target].shape
    dtype = scene.values[target].dtype
    value = _fresh(
        pick, scene, _some(pick, scene, lambda each: each.shape == shape and each.dtype == dtype)
    )
    scene.call("aten.copy_.default", Ref(target), Ref(value), named=pick.chance(30))


def swap(pick: Pick, scene: Scene, features: Features) -> None:
    """Exchange the contents of two tensors by way of a clone."""
    first = _some(pick, scene)
    tensor = scene.values[first]
    region = Region.of(tensor)

    def fits(each: torch.Tensor) -> bool:
        return (
            each.shape == tensor.shape
            and each.dtype == tensor.dtype
            and not overlap(Region.of(each), region)
        )

    second = _some(pick, scene, fits)
    saved = scene.call("aten.clone.default", Ref(first))[0]
    scene.call("aten.copy_.default", Ref(first), Ref(second))
    scene.call("aten.copy_.default", Ref(second), Ref(saved))


def operands_alias(pick: Pick, scene: Scene, features: Features) -> None:
    """One call in which operands share memory with each other, often the same tensor twice."""
    first = _some(pick, scene, lambda each: each.dtype != torch.bool)
    if pick.chance(60):
        first = _fresh(pick, scene, first)
    shape = scene.values[first].shape
    if pick.chance(50):
        view = scene.call("aten.alias.default", Ref(first))[0]
    elif len(shape) == 2 and shape[0] == shape[1]:
        view = scene.call("aten.transpose.int", Ref(first), 0, 1)[0]
    else:
        view = first
    op = pick.one(("aten.mul.Tensor", "aten.add.Tensor", "aten.mul_.Tensor", "aten.add_.Tensor"))
    scene.call(op, Ref(first), Ref(view))


def return_overwritten(pick: Pick, scene: Scene, features: Features) -> None:
    """Values of which an alias is overwritten afterwards; outputs are drawn from the newest, so they are returned."""
    base = _fresh(pick, scene, _some(pick, scene))
    view = scene.call("aten.alias.default", Ref(base))[0]
    changed = _fresh(pick, scene, base)
    _overwrite(pick, scene, pick.one((changed, view, base)))


SCENARIOS: dict[str, Scenario] = {
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
