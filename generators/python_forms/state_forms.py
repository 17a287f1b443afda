"""State: attributes, globals, class attributes, modules with parameters and buffers."""

from __future__ import annotations

import types

import torch

from aliasproof.generators.python_forms.tensor_forms import EVERYWHERE, number, operand, view_of
from aliasproof.generators.scene import NoChoice
from aliasproof.generators.sketch import Sketch, form
from aliasproof.ir.python_program import CALLS, MODULE_PREFIX, OWN_ATTRIBUTES


def objects(sketch: Sketch) -> list[str]:
    """The names of objects of the program's classes."""
    values = sketch.names.values.items()
    return [name for name, it in values if type(it).__module__.startswith(MODULE_PREFIX)]


@form("state", place=EVERYWHERE, weight=3)
def attribute_assigned(sketch: Sketch) -> None:
    name, value = sketch.pick.one(objects(sketch)), sketch.tensor()
    attribute = sketch.pick.one(["cache", "last", "state", "buffer", "count"])
    given = sketch.pick.one([value, view_of(sketch, value), f"{value} + 1", f"{value}.detach()"])
    sketch.add(f"{name}.{attribute} = {given}")


@form("state", place=EVERYWHERE, weight=3)
def attribute_written(sketch: Sketch) -> None:
    names = [name for name in sketch.names.tensors if name.partition(".")[0] in objects(sketch)]
    name = sketch.pick.one(names)
    value = number(sketch, sketch.at(name)) if sketch.pick.chance(40) else operand(sketch, name)
    sketch.situations.append(sketch.names.situation(name))
    sketch.add(sketch.pick.one([f"{name} += {value}", f"{name}.mul_({value})", f"{name}[0] = 1"]))


@form("state")
def counter(sketch: Sketch) -> None:
    name = sketch.pick.one(objects(sketch))
    if "total" not in vars(sketch.names.values[name]):
        sketch.add(f"{name}.total = 1")
        return
    fresh, tensor = sketch.fresh(), sketch.tensor()
    sketch.add(f"{name}.total += 1", f"{fresh} = {tensor} * {name}.total")


@form("state", place=EVERYWHERE)
def class_attribute(sketch: Sketch) -> None:
    name = sketch.pick.one(objects(sketch))
    value = sketch.tensor()
    kind = type(sketch.names.values[name]).__name__
    write = sketch.pick.one(["shared = {}", "shared = {}[...]", "shared = {}.clone()"])
    if hasattr(type(sketch.names.values[name]), "shared") and sketch.pick.chance(50):
        sketch.add(f"{kind}.shared.add_(1)")
    else:
        sketch.add(f"{kind}.{write.format(value)}")


@form("state", weight=2)
def method_call(sketch: Sketch) -> None:
    name = sketch.pick.one(objects(sketch))
    kind = type(sketch.names.values[name])
    methods = [
        it
        for it in vars(kind)
        if it in OWN_ATTRIBUTES and isinstance(vars(kind)[it], types.FunctionType)
    ]
    method, value = sketch.pick.one(methods), sketch.tensor()
    sketch.add(f"{sketch.fresh('r')} = {name}.{method}({value})")


@form("state", place=EVERYWHERE, weight=2)
def property_used(sketch: Sketch) -> None:
    """Read or set a property, call or index an object, or use `+=` on it."""
    name, value = sketch.pick.one(objects(sketch)), sketch.tensor()
    members, fresh = vars(type(sketch.names.values[name])), sketch.fresh("r")
    properties = {key: it for key, it in members.items() if isinstance(it, property)}
    lines = [f"{fresh} = {name}.{key}" for key in properties]
    lines += [f"{name}.{key} = {value}" for key, it in properties.items() if it.fset]
    lines += [f"{name}.{key}.add_(1)" for key in properties]
    lines += [f"{fresh} = {name}({value})"] * ("__call__" in members)
    lines += [f"{fresh} = {name}[1]", f"{name}[0] = {value}"] * ("__getitem__" in members)
    lines += [f"{name} += {value}"] * ("__iadd__" in members)
    sketch.add(sketch.pick.one(lines))


@form("state")
def record_made(sketch: Sketch) -> None:
    """A dataclass of tensors, or a copy of one with other fields."""
    records = [
        key for key in objects(sketch) if type(sketch.names.values[key]).__name__ == "Record"
    ]
    one, other = sketch.tensor(), sketch.tensor()
    fresh = sketch.fresh("record")
    made = f"{fresh} = Record({one}, {view_of(sketch, other)})"
    if records and sketch.pick.chance(50):
        made = f"{fresh} = dataclasses.replace({sketch.pick.one(records)}, first={one})"
    write = sketch.pick.one([f"{fresh}.first.add_(1)", f"{fresh}.history.append({other})"])
    sketch.add(made, write)


