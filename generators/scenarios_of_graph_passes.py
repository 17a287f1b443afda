"""Scenarios of graph passes: what Inductor's patterns match, and what almost matches.

Each function adds a few instructions to a scene, or raises `NoChoice`.
"""

from __future__ import annotations

import torch

from aliasproof.generators.scenario_steps import (
    CODE_GENERATION,
    GRAPH_PASSES,
    OPEN_END,
    OpOn,
    ScenarioTable,
    a_number,
    combine,
    convert,
    fresh,
    has_rows,
    is_arithmetic,
    is_matrix,
    is_real,
    like,
    not_empty,
    overwrite,
    some,
    write_somewhere,
)
from aliasproof.generators.scene import NoChoice, Pick, Scene
from aliasproof.ir.program import Ref

GRAPH_PASS_SCENARIOS = ScenarioTable()


def copy_that_changes_nothing(pick: Pick, scene: Scene, name: str) -> str:
    """A new tensor that equals the named one."""
    tensor = scene.values[name]
    rank = tensor.dim()
    copies: list[OpOn] = [
        ("aten.clone.default", ()),
        ("aten._to_copy.default", ()),
        ("aten.repeat.default", ((1,) * rank,)),
        ("aten.constant_pad_nd.default", ((0, 0) if rank else (),)),
    ]
    if is_arithmetic(tensor):
        copies += [("aten.add.Tensor", (0,)), ("aten.mul.Tensor", (1,)), ("aten.sub.Scalar", (0,))]
        copies += [("aten.div.Tensor", (1,)), ("aten.pow.Tensor_Scalar", (1,))]
    if is_arithmetic(tensor) and not tensor.is_floating_point() and not tensor.is_complex():
        copies += [("aten.ceil.default", ()), ("aten.trunc.default", ())]
    if rank and pick.chance(20):
        return scene.call("aten.cat.default", (Ref(name),))[0]
    if rank and pick.chance(20):
        whole = (0, 0, OPEN_END)
        return scene.call("aten.slice_scatter.default", Ref(name), Ref(name), *whole)[0]
    op, args = pick.one(copies)
    return scene.call(op, Ref(name), *args)[0]


@GRAPH_PASS_SCENARIOS.add(
    "a = x.clone(); b = x + 0; x.add_(1); return a, b",
    (GRAPH_PASSES,),
    "collapsed-copies, copy-of-written-input; noop_registry in post_grad.py",
)
def equal_copies(pick: Pick, scene: Scene) -> None:
    """One or two copies of a tensor; tensor or copy is written, and both are returned."""
    name = some(pick, scene)
    if pick.chance(50):
        name = fresh(pick, scene, name)
    copies = [copy_that_changes_nothing(pick, scene, name) for _ in range(pick.integer(1, 2))]
    if pick.chance(60):
        write_somewhere(pick, scene, pick.one((name, *copies)))
    scene.wants(*copies, name)


def constant(pick: Pick, scene: Scene, name: str) -> str:
    """A tensor like the named one with the same number everywhere."""
    dtype = pick.one((None, None, torch.int64, torch.float64, torch.uint8))
    kind = pick.integer(0, 2)
    if kind == 2:
        number: int | float = pick.one((2, 100, 2.5))
        if scene.values[name].dtype in (torch.bool, torch.int64):
            number = 2
        return scene.call("aten.full_like.default", Ref(name), number, dtype=dtype)[0]
    op = ("aten.zeros_like.default", "aten.ones_like.default")[kind]
    return scene.call(op, Ref(name), dtype=dtype)[0]


