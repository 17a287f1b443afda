"""Training as people write it: optimizers, clipping, averages, normalization, dropout, hooks."""

from __future__ import annotations

import torch

from aliasproof.generators.python_forms.gradient_forms import is_real, recorded, takes_hook
from aliasproof.generators.python_forms.tensor_forms import EVERYWHERE, view_of
from aliasproof.generators.scene import NoChoice
from aliasproof.generators.sketch import Block, Sketch, form
from aliasproof.ir.python_program import CALLS


def _named(sketch: Sketch, kind: type) -> str:
    """The name of a local value of that type."""
    values = sketch.names.values.items()
    return sketch.pick.one([name for name, it in values if isinstance(it, kind)])


@form("training", place=EVERYWHERE, weight=3)
def optimizer_steps(sketch: Sketch) -> None:
    """A step of an optimizer that outlives the call: its state belongs to the caller."""
    name = _named(sketch, torch.optim.Optimizer)
    clear = f"{name}.zero_grad(set_to_none={sketch.pick.one(['True', 'False'])})"
    given = sketch.names.values[name].param_groups[0]["params"][0]
    of = [key for key, it in sketch.names.tensors.items() if it is given]
    loss = [f"({of[0]} * {of[0]}).sum().backward()"] if of else []
    lines = [[*loss, f"{name}.step()"], [*loss, f"{name}.step()", clear], [clear], [clear, *loss]]
    sketch.add(*sketch.pick.one(lines))


@form("training", place="calls")
def optimizer_made(sketch: Sketch) -> None:
    modules = [key for key, it in sketch.names.values.items() if isinstance(it, torch.nn.Module)]
    leaves = [key for key, it in sketch.names.tensors.items() if it.is_leaf and it.requires_grad]
    choices = [f"{key}.parameters()" for key in modules] + [f"[{key}]" for key in leaves]
    kind = sketch.pick.one(["SGD", "SGD", "Adam", "AdamW", "RMSprop", "Adagrad"])
    more = sketch.pick.one(["", ", momentum=0.5"]) if kind in ("SGD", "RMSprop") else ""
    more += sketch.pick.one(["", ", foreach=True", ", maximize=True"])
    fresh = sketch.fresh("optimizer")
    made = f"{fresh} = torch.optim.{kind}({sketch.pick.one(choices)}, lr=0.5{more})"
    clear = f"{fresh}.zero_grad(set_to_none={sketch.pick.one(['True', 'False'])})"
    sketch.add(made, f"{fresh}.step()", clear)


@form("training", place=EVERYWHERE)
def clipped_gradient(sketch: Sketch) -> None:
    name = sketch.tensor(lambda tensor: tensor.is_leaf and tensor.grad is not None)
    how = sketch.pick.one(["clip_grad_norm_", "clip_grad_value_"])
    sketch.add(f"torch.nn.utils.{how}([{name}], 0.5)")


@form("training", place=EVERYWHERE, weight=2)
def running_average(sketch: Sketch) -> None:
    name = sketch.tensor(lambda it: is_real(it) and not it.requires_grad)
    at = sketch.at(name)
    other = sketch.tensor(lambda it: (it.shape, it.dtype) == (at.shape, at.dtype))
    value = sketch.pick.one([f"{other}.detach()", f"{other}.data", other])
    lines = [
        f"{name}.mul_(0.5).add_({value}, alpha=0.5)",
        f"{name}.lerp_({value}, 0.5)",
        f"torch._foreach_mul_([{name}, {name}], 0.5)",
        f"torch._foreach_add_([{name}], [{value}], alpha=0.5)",
        f"torch._foreach_copy_([{name}], [{value}])",
    ]
    sketch.add(sketch.pick.one(lines))


@form("training", weight=2)
def normalized(sketch: Sketch) -> None:
    """Batch normalization; its running statistics belong to a module, or are plain tensors."""
    name = sketch.tensor(lambda it: is_real(it) and it.dim() == 2 and it.shape[0] > 1)
    width, dtype = sketch.at(name).shape[1], sketch.at(name).dtype
    fresh, pick = sketch.fresh("r"), sketch.pick
    modules = [
        key
        for key, it in sketch.names.values.items()
        if isinstance(it, torch.nn.BatchNorm1d) and it.num_features == width
    ]
    if modules and pick.chance(60):
        module = pick.one(modules)
        more = pick.one(["", f"{fresh} = {fresh} * {module}.running_mean"])
        sketch.add(f"{fresh} = {module}({name})", *[more] * bool(more))
        return
    fits = [
        sketch.tensor(lambda it: (it.shape, it.dtype) == ((width,), dtype) and not it.requires_grad)
        for _ in range(2)
    ]
    mode = pick.one(["True", "True", "False"])
    variance = fits[1] if pick.chance(50) else f"torch.ones_like({fits[1]})"
    given = f"{name}, {fits[0]}, {variance}, training={mode}"
    sketch.add(f"{fresh} = torch.nn.functional.batch_norm({given})")


@form("training", place=EVERYWHERE)
def mode_flipped(sketch: Sketch) -> None:
    sketch.add(f"{_named(sketch, torch.nn.Module)}.{sketch.pick.one(['eval()', 'train()'])}")


