"""Gradients: modes, backward passes between writes, custom Functions, transforms."""

from __future__ import annotations

import torch

from aliasproof.generators.python_forms.form_table import form
from aliasproof.generators.python_forms.tensor_forms import EVERYWHERE, view_of
from aliasproof.generators.sketch import Block, Sketch

_FUNCTIONS = {
    "Same": """
class Same(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad * 2
""",
    "Dirty": """
class Dirty(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x.mul_(2)
        ctx.mark_dirty(x)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad * 2
""",
    "Saved": """
class Saved(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = x * x
        ctx.save_for_backward(x, y)
        return y

    @staticmethod
    def backward(ctx, grad):
        x, y = ctx.saved_tensors
        return 2 * grad * x
""",
    "PartOf": """
class PartOf(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view(-1)

    @staticmethod
    def backward(ctx, grad):
        return grad.add_(1)
""",
    "Optional": """
class Optional(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.set_materialize_grads(False)
        return x * 2, x + 1

    @staticmethod
    def backward(ctx, first, second):
        if second is None:
            return first
        return second if first is None else first + second
""",
    "Pair": """
class Pair(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        return x + y, y

    @staticmethod
    def backward(ctx, first, second):
        return first, first + second
""",
}


def is_real(tensor: torch.Tensor) -> bool:
    """Whether it may require gradients."""
    return tensor.dtype.is_floating_point


def recorded(tensor: torch.Tensor) -> bool:
    """Whether autograd records what is done to it."""
    return tensor.requires_grad


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
    loss = sketch.pick.one([f"{name}.sum()", f"({name} * {name}).sum()"])
    sketch.add(f"{loss}.backward({kept})")


@form("gradients", place=EVERYWHERE, weight=2)
def gradient_of(sketch: Sketch) -> None:
    name, of = sketch.tensor(recorded), sketch.tensor(recorded)
    loss = sketch.pick.one([f"{name}.sum()", f"({name} * {name}).sum()"])
    more = sketch.pick.one(["", ", retain_graph=True", ", create_graph=True"])
    sketch.add(f"{sketch.fresh('g')}, = torch.autograd.grad({loss}, {of}{more})")


@form("gradients", weight=2)
def custom_function(sketch: Sketch) -> None:
    name = sketch.pick.one(list(_FUNCTIONS))
    arguments = [sketch.tensor(is_real)]
    if name == "Pair":
        shape = sketch.at(arguments[0]).shape
        arguments.append(sketch.tensor(lambda it: is_real(it) and it.shape == shape))
    call = f"{sketch.fresh('r')} = {name}.apply({', '.join(arguments)})"
    sketch.add(call, definition=_FUNCTIONS[name].strip())


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
    # Eager torch dies of SIGSEGV at the hook of a view that was written in another mode.
    name = sketch.tensor(lambda it: recorded(it) and it._base is None)
    does = sketch.pick.one(["g * 2", "g.mul_(2)", "g.add_(1)"])
    sketch.add(f"{name}.register_hook(lambda g: {does})")


@form("transforms")
def checkpointed(sketch: Sketch) -> None:
    name = sketch.tensor(recorded)
    does = sketch.pick.one(["v * v", "(v * 2).add_(1)", "v.sin().mul_(2)"])
    call = f"torch.utils.checkpoint.checkpoint(lambda v: {does}, {name}, use_reentrant=False)"
    sketch.add(f"{sketch.fresh('r')} = {call}")


@form("transforms")
def transformed(sketch: Sketch) -> None:
    name = sketch.tensor(lambda it: is_real(it) and it.dim() > 0 and it.numel() > 0)
    does = sketch.pick.one(["(v * v).sum()", "v.clone().mul_(2).sum()", "(v[0] * v).sum()"])
    rows = sketch.pick.one(["v * 2", "v.clone().add_(1)", "v.add_(1)", "v.sum()"])
    calls = [f"torch.func.grad(lambda v: {does})({name})", f"torch.vmap(lambda v: {rows})({name})"]
    sketch.add(f"{sketch.fresh('r')} = {sketch.pick.one(calls)}")


@form("transforms")
def functional_condition(sketch: Sketch) -> None:
    name = sketch.tensor(is_real)
    branches = sketch.pick.one(
        ["lambda v: v + 1, lambda v: v * 2", "lambda v: v.clone(), lambda v: v - 1"]
    )
    sketch.add(f"{sketch.fresh('r')} = torch.cond({name}.sum() > 0, {branches}, ({name},))")


@form("transforms", place="calls")
def optimizer_step(sketch: Sketch) -> None:
    modules = [key for key, it in sketch.names.values.items() if isinstance(it, torch.nn.Module)]
    name = f"{sketch.pick.one(modules)}.parameters()"
    kind = sketch.pick.one(["SGD", "Adam", "AdamW"])
    set_ = sketch.pick.one(["True", "False"])
    fresh = sketch.fresh("optimizer")
    sketch.add(
        f"{fresh} = torch.optim.{kind}({name}, lr=0.5)",
        f"{fresh}.step()",
        f"{fresh}.zero_grad(set_to_none={set_})",
    )


@form("gradients", place=EVERYWHERE)
def view_of_leaf(sketch: Sketch) -> None:
    name = sketch.tensor(lambda it: it.requires_grad and it.is_leaf)
    sketch.add(f"{sketch.fresh('v')} = {view_of(sketch, name)}")