@GRAPH_PASS_SCENARIOS.add(
    "y = x + zeros_like(x); x.mul_(2); return y",
    (GRAPH_PASSES,),
    "identity-arithmetic, negative-zero, zero-times-input",
)
def constant_operand(pick: Pick, scene: Scene) -> None:
    """A tensor combined with zeros, ones or another constant tensor, and then written."""
    name = some(pick, scene, is_arithmetic)
    if pick.chance(30):
        name = scene.call("aten.neg.default", Ref(name))[0]
    number = constant(pick, scene, some(pick, scene) if pick.chance(20) else name)
    op = pick.one(("aten.add.Tensor", "aten.mul.Tensor", "aten.sub.Tensor", "aten.div.Tensor"))
    order = (name, number) if pick.chance(70) else (number, name)
    result = scene.call(op, *map(Ref, order))[0]
    if pick.chance(50):
        write_somewhere(pick, scene, pick.one((name, result)))
    # Signs of zeros and overflow show in these.
    seen = ("aten.reciprocal.default", ()) if pick.chance(30) else ("aten.gt.Scalar", (0,))
    if is_real(scene.values[result]):
        scene.wants(scene.call(seen[0], Ref(result), *seen[1])[0])
    scene.wants(result)


@GRAPH_PASS_SCENARIOS.add(
    "full_like(x, 2).cumsum(0); ones_like(x) + full_like(y, 100)",
    (GRAPH_PASSES,),
    "cumsum-of-constant, cumsum-of-number, folded-numbers",
)
def folded_constants(pick: Pick, scene: Scene) -> None:
    """Constant tensors combined with each other or scanned, which a compiler computes itself."""
    name = constant(pick, scene, some(pick, scene))
    if pick.chance(50):
        name = scene.call("aten.cumsum.default", Ref(name), 0)[0]
    else:
        other = constant(pick, scene, some(pick, scene))
        name = scene.call(pick.one(("aten.add.Tensor", "aten.mul.Tensor")), Ref(name), Ref(other))[
            0
        ]
    scene.wants(name, scene.call("aten.gt.Scalar", Ref(name), 0)[0])


@GRAPH_PASS_SCENARIOS.add(
    "zeros_like(x).scatter(0, i, 1)", (GRAPH_PASSES,), "scatter-in-float32, scatter-into-number"
)
def scatter_into_constant(pick: Pick, scene: Scene) -> None:
    """A store of a number into a constant tensor, at indices along a dimension."""
    name = constant(pick, scene, some(pick, scene, not_empty))
    tensor = scene.values[name]
    shape = (1, *tensor.shape[1:]) if tensor.dim() else ()
    index = scene.call("aten.new_zeros.default", Ref(name), shape, dtype=torch.int64)[0]
    if has_rows(tensor) and pick.chance(50):
        index = scene.call("aten.add.Scalar", Ref(index), 1)[0]
    exact = tensor.dtype.is_floating_point and tensor.dtype.itemsize > 2
    number = pick.one((1, 3, 16777217.0)) if exact else 1
    op = pick.one(("aten.scatter.value", "aten.scatter_.value"))
    result = scene.call(op, Ref(name), 0, Ref(index), number, named=True)[0]
    scene.wants(result, name)


@GRAPH_PASS_SCENARIOS.add(
    "a, b = cat([x, y]).split(2); x.add_(1); return a, b",
    (GRAPH_PASSES,),
    "split-of-cat, promoting-cat",
)
def split_of_cat(pick: Pick, scene: Scene) -> None:
    """The parts of a `cat` are its operands, if sizes and dtypes agree."""
    first = some(pick, scene, has_rows)
    second = pick.one(scene.newest_first(like(scene.values[first])))
    if pick.chance(50):
        first, second = fresh(pick, scene, first), fresh(pick, scene, second)
    if pick.chance(25):
        second = convert(scene, second, pick.one((torch.int64, torch.float64)))
    dim = pick.integer(0, scene.values[first].dim() - 1)
    whole = scene.call("aten.cat.default", (Ref(first), Ref(second)), dim)[0]
    size = scene.values[first].shape[dim]
    sizes = (size, size) if pick.chance(75) else (size - 1, size + 1)
    parts = scene.call("aten.split_with_sizes.default", Ref(whole), sizes, dim)
    if pick.chance(50):
        write_somewhere(pick, scene, pick.one((first, *parts)))
    scene.wants(*parts)


