"""What a caller does after the first call: more calls, writes between calls, gradients."""

from __future__ import annotations

from aliasproof.generators.python_forms.tensor_forms import view_of
from aliasproof.generators.python_forms.training_forms import AUTOCAST
from aliasproof.generators.scene import NoChoice
from aliasproof.generators.sketch import Block, Sketch, form


def _call(sketch: Sketch, arguments: list[str]) -> str:
    if not arguments:
        raise NoChoice  # these forms need a first call
    return f"{sketch.fresh('out')} = program({', '.join(arguments)})"


@form("calls", place="calls", weight=3)
def same_call(sketch: Sketch) -> None:
    sketch.add(_call(sketch, sketch.arguments))


@form("calls", place="calls", weight=4)
def other_call(sketch: Sketch) -> None:
    """Pass another tensor, or another part of the tensor, in place of one argument."""
    arguments = list(sketch.arguments)
    tensors = [index for index, it in enumerate(arguments) if it in sketch.names.tensors]
    index = sketch.pick.one(tensors)
    now = sketch.at(arguments[index])
    choices = [arguments[it] for it in tensors if it != index]
    choices += [name for name, it in sketch.names.tensors.items() if it.shape == now.shape]
    chosen = sketch.pick.one(choices)
    arguments[index] = view_of(sketch, chosen) if sketch.pick.chance(30) else chosen
    sketch.situations.append(sketch.names.situation(chosen))
    sketch.add(_call(sketch, arguments))


@form("calls", place="calls")
def one_object_twice(sketch: Sketch) -> None:
    """Pass one object as two arguments of a type, which were two objects before."""
    arguments, values = list(sketch.arguments), sketch.names.values
    kinds = [type(values.get(it)) for it in arguments]
    pairs = [
        (index, other)
        for index, kind in enumerate(kinds)
        for other in range(index)
        if kind is kinds[other] and kind is not type(None) and arguments[index] != arguments[other]
    ]
    index, other = sketch.pick.one(pairs)
    arguments[index] = arguments[other]
    sketch.add(_call(sketch, arguments))


@form("calls", place="calls")
def call_with_flag(sketch: Sketch) -> None:
    arguments = [str(int(it) + 1) if it.isdigit() else it for it in sketch.arguments]
    if arguments == sketch.arguments:
        arguments.reverse()
    sketch.add(_call(sketch, arguments))


@form("calls", place="calls")
def call_without_gradients(sketch: Sketch) -> None:
    mode = sketch.pick.one(["no_grad", "inference_mode"])
    sketch.add(Block(f"with torch.{mode}():", [_call(sketch, sketch.arguments)]))


@form("precision", place="calls")
def call_in_autocast(sketch: Sketch) -> None:
    sketch.add(Block(AUTOCAST, [_call(sketch, sketch.arguments)]))


@form("calls", place="calls")
def moved_window(sketch: Sketch) -> None:
    """Pass the next part of a buffer, like a loop over the buffer."""
    arguments = list(sketch.arguments)
    index = sketch.pick.one([i for i, it in enumerate(arguments) if it in sketch.names.tensors])
    size = sketch.at(arguments[index]).shape
    name = sketch.tensor(lambda it: it.dim() == len(size) > 0 and it.shape[0] > size[0])
    first = sketch.pick.integer(0, sketch.at(name).shape[0] - size[0])
    arguments[index] = f"{name}[{first}:{first + size[0]}]"
    sketch.add(_call(sketch, arguments))


@form("calls", place="calls", weight=2)
def call_with_other_sizes(sketch: Sketch) -> None:
    """Pass a tensor of another size, dtype, layout or flag in place of one argument."""
    arguments = list(sketch.arguments)
    index = sketch.pick.one([i for i, it in enumerate(arguments) if it in sketch.names.tensors])
    name = arguments[index]
    choices = [f"{name}.clone()", f"{name}.detach()", f"{name}.double()", f"{name} * 1"]
    choices += [f"{name}.detach().requires_grad_()", f"torch.nn.Parameter({name}.detach())"]
    if sketch.at(name).dim():
        choices += [f"torch.cat([{name}, {name}])", f"{name}.repeat_interleave(2, 0)[::2]"]
        choices += [f"{name}[:1]", f"{name}[1:]"]
    fresh = sketch.fresh("x")
    arguments[index] = fresh
    sketch.situations.append(sketch.names.situation(name))
    sketch.add(f"{fresh} = {sketch.pick.one(choices)}", _call(sketch, arguments))


@form("calls", place="calls")
def marked_dynamic(sketch: Sketch) -> None:
    name = sketch.tensor(lambda it: it.dim() > 0 and it.shape[0] > 1)
    sketch.add(f"torch._dynamo.maybe_mark_dynamic({name}, 0)", _call(sketch, sketch.arguments))


@form("calls", place="calls", weight=2)
def output_written(sketch: Sketch) -> None:
    """The caller writes a result of a call, and calls again."""
    outs = [key for key in sketch.names.tensors if key.startswith("out")]
    name = sketch.pick.one(outs)
    write = Block("with torch.no_grad():", [f"{name}.add_(1)"])
    sketch.situations.append(sketch.names.situation(name))
    sketch.add(write, _call(sketch, sketch.arguments))


@form("gradients", place="calls", weight=8)
def argument_written(sketch: Sketch) -> None:
    """The caller writes an argument of a call before the backward pass of its result."""
    tensors = sketch.names.tensors
    recorded = [key for key, it in tensors.items() if key.startswith("out") and it.requires_grad]
    out = sketch.pick.one(recorded)
    name = sketch.pick.one([it for it in sketch.arguments if it in tensors])
    write = Block("with torch.no_grad():", [f"{name}.mul_(2)"])
    sketch.situations.append(sketch.names.situation(name))
    sketch.add(write, f"{out}.sum().backward()")


@form("calls", place="calls")
def switched_mode(sketch: Sketch) -> None:
    modules = [key for key, it in sketch.names.values.items() if hasattr(it, "training")]
    sketch.add(f"{sketch.pick.one(modules)}.{sketch.pick.one(['eval()', 'train()'])}")
