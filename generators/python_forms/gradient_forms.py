"""Gradients: modes, backward passes between writes, custom Functions, transforms."""

from __future__ import annotations

import torch

from aliasproof.generators.python_forms.class_texts import FUNCTIONS, tensor_count, text_of
from aliasproof.generators.python_forms.tensor_forms import EVERYWHERE, view_of
from aliasproof.generators.sketch import Block, Sketch, form


def is_real(tensor: torch.Tensor) -> bool:
    """Whether a tensor may require gradients."""
    return tensor.dtype.is_floating_point


def recorded(tensor: torch.Tensor) -> bool:
    """Whether autograd records operations on a tensor."""
    return tensor.requires_grad


def takes_hook(tensor: torch.Tensor) -> bool:
    """Whether a tensor may get a hook: torch crashes on a view that was written in another mode."""
    return tensor.requires_grad and tensor._base is None


@form("gradients", nests=True, place=EVERYWHERE, weight=3)
def without_gradients(sketch: Sketch) -> None:
    mode = sketch.pick.one(["no_grad", "no_grad", "enable_grad"])
    with sketch.inside(Block(f"with torch.{mode}():")):
        sketch.statements(2)


@form("gradients", place=EVERYWHERE)
def requires_gradients(sketch: Sketch) -> None:
    name = sketch.tensor(lambda it: is_real(it) and it.is_leaf)
    sketch.add(f"{name}.requires_grad_({sketch.pick.one(['', 'False'])})")


@form("gradients", place=EVERYWHERE, weight=3)
def backward(sketch: Sketch) -> None:
    name = sketch.tensor(recorded)
    kept = sketch.pick.one(["", "retain_graph=True"])
    both = f"({name}.sum() + {sketch.tensor(recorded)}.sum())"  # perhaps results of two calls
    loss = sketch.pick.one([f"{name}.sum()", f"({name} * {name}).sum()", both])
    sketch.add(f"{loss}.backward({kept})")


@form("gradients", place=EVERYWHERE, weight=2)
def gradient_of(sketch: Sketch) -> None:
    name, of = sketch.tensor(recorded), sketch.tensor(recorded)
    loss = sketch.pick.one([f"{name}.sum()", f"({name} * {name}).sum()"])
    more = sketch.pick.one(["", ", retain_graph=True", ", create_graph=True"])
    sketch.add(f"{sketch.fresh('g')}, = torch.autograd.grad({loss}, {of}{more})")


@form("gradients", weight=3)
def custom_function(sketch: Sketch) -> None:
    name = sketch.pick.one(list(FUNCTIONS))
    arguments = [sketch.tensor(is_real)]
    if tensor_count(name) == 2:
        shape = sketch.at(arguments[0]).shape
        arguments.append(sketch.tensor(lambda it: is_real(it) and it.shape == shape))
    call = f"{sketch.fresh('r')} = {name}.apply({', '.join(arguments)})"
    sketch.add(call, definition=text_of(name))


@form("gradients", place=EVERYWHERE)
def gradient_written(sketch: Sketch) -> None:
    name = sketch.tensor(lambda it: it.is_leaf and it.grad is not None)
    write = sketch.pick.one([".grad.zero_()", ".grad.mul_(2)", ".grad = None"])
    sketch.add(f"{name}{write}")


@form("gradients", place=EVERYWHERE)
def step_by_hand(sketch: Sketch) -> None:
    name = sketch.tensor(lambda it: it.is_leaf and it.grad is not None)
    step = sketch.pick.one(["sub_({}.grad)", "add_({}.grad, alpha=-0.5)", "copy_({}.grad)"])
    sketch.add(Block("with torch.no_grad():", [f"{name}.{step.format(name)}"]))


@form("gradients")
def hook(sketch: Sketch) -> None:
    name = sketch.tensor(takes_hook)
    does = sketch.pick.one(["g * 2", "g.mul_(2)", "g.add_(1)"])
    sketch.add(f"{name}.register_hook(lambda g: {does})")


@form("gradients", place=EVERYWHERE)
def view_of_leaf(sketch: Sketch) -> None:
    name = sketch.tensor(lambda it: it.requires_grad and it.is_leaf)
    sketch.add(f"{sketch.fresh('v')} = {view_of(sketch, name)}")


