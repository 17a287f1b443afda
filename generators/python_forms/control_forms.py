"""Unpacking, loops, conditions and comprehensions."""

from __future__ import annotations

from aliasproof.generators.python_forms.container_forms import of_type
from aliasproof.generators.python_forms.tensor_forms import EVERYWHERE, number, operand, view_of
from aliasproof.generators.scene import NoChoice
from aliasproof.generators.sketch import Block, Sketch, form


def rows(sketch: Sketch) -> str:
    """An expression for a loop to iterate over: its items are views of a tensor."""
    name = sketch.tensor(lambda it: it.dim() > 0 and 0 < it.shape[0] <= 4)
    return f"{name}{sketch.pick.one(['', '.unbind()', '.split(1)'])}"


@form("unpacking", place=EVERYWHERE)
def unpacked_parts(sketch: Sketch) -> None:
    name = sketch.tensor(lambda it: it.dim() > 0 and it.shape[0] in (2, 4))
    half = sketch.at(name).shape[0] // 2
    one, other = sketch.fresh("a"), sketch.fresh("b")
    how = sketch.pick.one([f"split({half})", "chunk(2)", "tensor_split(2)"])
    sketch.add(f"{one}, {other} = {name}.{how}")


@form("unpacking")
def first_and_rest(sketch: Sketch) -> None:
    name = sketch.tensor(lambda it: it.dim() > 0 and it.shape[0] > 1)
    first, rest = sketch.fresh("a"), sketch.fresh("rest")
    sketch.add(f"{first}, *{rest} = {name}.unbind()")


@form("unpacking", place=EVERYWHERE)
def list_of_tensors(sketch: Sketch) -> None:
    parts = [sketch.tensor() for _ in range(sketch.pick.integer(2, 3))]
    parts[0] = view_of(sketch, parts[0]) if sketch.pick.chance(50) else parts[0]
    sketch.add(f"{sketch.fresh('items')} = [{', '.join(parts)}]")


@form("unpacking", place=EVERYWHERE)
def dict_of_tensors(sketch: Sketch) -> None:
    one, other = sketch.tensor(), sketch.tensor()
    sketch.add(f"{sketch.fresh('d')} = {{'k': {one}, 'v': {view_of(sketch, other)}}}")


@form("unpacking", weight=2)
def write_in_comprehension(sketch: Sketch) -> None:
    write = sketch.pick.one(["mul_(2)", "add_(1)", "clone()", "neg_()"])
    sketch.add(f"{sketch.fresh('rows')} = [row.{write} for row in {rows(sketch)}]")


# --- loops ----------------------------------------------------------------------------------------


@form("loops", nests=True)
def loop_over_range(sketch: Sketch) -> None:
    variable = sketch.fresh("i")
    with sketch.inside(Block(f"for {variable} in range({sketch.pick.integer(1, 3)}):")):
        sketch.statements(2)


@form("loops", nests=True)
def loop_over_rows(sketch: Sketch) -> None:
    with sketch.inside(Block(f"for {sketch.fresh('row')} in {rows(sketch)}:")):
        sketch.statements(2)


@form("loops", nests=True)
def loop_over_pairs(sketch: Sketch) -> None:
    one, other = rows(sketch), rows(sketch)
    with sketch.inside(
        Block(f"for {sketch.fresh('p')}, {sketch.fresh('q')} in zip({one}, {other}):")
    ):
        sketch.statements(2)


@form("loops")
def loop_with_index(sketch: Sketch) -> None:
    index, row, name = sketch.fresh("i"), sketch.fresh("row"), rows(sketch)
    body = sketch.pick.one([f"{row}.add_({index})", f"{row}.mul_({index} + 1)"])
    sketch.add(Block(f"for {index}, {row} in enumerate({name}):", [body]))


@form("loops")
def while_loop(sketch: Sketch) -> None:
    count, name = sketch.fresh("n"), sketch.tensor()
    body = [f"{view_of(sketch, name)}.add_({number(sketch, sketch.at(name))})", f"{count} += 1"]
    sketch.add(f"{count} = 0", Block(f"while {count} < 2:", list(body)))


@form("loops")
def loop_in_reverse(sketch: Sketch) -> None:
    """The items of a list in reverse, while another name of the list may change it."""
    name, item = of_type(sketch, list), sketch.fresh("it")
    sketch.add(Block(f"for {item} in reversed({name}):", [f"{item}.add_(1)"]))


# --- conditions -----------------------------------------------------------------------------------


@form("conditions", nests=True)
def condition(sketch: Sketch) -> None:
    with sketch.inside(Block(f"if {_true(sketch)}:")):
        sketch.statements(2)


@form("conditions")
def either_or(sketch: Sketch) -> None:
    name, fresh = sketch.tensor(), sketch.fresh()
    test = sketch.pick.one([_true(sketch), f"not ({_true(sketch)})"])
    sketch.add(f"{fresh} = {view_of(sketch, name)} if {test} else {operand(sketch, name)}")


def _true(sketch: Sketch) -> str:
    """A condition that is true here: on sizes, dtypes, identity, flags."""
    name, other = sketch.tensor(), sketch.tensor()
    tensor, second = sketch.at(name), sketch.at(other)
    choices = [f"{name}.dtype == {tensor.dtype}", f"{name}.dim() == {tensor.dim()}"]
    choices += [f"{name} is {other}" if tensor is second else f"{name} is not {other}"] * 2
    if tensor.dim():
        choices.append(f"{name}.shape[0] == {tensor.shape[0]}")
    for fact in ("requires_grad", "is_leaf"):
        choices.append(f"{name}.{fact}" if getattr(tensor, fact) else f"not {name}.{fact}")
    numbers = [key for key, it in sketch.names.values.items() if type(it) is int]
    choices += [f"{key} == {sketch.names.values[key]}" for key in numbers[:2]]
    return sketch.pick.one(choices)


@form("conditions", weight=2)
def arithmetic_with_flag(sketch: Sketch) -> None:
    if "flag" not in sketch.names.values:
        raise NoChoice
    name = sketch.tensor(lambda it: it.dtype.is_floating_point)
    line = sketch.pick.one([f"{sketch.fresh()} = {name} * flag", f"{name}.add_(flag)"])
    sketch.add(line)


@form("conditions")
def greater_of_two(sketch: Sketch) -> None:
    """Python's `max` returns one of two objects."""
    one = sketch.tensor(lambda it: it.numel() == 1 and not it.is_complex())
    other = sketch.tensor(lambda it: it.numel() == 1 and not it.is_complex())
    fresh, choice = sketch.fresh(), sketch.pick.one(["max", "min"])
    sketch.add(f"{fresh} = {choice}({one}, {other})", f"{fresh}.add_(1)")


@form("conditions")
def early_return(sketch: Sketch) -> None:
    if sketch.depth != 1 or sketch.function != "program":
        raise NoChoice
    name = sketch.tensor()
    # False here; a later call with other arguments may make it true.
    test = "flag > 1" if "flag" in sketch.names.values else f"{name}.dim() > 3"
    sketch.add(Block(f"if {test}:", [f"return {name}"]))
