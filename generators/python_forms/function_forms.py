"""Functions within functions, closures, defaults, helpers, generators."""

from __future__ import annotations

from aliasproof.generators.python_forms.tensor_forms import (
    EVERYWHERE,
    number,
    operand,
    part_of,
    view_of,
)
from aliasproof.generators.sketch import Block, Sketch, form


@form("functions", nests=True)
def closure(sketch: Sketch) -> None:
    """A function that captures the names around it, and is called once or twice."""
    name, given = sketch.fresh("inner"), sketch.tensor()
    parameter = sketch.fresh("p")
    call = f"{sketch.fresh('r')} = {name}({given})"
    with sketch.inside(Block(f"def {name}({parameter}):"), call, function=name):
        sketch.statements(2)
        sketch.point.append(f"return {part_of(sketch)}")


@form("functions")
def nonlocal_name(sketch: Sketch) -> None:
    name, function = sketch.local(), sketch.fresh("inner")
    write = f"{name} = {name} {sketch.pick.one(['+', '*'])} {operand(sketch, name)}"
    view = f"{name} = {view_of(sketch, name)}"
    body = [f"nonlocal {name}", sketch.pick.one([write, view, f"{name}.add_(1)"])]
    sketch.add(Block(f"def {function}():", [*body]), f"{function}()")


@form("functions")
def called_lambda(sketch: Sketch) -> None:
    name, function, given = sketch.tensor(), sketch.fresh("f"), sketch.tensor()
    body = sketch.pick.one(
        ["v.add_(1)", "v.mul_(2)", f"v + {name}", "v.view(-1)", f"{name}.add_(1)"]
    )
    sketch.add(f"{function} = lambda v: {body}", f"{sketch.fresh()} = {function}({given})")


@form("functions", weight=2)  # only a second call of the program shows its effect
def mutable_default(sketch: Sketch) -> None:
    """A default value that outlives the call."""
    function, given = sketch.fresh("kept"), sketch.tensor()
    block = Block(f"def {function}(v, history=[]):", ["history.append(v)", "return history[0]"])
    write = sketch.pick.one(["", ".add_(1)"])
    sketch.add(f"{sketch.fresh()} = {function}({given}{write})", definition=block)


@form("functions", weight=2)
def helper(sketch: Sketch) -> None:
    """A function of the module that writes its argument, and returns it or a view of it."""
    function, name, other = sketch.fresh("helper"), sketch.tensor(), sketch.tensor()
    body = [sketch.pick.one(["v.add_(1)", "v[0] = 2", "v.mul_(w)", "v[1:] += 1", "w.copy_(v)"])]
    body.append(f"return {sketch.pick.one(['v', 'w', 'v[0]', 'v.view(-1)', '(v, w)', 'v + w'])}")
    block = Block(f"def {function}(v, w):", list(body))
    sketch.add(f"{sketch.fresh('r')} = {function}({name}, {other})", definition=block)


@form("functions")
def generator(sketch: Sketch) -> None:
    function, name = sketch.fresh("parts"), sketch.tensor(lambda it: it.dim() > 0)
    write = sketch.pick.one(
        ["row.add_(1)", "row.mul_(2)", f"row.add_({number(sketch, sketch.at(name))})"]
    )
    body = [Block("for row in v:", [write, "yield row"])]
    block = Block(f"def {function}(v):", [*body])
    use = sketch.pick.one(["[part * 2 for part in {}]", "[part for part in {}]"])
    items = use.format(f"{function}({name})")
    sketch.add(f"{sketch.fresh('items')} = {items}", definition=block)


@form("functions", place=EVERYWHERE)
def generator_kept(sketch: Sketch) -> None:
    """A generator that is not finished when a tensor is written."""
    function, name, fresh = sketch.fresh("parts"), sketch.tensor(), sketch.fresh("it")
    write = sketch.pick.one(["v.add_(1)", "v.mul_(2)", "v = v + 1"])
    block = Block(f"def {function}(v):", ["yield v", write, "yield v * 2"])
    made = f"{fresh} = {function}({name})"
    lines = [f"{sketch.fresh()} = next({fresh})"] * sketch.pick.chance(70)
    lines += [f"{sketch.tensor()}.add_(1)"] * sketch.pick.chance(50)
    lines += [f"{sketch.fresh('items')} = list({fresh})"] * sketch.pick.chance(50)
    sketch.add(made, *lines, definition=block)


@form("functions")
def function_returned(sketch: Sketch) -> None:
    """A function returns a closure, whose cell is state."""
    maker, name, fresh = sketch.fresh("maker"), sketch.tensor(), sketch.fresh("f")
    write = sketch.pick.one(["v = v + w", "v.add_(w)", "v = w", "v = v[...]"])
    inner = Block("def inner(w):", ["nonlocal v", write, "return v"])
    block = Block(f"def {maker}(v):", [inner, "return inner"])
    calls = [f"{sketch.fresh()} = {fresh}({sketch.tensor()})" for _ in range(2)]
    sketch.add(f"{fresh} = {maker}({name})", *calls, definition=block)


@form("functions")
def late_closure(sketch: Sketch) -> None:
    """Lambdas of a loop share the variable of the loop."""
    name, fresh, item = sketch.tensor(), sketch.fresh("f"), sketch.fresh("items")
    made = sketch.pick.one(["lambda: {0} * i", "lambda i=i: {0} * i", "lambda: {0}.add_(i)"])
    functions = f"{fresh} = [{made.format(name)} for i in range(2)]"
    sketch.add(functions, f"{item} = [each() for each in {fresh}]")


@form("functions")
def gathered_arguments(sketch: Sketch) -> None:
    function, names = sketch.fresh("gathers"), [sketch.tensor() for _ in range(2)]
    body = sketch.pick.one(["v[0].add_(1)", "w['k'].mul_(2)", "w['new'] = v[0]", "v = v[:1]"])
    block = Block(f"def {function}(*v, **w):", [body, "return v, w"])
    sketch.add(
        f"{sketch.fresh('items')} = {function}(*[{', '.join(names)}], k={names[0]})",
        definition=block,
    )