@form("gradients", place=EVERYWHERE)
def gradient_assigned(sketch: Sketch) -> None:
    """A gradient that has another name: the next backward pass accumulates into it."""
    name = sketch.tensor(lambda it: it.is_leaf and it.requires_grad)
    shape, dtype = sketch.at(name).shape, sketch.at(name).dtype
    other = sketch.tensor(lambda it: (it.shape, it.dtype) == (shape, dtype))
    given = sketch.pick.one([f"{other}.detach()", f"{other}.clone()", other])
    sketch.add(f"{name}.grad = {given}")


@form("gradients", place=EVERYWHERE)
def gradient_kept(sketch: Sketch) -> None:
    name = sketch.tensor(lambda it: it.is_leaf and it.grad is not None)
    sketch.add(f"{sketch.fresh('g')} = {name}.grad{sketch.pick.one(['', '[...]', '.detach()'])}")


@form("gradients", place=EVERYWHERE)
def accumulation(sketch: Sketch) -> None:
    """Two backward passes that accumulate into one gradient, which gets a name in between."""
    name = sketch.tensor(lambda it: it.is_leaf and it.requires_grad)
    first = sketch.pick.one([f"({name} * {name})", f"{name}.exp()", f"({name} * 2)"])
    kept = f"{sketch.fresh('g')} = {name}.grad"
    sketch.add(f"{first}.sum().backward()", kept, f"({name} * 3).sum().backward()")


@form("gradients", place=EVERYWHERE)
def double_backward(sketch: Sketch) -> None:
    name, fresh = sketch.tensor(recorded), sketch.fresh("g")
    value = sketch.pick.one([f"({name} ** 3).sum()", f"({name} * {name}).sum()"])
    first = f"{fresh}, = torch.autograd.grad({value}, {name}, create_graph=True)"
    second = sketch.pick.one([f"({fresh} * {fresh}).sum().backward()", f"{fresh}.sum().backward()"])
    write = [f"{fresh}.detach().mul_(2)"] * sketch.pick.chance(30)
    sketch.add(first, *write, second)


@form("gradients", place=EVERYWHERE)
def detached_in_place(sketch: Sketch) -> None:
    name = sketch.tensor(recorded)
    value = sketch.pick.one(["", f"{sketch.fresh()} = {name} * 2"])
    sketch.add(f"{name}.detach_()", *[value] * bool(value))


@form("gradients", nests=True)
def one_mode_twice(sketch: Sketch) -> None:
    """One context object in two `with` statements."""
    mode = sketch.fresh("mode")
    made = sketch.pick.one(["no_grad()", "enable_grad()", "set_grad_enabled(False)"])
    sketch.add(f"{mode} = torch.{made}", *["torch.set_grad_enabled(True)"] * ("set" in made))
    for _ in range(2):
        with sketch.inside(Block(f"with {mode}:")):
            sketch.statements(2)


@form("gradients", nests=True)
def inference(sketch: Sketch) -> None:
    with sketch.inside(Block("with torch.inference_mode():")):
        sketch.statements(1)


@form("gradients")
def mode_of_function(sketch: Sketch) -> None:
    """A function decorated with a mode; it may return a view of its argument."""
    function, name = sketch.fresh("without"), sketch.tensor()
    body = [sketch.pick.one(["v.mul_(2)", "v[0] = 1", "v = v * 2", "v.detach().add_(1)"])]
    body.append(f"return {sketch.pick.one(['v', 'v[0]', 'v.view(-1)', 'v * 2'])}")
    block = Block(f"@torch.no_grad()\ndef {function}(v):", list(body))
    sketch.add(f"{sketch.fresh('r')} = {function}({name})", definition=block)


@form("gradients", place=EVERYWHERE)
def mode_set(sketch: Sketch) -> None:
    """A mode that outlives its statement, and perhaps the call."""
    state = sketch.pick.one(["True", "False"])
    name, fresh = sketch.tensor(), sketch.fresh()
    sketch.add(f"torch.set_grad_enabled({state})", f"{fresh} = {name} * 2")
