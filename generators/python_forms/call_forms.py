"""What a caller does after the first call: further calls, writes between them, gradients."""

from __future__ import annotations

from aliasproof.generators.python_forms.form_table import form
from aliasproof.generators.python_forms.tensor_forms import view_of
from aliasproof.generators.sketch import Block, Sketch


def _call(sketch: Sketch, arguments: list[str]) -> str:
    return f"{sketch.fresh('out')} = program({', '.join(arguments)})"


@form("calls", place="calls", weight=3)
def same_call(sketch: Sketch) -> None:
    sketch.add(_call(sketch, sketch.arguments))


@form("calls", place="calls", weight=4)
def other_call(sketch: Sketch) -> None:
    """Another tensor, or another part of it, in place of one."""
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
    """One argument in place of another one of its type, which were two before."""
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


@form("calls", place="calls")
def moved_window(sketch: Sketch) -> None:
    """The next part of a buffer, as a loop over it passes it."""
    arguments = list(sketch.arguments)
    index = sketch.pick.one([i for i, it in enumerate(arguments) if it in sketch.names.tensors])
    size = sketch.at(arguments[index]).shape
    name = sketch.tensor(lambda it: it.dim() == len(size) > 0 and it.shape[0] > size[0])
    first = sketch.pick.integer(0, sketch.at(name).shape[0] - size[0])
    arguments[index] = f"{name}[{first}:{first + size[0]}]"
    sketch.add(_call(sketch, arguments))


@form("calls", place="calls")
def switched_mode(sketch: Sketch) -> None:
    modules = [key for key, it in sketch.names.values.items() if hasattr(it, "training")]
    sketch.add(f"{sketch.pick.one(modules)}.{sketch.pick.one(['eval()', 'train()'])}")