@GRAPH_PASS_SCENARIOS.add(
    "y = cat(x.split([1, 3])); x.add_(1); return y", (GRAPH_PASSES,), "cat-of-split"
)
def cat_of_split(pick: Pick, scene: Scene) -> None:
    """The parts of a tensor put together again: all of them or some, in any order."""
    name = some(pick, scene, has_rows)
    if pick.chance(40):
        name = fresh(pick, scene, name)
    dim = pick.integer(0, scene.values[name].dim() - 1)
    size = scene.values[name].shape[dim]
    if size < 2:
        raise NoChoice
    first = pick.integer(1, size - 1)
    parts = scene.call("aten.split_with_sizes.default", Ref(name), (first, size - first), dim)
    orders = [parts, parts, parts[::-1], parts[:1], (*parts, parts[0])]
    whole = scene.call("aten.cat.default", tuple(map(Ref, pick.one(orders))), dim)[0]
    write_somewhere(pick, scene, pick.one((name, whole)))
    scene.wants(whole, name)


@GRAPH_PASS_SCENARIOS.add(
    "a = cat([x, y], 1); b = cat([a, a[:, :2]], 1); a.zero_()",
    (GRAPH_PASSES,),
    "cat_slice_cat in post_grad.py",
)
def cat_of_slice_of_cat(pick: Pick, scene: Scene) -> None:
    """A `cat` with a slice of another `cat`, and a write to one of them."""
    first = some(pick, scene, lambda tensor: tensor.dim() >= 2 and tensor.numel() > 0)
    second = pick.one(scene.newest_first(like(scene.values[first])))
    inner = scene.call("aten.cat.default", (Ref(first), Ref(second)), 1)[0]
    size = scene.values[first].shape[1]
    end = pick.one((size, size + 1, OPEN_END))
    part = scene.call("aten.slice.Tensor", Ref(inner), 1, pick.integer(0, 1), end)[0]
    outer = scene.call("aten.cat.default", (Ref(inner), Ref(part)), 1)[0]
    if pick.chance(60):
        write_somewhere(pick, scene, pick.one((inner, outer, first)))
    scene.wants(outer, inner)


@GRAPH_PASS_SCENARIOS.add("cat([x[0:0].double(), x])", (GRAPH_PASSES,), "cat-of-empties")
def cat_of_empties(pick: Pick, scene: Scene) -> None:
    """A `cat` with operands that have no elements, of the same dtype or another."""
    name = some(pick, scene, lambda tensor: tensor.dim() >= 1 and not tensor.is_complex())
    empty = scene.call("aten.slice.Tensor", Ref(name), 0, 0, 0)[0]
    if pick.chance(60):
        empty = convert(scene, empty, pick.one((torch.float64, torch.int64)))
    others = [empty, name, *([name] if pick.chance(50) else [])]
    result = scene.call("aten.cat.default", tuple(map(Ref, others)))[0]
    if pick.chance(50):
        write_somewhere(pick, scene, pick.one((name, result)))
    scene.wants(result)


@GRAPH_PASS_SCENARIOS.add(
    "y = x.permute(1, 0).permute(1, 0); y.add_(1); return x",
    (GRAPH_PASSES,),
    "pointless_view_pair, pointless_permute_pair, pointless_convert in joint_graph.py",
)
def undone_pair(pick: Pick, scene: Scene) -> None:
    """Two views or conversions of which the second undoes the first, and a write to either end."""
    name = some(pick, scene, not_empty)
    if pick.chance(40):
        name = fresh(pick, scene, name)
    tensor = scene.values[name]
    shape, rank = tuple(tensor.shape), tensor.dim()
    kind = pick.integer(0, 2)
    if kind == 0:
        there = scene.call("aten.reshape.default", Ref(name), (tensor.numel(),))[0]
        back = scene.call("aten.view.default", Ref(there), shape)[0]
    elif kind == 1:
        order = tuple(reversed(range(rank)))
        there = scene.call("aten.permute.default", Ref(name), order)[0]
        back = scene.call("aten.permute.default", Ref(there), order)[0]
    else:
        wide = pick.one((torch.float64, torch.float32, torch.float16))
        if not tensor.is_floating_point():
            raise NoChoice
        there = scene.call("aten._to_copy.default", Ref(name), dtype=wide)[0]
        back = scene.call("aten._to_copy.default", Ref(there), dtype=tensor.dtype)[0]
    write_somewhere(pick, scene, pick.one((name, there, back)))
    scene.wants(back, name)


