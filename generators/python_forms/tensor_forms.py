"""Views, writes and values of tensors, in the syntax that people use."""

from __future__ import annotations

import torch

from aliasproof.generators.scene import NoChoice
from aliasproof.generators.sketch import Sketch, form

EVERYWHERE = "both"


# --- expressions ----------------------------------------------------------------------------------


def view_of(sketch: Sketch, name: str) -> str:
    """An expression for a view of a tensor."""
    tensor, pick = sketch.at(name), sketch.pick
    choices = [f"{name}[None]", f"{name}.view(-1)", f"{name}.detach()", f"{name}.unsqueeze(0)"]
    choices += [f"{name}.view_as({name})", f"{name}.expand(2, {_sizes(tensor)})", f"{name}[...]"]
    # These return the tensor itself, a view or a copy, depending on its layout.
    choices += [f"{name}.contiguous()", f"{name}.squeeze()", f"{name}.to({tensor.dtype})"]
    choices += [f"{name}.expand_as({name})", f"torch.atleast_1d({name})", f"{name}.ravel()"]
    if tensor.dim():
        size = tensor.shape[0]
        choices += [f"{name}[0]", f"{name}[..., 0]", f"{name}.flatten()"] * (size > 0)
        choices += [f"{name}[1:]", f"{name}[:-1]", f"{name}[::2]"] * (size > 1)
        choices += [f"{name}[-1]", f"{name}.narrow(0, 1, 1)"] * (size > 1)
        choices += [f"{name}.unfold(0, 2, 1)", f"{name}[{size // 2}:]"] * (size > 1)
        choices += [f"{name}.reshape({_sizes(tensor)})", f"{name}[:]"]
    if tensor.dim() > 1:
        choices += [f"{name}.t()", f"{name}.T"] * (tensor.dim() == 2)
        choices += [f"{name}.transpose(0, 1)", f"{name}[:, 1:]", f"{name}[:, 0]"]
        order = ", ".join(map(str, reversed(range(tensor.dim()))))
        choices += [f"{name}.diagonal()", f"{name}.permute({order})"]
        choices += [f"{name}[0, 1:]"]
    return pick.one(choices)


def _sizes(tensor: torch.Tensor) -> str:
    return ", ".join(map(str, tensor.shape)) or "1"


def number(sketch: Sketch, tensor: torch.Tensor) -> str:
    """A Python number that fits the dtype."""
    if tensor.dtype.is_floating_point:
        return sketch.pick.one(["1", "2", "0.5", "-1.0", "3"])
    return "True" if tensor.dtype is torch.bool else sketch.pick.one(["1", "2", "3"])


def operand(sketch: Sketch, like: str) -> str:
    """A number, a tensor that broadcasts to the shape of another, or a view of such a tensor."""
    tensor, pick = sketch.at(like), sketch.pick
    if pick.chance(30):
        return number(sketch, tensor)
    other = sketch.tensor(lambda it: _broadcasts(it, tensor))
    return f"{other}.flip(0)" if sketch.at(other).dim() and pick.chance(10) else other


def _broadcasts(tensor: torch.Tensor, to: torch.Tensor) -> bool:
    try:
        fits = torch.broadcast_shapes(tensor.shape, to.shape) == to.shape
    except RuntimeError:
        return False
    return fits and torch.can_cast(tensor.dtype, to.dtype)


def part_of(sketch: Sketch) -> str:
    """A tensor, or a view of it."""
    name = sketch.tensor()
    return view_of(sketch, name) if sketch.pick.chance(40) else name


# --- views and values -----------------------------------------------------------------------------


@form("tensors", place=EVERYWHERE, weight=4)
def view(sketch: Sketch) -> None:
    name = sketch.tensor()
    sketch.add(f"{sketch.fresh('v')} = {view_of(sketch, name)}")


@form("tensors", place=EVERYWHERE, weight=3)
def arithmetic(sketch: Sketch) -> None:
    name = sketch.tensor(lambda it: it.dtype is not torch.bool)
    sign = sketch.pick.one(["+", "*", "-"])
    sketch.add(f"{sketch.fresh()} = {name} {sign} {operand(sketch, name)}")


@form("tensors", place=EVERYWHERE)
def copy(sketch: Sketch) -> None:
    name = sketch.tensor()
    made = sketch.pick.one(["clone()", "contiguous()", "neg()", "sum(0)", "flip(0)", "float()"])
    sketch.add(f"{sketch.fresh()} = {name}.{made}")


@form("tensors")
def joined(sketch: Sketch) -> None:
    name = sketch.tensor(lambda it: it.dim() > 0)
    shape = sketch.at(name).shape[1:]
    other = sketch.tensor(lambda it: it.dim() > 0 and it.shape[1:] == shape)
    sketch.add(f"{sketch.fresh()} = torch.cat([{name}, {other}])")


@form("tensors")
def selected(sketch: Sketch) -> None:
    name = sketch.tensor(lambda it: it.dtype.is_floating_point)
    sketch.add(f"{sketch.fresh()} = torch.where({name} > 2, {name}, {operand(sketch, name)})")


