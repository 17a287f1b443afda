"""Storages behind tensors, and breaks between graphs."""

from __future__ import annotations

from aliasproof.generators.python_forms.form_table import form
from aliasproof.generators.python_forms.tensor_forms import EVERYWHERE, number, view_of
from aliasproof.generators.sketch import Block, Sketch


@form("storages", place=EVERYWHERE, weight=2)
def data_written(sketch: Sketch) -> None:
    name = sketch.tensor()
    write = sketch.pick.one(["add_(1)", "mul_(2)", "zero_()", "copy_(0 * {0} + 1)", "t_()"])
    alias = sketch.pick.one([".data", ".detach()"])
    sketch.add(f"{name}{alias}.{write.format(name)}")


@form("storages", place=EVERYWHERE)
def data_assigned(sketch: Sketch) -> None:
    name = sketch.tensor()
    other = sketch.tensor(lambda it: it.dtype == sketch.at(name).dtype)
    sketch.add(
        f"{name}.data = {sketch.pick.one([other, f'{other}.clone()', view_of(sketch, other)])}"
    )


@form("storages", place=EVERYWHERE)
def storage_set(sketch: Sketch) -> None:
    name = sketch.tensor()
    other = sketch.tensor(lambda it: it.dtype == sketch.at(name).dtype)
    sketch.add(f"{name}.set_({view_of(sketch, other)})")


@form("storages")
def resized(sketch: Sketch) -> None:
    name = sketch.tensor(lambda it: it.dim() == 1 and it.shape[0] > 1)
    sketch.add(f"{name}.resize_({sketch.at(name).shape[0] - 1})")


@form("storages")
def strided_view(sketch: Sketch) -> None:
    name = sketch.tensor(lambda it: it.numel() > 2)
    layout = sketch.pick.one(["(2,), (1,)", "(2,), (2,)", "(2, 1), (1, 1)", "(1,), (1,), 1"])
    sketch.add(f"{sketch.fresh('v')} = {name}.as_strided({layout})")


@form("storages")
def numpy_view(sketch: Sketch) -> None:
    """NumPy writes the memory of a tensor."""
    name = sketch.tensor(lambda it: it.dim() > 0)
    array = sketch.fresh("array")
    alias = f"{name}.detach()" if sketch.at(name).requires_grad else name
    sketch.add(f"{array} = {alias}.numpy()", f"{array}[0] = {number(sketch, sketch.at(name))}")


@form("frames", weight=2)
def graph_break(sketch: Sketch) -> None:
    sketch.add(sketch.pick.one(["torch._dynamo.graph_break()", "print(end='')"]))


@form("frames")
def number_of_data(sketch: Sketch) -> None:
    name, other = sketch.tensor(lambda it: it.numel() > 0), sketch.tensor()
    count = sketch.fresh("n")
    sketch.add(f"{count} = {name}.sum().item()", f"{sketch.fresh()} = {other} + {count}")


@form("frames", nests=True)
def condition_on_data(sketch: Sketch) -> None:
    name = sketch.tensor(lambda it: it.numel() > 0)
    positive = bool((sketch.at(name).sum() > 0).item())
    with sketch.inside(Block(f"if {name}.sum() {'>' if positive else '<='} 0:")):
        sketch.statements(2)
