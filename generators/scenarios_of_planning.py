"""Scenarios of memory planning: results that could be in other memory, and what forbids it.

Parts could be computed in their concatenation, results in a storage that is dead, or in a cache.
Each function adds a few instructions to a scene, or raises `NoChoice`.
"""

from __future__ import annotations

import torch

from aliasproof.generators.scenario_steps import (
    MEMORY_PLANNING,
    OPEN_END,
    REINPLACING,
    OpOn,
    ScenarioTable,
    any_view,
    combine,
    convert,
    fresh,
    has_rows,
    is_real,
    like,
    not_empty,
    overwrite,
    same_view,
    some,
    total,
)
from aliasproof.generators.scene import Pick, Scene
from aliasproof.ir.program import Ref

PLANNING_SCENARIOS = ScenarioTable()

_LAYERS = (MEMORY_PLANNING, REINPLACING)
# Dtypes by item size: a dead storage of one can hold the other.
_DTYPES = {4: (torch.float32, torch.int32), 8: (torch.float64, torch.int64, torch.complex64)}


def _use_again(pick: Pick, scene: Scene, *names: str) -> None:
    """Some of the values are overwritten, read, or returned afterwards; others are dead."""
    for name in names:
        kind = pick.integer(0, 7)
        if kind == 1:
            overwrite(pick, scene, name)
        elif kind == 2:
            scene.wants(fresh(pick, scene, name))
        elif kind == 3:
            scene.wants(name)


def _part(pick: Pick, scene: Scene, base: str, before: list[str]) -> str:
    """A tensor like `base`: computed, a view of what is computed, or made from those before."""
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
    """The concatenation of parts of one shape."""
    rank = scene.values[parts[0]].dim()
    op = "aten.cat.default" if rank and pick.chance(60) else "aten.stack.default"
    dim = pick.integer(0, rank - 1 if op == "aten.cat.default" else rank)
    return scene.call(op, tuple(map(Ref, parts)), dim)[0]


@PLANNING_SCENARIOS.add(
    "p = x + 1; q = p * 2; y = cat([p, q.t(), p]); p.zero_()",
    _LAYERS,
    "parts are computed in their concatenation",
)
def joined_parts(pick: Pick, scene: Scene) -> None:
    """A concatenation of parts that are computed before, and often used again."""
    base = some(pick, scene, not_empty)
    parts: list[str] = []
    for _ in range(pick.integer(2, 3)):
        parts.append(_part(pick, scene, base, parts))
    joined = _join(pick, scene, parts)
    _use_again(pick, scene, *dict.fromkeys(parts), base)
    scene.wants(joined)


@PLANNING_SCENARIOS.add(
    "c = cat([p, q]); return stack([c, c + 1]), cat([p, r])",
    _LAYERS,
    "parts are computed in their concatenation",
)
def nested_joins(pick: Pick, scene: Scene) -> None:
    """A concatenation whose parts are concatenations; one may be a part of both."""
    base = some(pick, scene, not_empty)
    first, second, third = (_part(pick, scene, base, []) for _ in range(3))
    inner = _join(pick, scene, [first, second])
    other = _part(pick, scene, inner, [])
    outer = _join(pick, scene, pick.one(([inner, other], [other, inner], [inner, inner])))
    again = _join(pick, scene, [first, third])
    _use_again(pick, scene, inner, first)
    scene.wants(again, outer)


@PLANNING_SCENARIOS.add(
    "y = constant_pad_nd(x + 1, [1, 2]); return y",
    _LAYERS,
    "parts are computed in their concatenation",
)
def padded_part(pick: Pick, scene: Scene) -> None:
    """A pad of a computed part, at some sides, also negative."""
    base = some(pick, scene, lambda tensor: tensor.dim() >= 1 and tensor.numel() > 0)
    part = _part(pick, scene, base, [])
    sides = pick.integer(1, scene.values[base].dim())
    pads = tuple(pick.one((0, 1, 2, 1, -1)) for _ in range(2 * sides))
    padded = scene.call("aten.constant_pad_nd.default", Ref(part), pads, pick.integer(0, 1))[0]
    _use_again(pick, scene, part)
    scene.wants(padded)


@PLANNING_SCENARIOS.add(
    "a, b = chunk(x + 1, 2); y = cat([a * 2, b])", _LAYERS, "parts are views of what is split"
)
def parts_go_on(pick: Pick, scene: Scene) -> None:
    """Parts of a computed tensor, of which some are changed and joined again."""
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
    _LAYERS,
    "a result takes over a storage that nobody reads any more",
)
def dead_storages(pick: Pick, scene: Scene) -> None:
    """Tensors of several sizes die; a later one could be where an earlier one was."""
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
    _LAYERS,
    "a result takes over a storage that nobody reads any more",
)
def broadcast_beside_dead(pick: Pick, scene: Scene) -> None:
    """A result that no operand is as large as; a dead tensor is as large, or larger."""
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
    "a = x + 1; m = a != 1; return m.to(int32) + 1",
    _LAYERS,
    "a storage is taken over in another dtype",
)
def dead_in_other_dtype(pick: Pick, scene: Scene) -> None:
    """Tensors of different dtypes with equally many bytes, one dead after the other."""
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
    _LAYERS,
    "opaque calls may keep or show the memory of their operands",
)
def opaque_between(pick: Pick, scene: Scene) -> None:
    """An operator of which a compiler knows nothing takes a part, or what could be reused."""
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
    """The cache with one more row; `row` has one element in dimension 0."""
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
    "c = index_copy(cache, 0, i, k); use(c[: i + 1]); cache.copy_(c)",
    _LAYERS,
    "a cache is updated in place",
)
def cache_with_new_rows(pick: Pick, scene: Scene) -> None:
    """A cache gets a row at a position, step by step; each step may read what is there by now."""
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


@PLANNING_SCENARIOS.add("w = cat([x[1:], k]); x.copy_(w)", _LAYERS, "a cache is updated in place")
def rolling_window(pick: Pick, scene: Scene) -> None:
    """A window drops its first row and gets a new one, step by step."""
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
    "a, b = f(x, y), x; a, b = f(a, b), a; x.copy_(a); y.copy_(b)",
    _LAYERS,
    "a cache is updated in place",
)
def double_buffers(pick: Pick, scene: Scene) -> None:
    """Two buffers swap: each step computes the one from the other, and both are stored at last."""
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
    _LAYERS,
    "any dead operand may hold the result",
)
def operands_die_together(pick: Pick, scene: Scene) -> None:
    """Several operands die at one call, and each could hold the result."""
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