@form("state", place=EVERYWHERE)
def method_replaced(sketch: Sketch) -> None:
    """Replace a method, of the class or of one object."""
    name = sketch.pick.one(objects(sketch))
    if sketch.function != CALLS and sketch.pick.chance(70):
        raise NoChoice  # Dynamo does not see the change in the function that makes it
    kind, value = type(sketch.names.values[name]).__name__, sketch.tensor()
    method = "forward" if kind == "Layer" else sketch.pick.one(["memory", "scale"])
    body = sketch.pick.one(["x * 2", "x.add_(1)", "x", f"{value}", "x.view(-1)"])
    target = sketch.pick.one([f"{kind}.{method} = lambda self, x", f"{name}.{method} = lambda x"])
    use = f"{sketch.fresh('r')} = {name}.{method}({value})"
    sketch.add(f"{target}: {body}", use)


@form("state", place=EVERYWHERE)
def attribute_deleted(sketch: Sketch) -> None:
    name = sketch.pick.one(objects(sketch))
    attribute = sketch.pick.one(["last", "first", "cache", "count", "buffer", "weight", "shared"])
    again = [f"{name}.{attribute} = {sketch.tensor()}"] * sketch.pick.chance(50)
    sketch.add(f"del {name}.{attribute}", *again)


@form("state", place=EVERYWHERE)
def objects_linked(sketch: Sketch) -> None:
    """Put an object in an attribute, a list, or an attribute of itself."""
    one, other = (sketch.pick.one(objects(sketch)) for _ in range(2))
    lines = [
        [f"{one}.other = {other}", f"{one}.other.last = {sketch.tensor()}"],
        [f"{one}.state = [{other}]", f"{one}.state[0].last = {sketch.tensor()}"],
        [f"{one}.inner = {{'k': {sketch.tensor()}}}", f"{one}.inner['k'].add_(1)"],
        [f"{one}.history = [{sketch.tensor()}]", f"{other}.history = {one}.history"],
    ]
    sketch.add(*sketch.pick.one(lines))


@form("state", weight=2)
def global_written(sketch: Sketch) -> None:
    name = sketch.pick.one([name for name in sketch.names.values if name.startswith("global")])
    value = sketch.names.values[name]
    if isinstance(value, torch.Tensor):
        sketch.add(f"{view_of(sketch, name)}.add_({operand(sketch, name)})")
    elif isinstance(value, list):
        sketch.add(f"{name}.append({sketch.tensor()})")
    else:
        raise NoChoice


@form("state")
def global_bound(sketch: Sketch) -> None:
    """Rebind a global to another tensor."""
    name = sketch.pick.one([name for name in sketch.names.values if name.startswith("global")])
    if sketch.function != "program" or not isinstance(sketch.names.values[name], torch.Tensor):
        raise NoChoice
    line = f"global {name}"
    value = sketch.tensor()
    # Python requires the declaration before the first use.
    before = list(sketch.program.body)
    if line not in before:
        sketch.program.body.insert(0, line)
    try:
        sketch.add(f"{name} = {view_of(sketch, value)}")
    except NoChoice:
        if line not in before:
            sketch.program.body.remove(line)
        raise


@form("modules", weight=4)
def module_call(sketch: Sketch) -> None:
    name = sketch.pick.one(_modules(sketch))
    value = sketch.tensor(lambda it: it.dtype is torch.float32)
    call = f"{name}({value})"
    sketch.add(f"{sketch.fresh('r')} = {call}")


def _modules(sketch: Sketch) -> list[str]:
    values = sketch.names.values.items()
    return [name for name, it in values if isinstance(it, torch.nn.Module)]


@form("modules", place=EVERYWHERE)
def parameter_made(sketch: Sketch) -> None:
    """Make a Parameter of a view, or of an intermediate tensor."""
    value = sketch.tensor(lambda it: it.dtype.is_floating_point)
    given = sketch.pick.one(
        [value, view_of(sketch, value), f"{value} * 2", f"{value}.data", f"{value}.detach()"]
    )
    fresh = sketch.fresh("w")
    lines = [f"{fresh} = torch.nn.Parameter({given})"]
    if (modules := _modules(sketch)) and sketch.pick.chance(40):
        lines.append(f"{sketch.pick.one(modules)}.tied = {fresh}")
    sketch.add(*lines)


@form("modules", place=EVERYWHERE)
def parameter_replaced(sketch: Sketch) -> None:
    """A new Parameter under the old name, or new data in the old Parameter."""
    module, value = sketch.pick.one(_modules(sketch)), sketch.tensor(lambda it: it.shape == (4,))
    lines = [
        f"{module}.weight = torch.nn.Parameter({value}.detach())",
        f"{module}.weight.data = {value}.detach()",
        f"{module}.register_parameter('bias', torch.nn.Parameter({value}.detach()))",
        f"{module}.bias = {module}.weight",
        f"{module}.buffer = {value}",
        f"{module}.buffer = None",
        f"{module}.weight.requires_grad_(False)",
    ]
    sketch.add(sketch.pick.one(lines))


@form("modules", place=EVERYWHERE)
def buffer_registered(sketch: Sketch) -> None:
    name, value = sketch.pick.one(_modules(sketch)), sketch.tensor()
    given = sketch.pick.one([value, view_of(sketch, value)])
    persistent = sketch.pick.one(["", ", persistent=False"])
    sketch.add(f"{name}.register_buffer('memory', {given}{persistent})")