@form("training")
def dropped(sketch: Sketch) -> None:
    """Dropout after seeding, in place or not."""
    name, seed = sketch.tensor(is_real), sketch.pick.integer(0, 3)
    options = sketch.pick.one(["", ", inplace=True", ", training=False"])
    call = f"{sketch.fresh('r')} = torch.nn.functional.dropout({name}, 0.5{options})"
    sketch.add(*[f"torch.manual_seed({seed})"] * sketch.pick.chance(50), call)


@form("training")
def activation_in_place(sketch: Sketch) -> None:
    name = sketch.tensor(is_real)
    kinds = ["relu({}, inplace=True)", "hardtanh({}, 0, 1, True)", "leaky_relu({}, 0.5, True)"]
    call = sketch.pick.one(kinds).format(name)
    sketch.add(f"{sketch.fresh('r')} = torch.nn.functional.{call}")


@form("training")
def embedded(sketch: Sketch) -> None:
    """An embedding with a maximum norm, which writes the table that it reads."""
    name = sketch.tensor(lambda it: is_real(it) and it.dim() == 2 and it.shape[0] > 1)
    options = sketch.pick.one(["", ", max_norm=1.0", ", padding_idx=0"])
    call = f"torch.nn.functional.embedding(torch.tensor([0, 1]), {name}{options})"
    sketch.add(f"{sketch.fresh('r')} = {call}")


@form("training", place=EVERYWHERE, weight=2)
def hook_on_argument(sketch: Sketch) -> None:
    """A hook on a leaf, set before or within the calls; it may write the leaf."""
    name = sketch.tensor(lambda it: it.is_leaf and takes_hook(it))
    other = sketch.tensor()
    choices = [
        f"{name}.register_hook(lambda g: g * 2)",
        f"{name}.register_hook(lambda g: g.mul_(2))",
        f"{name}.register_hook(lambda g: {other}.detach().add_(1) * 0 + g)",
        f"{name}.register_post_accumulate_grad_hook(lambda p: p.data.sub_(p.grad))",
        f"{name}.register_post_accumulate_grad_hook(lambda p: p.grad.zero_())",
    ]
    sketch.add(sketch.pick.one(choices))


@form("training", place=EVERYWHERE)
def hook_of_module(sketch: Sketch) -> None:
    if sketch.function == CALLS and sketch.arguments:
        raise NoChoice  # by default, Dynamo guards no hooks (`skip_nnmodule_hook_guards`)
    module, kept = _named(sketch, torch.nn.Module), sketch.tensor()
    choices = [
        f"{module}.register_forward_hook(lambda m, given, out: out * 2)",
        f"{module}.register_forward_hook(lambda m, given, out: {kept}.add_(1))",
        f"{module}.register_forward_pre_hook(lambda m, given: (given[0] * 2,))",
        f"{module}.register_forward_pre_hook(lambda m, given: given[0].add_(1))",
        f"{module}.register_full_backward_hook(lambda m, given, out: (given[0] * 2,))",
    ]
    sketch.add(sketch.pick.one(choices))


@form("training", place=EVERYWHERE)
def state_of_module(sketch: Sketch) -> None:
    """The tensors of `state_dict` share memory with the module."""
    module, state = _named(sketch, torch.nn.Module), sketch.fresh("saved")
    name = sketch.tensor()
    lines = [
        [f"{state} = {module}.state_dict()"],
        [f"{state} = {module}.state_dict()", f"{module}.load_state_dict({state})"],
        [f"{state} = dict({module}.named_parameters())"],
        [f"{state} = [p.detach() for p in {module}.parameters()]"],
        [f"{module}.double()", f"{state} = {name}.double()"],
        [f"{module}.requires_grad_(False)"],
        [f"{module}.zero_grad()"],
    ]
    sketch.add(*sketch.pick.one(lines))


AUTOCAST = 'with torch.autocast("cpu", dtype=torch.bfloat16):'


@form("precision", nests=True, weight=2)
def autocast(sketch: Sketch) -> None:
    with sketch.inside(Block(AUTOCAST)):
        sketch.statements(2)


@form("precision", place=EVERYWHERE, weight=2)
def product(sketch: Sketch) -> None:
    """A matrix product under autocast in bfloat16, which caches the cast of a leaf."""
    name = sketch.tensor(lambda it: is_real(it) and it.dim() == 2)
    other = sketch.tensor(lambda it: is_real(it) and it.shape == sketch.at(name).shape)
    call = sketch.pick.one(["{} @ {}.t()", "torch.nn.functional.linear({}, {})"])
    sketch.add(f"{sketch.fresh('r')} = {call.format(name, other)}")


@form("precision", place=EVERYWHERE)
def narrowed(sketch: Sketch) -> None:
    name, dtype = sketch.tensor(is_real), sketch.pick.one(["bfloat16", "bfloat16", "half"])
    sketch.add(f"{sketch.fresh()} = {name}.{dtype}()")


@form("training", nests=True)
def saved_by_hooks(sketch: Sketch) -> None:
    """Tensors saved for backward go through hooks, which may copy them."""
    pack = sketch.pick.one(["t", "t.clone()", "t * 2", "t.detach()", "(t, 1)[0]"])
    name, fresh = sketch.tensor(recorded), sketch.fresh("r")
    modes = f"torch.autograd.graph.saved_tensors_hooks(lambda t: {pack}, lambda t: t)"
    write = sketch.pick.one([f"{fresh} = {name} * {name}", f"{fresh} = {name}.exp()"])
    sketch.add(f"{fresh} = {view_of(sketch, name)}", Block(f"with {modes}:", [write]))