@form("tensors", place=EVERYWHERE)
def another_name(sketch: Sketch) -> None:
    sketch.add(f"{sketch.fresh('n')} = {sketch.tensor()}")


@form("tensors")
def new_tensor(sketch: Sketch) -> None:
    name = sketch.tensor()
    made = sketch.pick.one(["zeros_like", "ones_like", "empty_like"])
    fresh = sketch.fresh()
    lines = [f"{fresh} = torch.{made}({name})"]
    lines += [f"{fresh}.copy_({name})"] * (made == "empty_like")
    sketch.add(*lines)


@form("tensors", place=EVERYWHERE)
def made_of_tensor(sketch: Sketch) -> None:
    """Make a tensor of another one by an old or simple function: a copy, or the tensor itself."""
    name, other = sketch.tensor(), sketch.tensor()
    made = sketch.pick.one(["tensor", "as_tensor", "asarray", "Tensor", "FloatTensor"])
    methods = [f"{name}.{it}({other})" for it in ("new_tensor", "new", "type_as")]
    sketch.add(f"{sketch.fresh()} = {sketch.pick.one([f'torch.{made}({name})', *methods])}")


# --- writes ---------------------------------------------------------------------------------------


@form("writes", place=EVERYWHERE, weight=6)
def method_in_place(sketch: Sketch) -> None:
    name = sketch.tensor()
    target = view_of(sketch, name) if sketch.pick.chance(50) else name
    kind = sketch.pick.one(["add_", "mul_", "sub_", "copy_", "zero_", "fill_", "neg_", "clamp_"])
    given = {"zero_": "", "neg_": "", "clamp_": "max=2"}
    argument = given[kind] if kind in given else operand(sketch, name)
    if kind in ("fill_", "copy_"):
        argument = number(sketch, sketch.at(name)) if kind == "fill_" else sketch.tensor()
    sketch.add(f"{target}.{kind}({argument})")


@form("writes", place=EVERYWHERE, weight=4)
def store_by_index(sketch: Sketch) -> None:
    name = sketch.tensor(lambda it: it.dim() > 0)
    index = _index(sketch, name)
    sign = sketch.pick.one(["=", "=", "+=", "*=", "-="])
    value = number(sketch, sketch.at(name)) if sketch.pick.chance(40) else sketch.tensor()
    sketch.add(f"{name}[{index}] {sign} {value}")


def _index(sketch: Sketch, name: str) -> str:
    tensor = sketch.at(name)
    choices = ["0", "-1", "1:", ":-1", "::2", "...", ":", "None", "[0]"]
    choices += [":, 0", ":, 1:", "1:, ::2", "..., -1", "0, 1"] * (tensor.dim() > 1)
    return sketch.pick.one(choices)


@form("writes")
def store_by_mask(sketch: Sketch) -> None:
    name = sketch.tensor(lambda it: it.dim() > 0 and it.dtype is not torch.bool)
    sketch.add(f"{name}[{name} > 1] = {number(sketch, sketch.at(name))}")


@form("writes", place=EVERYWHERE, weight=2)
def augmented_assignment(sketch: Sketch) -> None:
    name = sketch.local()
    sign = sketch.pick.one(["+=", "*=", "-="])
    sketch.add(f"{name} {sign} {operand(sketch, name)}")


@form("writes")
def out_argument(sketch: Sketch) -> None:
    name = sketch.tensor(lambda it: not it.requires_grad)
    call = sketch.pick.one(["add", "mul", "sub", "maximum"])
    shape = sketch.at(name).shape
    one, other = (sketch.tensor(lambda it: it.shape == shape) for _ in range(2))
    sketch.add(f"torch.{call}({one}, {other}, out={name})")


@form("writes")
def swap(sketch: Sketch) -> None:
    name = sketch.tensor()
    shape = sketch.at(name).shape
    other = sketch.tensor(lambda it: it.shape == shape)
    if other == name:
        raise NoChoice
    old = sketch.fresh("old")
    sketch.add(f"{old} = {name}.clone()", f"{name}.copy_({other})", f"{other}.copy_({old})")


@form("writes")
def metadata_in_place(sketch: Sketch) -> None:
    name = sketch.tensor(lambda it: it.dim() > 0)
    kind = sketch.pick.one(
        ["t_()", "unsqueeze_(0)", "transpose_(0, -1)", "squeeze_()", "swapdims_(0, -1)"]
    )
    sketch.add(f"{name}.{kind}")


@form("writes")
def scatter_in_place(sketch: Sketch) -> None:
    name = sketch.tensor(lambda it: it.dim() > 0 and it.dtype.is_floating_point)
    row = sketch.tensor(lambda it: it.shape == sketch.at(name).shape)
    kind = sketch.pick.one(["index_copy_", "index_add_"])
    sketch.add(f"{name}.{kind}(0, torch.arange({sketch.at(name).shape[0]}), {row})")