@GRAPH_PASS_SCENARIOS.add(
    "a = x @ x.t(); b = a + 2 * y; a.zero_(); return b", (GRAPH_PASSES,), "pattern-keywords"
)
def fused_products(pick: Pick, scene: Scene) -> None:
    """Matrix products with a sum or another product, which a compiler merges into one call."""
    left = some(pick, scene, is_matrix)
    right = scene.call("aten.t.default", Ref(left))[0]
    first = scene.call("aten.mm.default", Ref(left), Ref(right))[0]
    shape, dtype = scene.values[first].shape, scene.values[first].dtype
    if pick.chance(40):
        other = scene.call("aten.mm.default", Ref(left), Ref(right))[0]
    else:
        added = scene.newest_first(lambda t: t.dtype == dtype and t.shape in (shape, shape[-1:]))
        other = pick.one(added)
    order = (Ref(first), Ref(other)) if pick.chance(70) else (Ref(other), Ref(first))
    factor = 2 if pick.chance(25) else 1
    result = scene.call("aten.add.Tensor", *order, alpha=factor)[0]
    if pick.chance(50):
        overwrite(pick, scene, pick.one((first, other, left)))
    scene.wants(result, *([first] if pick.chance(30) else []))


@GRAPH_PASS_SCENARIOS.add(
    "a = x / c; return a - a.amax(0, True)", (GRAPH_PASSES,), "softmax-of-integers"
)
def scaled_then_maximum(pick: Pick, scene: Scene) -> None:
    """A scaled tensor minus its maximum, as in a softmax; the scale may be an integer or 0."""
    name = some(pick, scene, lambda tensor: has_rows(tensor) and is_real(tensor))
    if not scene.values[name].is_floating_point() and pick.chance(40):
        name = convert(scene, name, torch.uint8)
    op = pick.one(("aten.mul.Tensor", "aten.div.Tensor"))
    if pick.chance(40):
        scaled = scene.call(op, Ref(name), pick.one((2, -1, 0.5)))[0]
    else:
        scale = a_number(pick, scene, name)
        if pick.chance(50):
            scale = convert(scene, scale, torch.float32)
        scaled = scene.call(op, Ref(name), Ref(scale))[0]
    largest = scene.call("aten.amax.default", Ref(scaled), (0,), True)[0]
    result = scene.call("aten.sub.Tensor", Ref(scaled), Ref(largest))[0]
    if pick.chance(40):
        overwrite(pick, scene, name)
    scene.wants(result)


@GRAPH_PASS_SCENARIOS.add(
    "a = x.amax(0); x.add_(1); b = x.amax()",
    (GRAPH_PASSES, CODE_GENERATION),
    "reuse_partial in post_grad.py",
)
def reductions_of_one(pick: Pick, scene: Scene) -> None:
    """A tensor is reduced along a dimension and as a whole; one may be made from the other."""
    name = some(pick, scene, lambda tensor: has_rows(tensor) and is_real(tensor))
    op = pick.one(("aten.amax.default", "aten.amin.default"))
    part = scene.call(op, Ref(name), (0,), pick.chance(30))[0]
    if pick.chance(40):
        write_somewhere(pick, scene, name)
    whole = scene.call(op, Ref(name))[0]
    scene.wants(part, whole)


@GRAPH_PASS_SCENARIOS.add(
    "a = x * 2; x.add_(1); b = x * 2; a.zero_()",
    (GRAPH_PASSES,),
    "common subexpressions across a write",
)
def repeated_expression(pick: Pick, scene: Scene) -> None:
    """The same computation twice, with a write to its operand or its result in between."""
    name = some(pick, scene, is_arithmetic)
    number = pick.integer(1, 2)
    op = pick.one(("aten.mul.Tensor", "aten.mul.Scalar"))
    first = scene.call(op, Ref(name), number)[0]
    if pick.chance(70):
        write_somewhere(pick, scene, pick.one((name, first)))
    second = scene.call(op, Ref(name), number)[0]
    if pick.chance(30):
        overwrite(pick, scene, pick.one((first, second)))
    scene.wants(first, second, combine(pick, scene, first, second))
