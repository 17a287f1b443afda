"""Lists, dicts and tuples that share their items, and errors after writes."""

from __future__ import annotations

import types

from aliasproof.generators.python_forms.tensor_forms import EVERYWHERE, part_of, view_of
from aliasproof.generators.scene import NoChoice
from aliasproof.generators.sketch import Block, Sketch, form


def of_type(sketch: Sketch, kind: type) -> str:
    """The name of a local value of exactly this type."""
    values = sketch.names.values.items()
    return sketch.pick.one([name for name, value in values if type(value) is kind])


@form("containers", place=EVERYWHERE)
def append(sketch: Sketch) -> None:
    name = of_type(sketch, list)
    item = sketch.tensor()
    value = sketch.pick.one([item, f"{item}.add_(1)", view_of(sketch, item)])
    sketch.add(f"{name}.append({value})")


@form("containers", place=EVERYWHERE)
def item_assigned(sketch: Sketch) -> None:
    name = sketch.pick.one([name for name in sketch.names.tensors if name.endswith("]")])
    value = sketch.tensor()
    sign = sketch.pick.one(["=", "+=", "*="])
    sketch.add(f"{name} {sign} {view_of(sketch, value) if sketch.pick.chance(40) else value}")


@form("containers")
def item_added(sketch: Sketch) -> None:
    value = sketch.tensor()
    sketch.add(f"{of_type(sketch, dict)}['new'] = {view_of(sketch, value)}")


@form("containers")
def item_taken(sketch: Sketch) -> None:
    sketch.add(f"{sketch.fresh()} = {of_type(sketch, list)}.pop()")


@form("containers", place=EVERYWHERE, weight=3)
def list_changed(sketch: Sketch) -> None:
    """A list with two names: `+=` changes the shared list, `+` makes a new one."""
    name, value = of_type(sketch, list), part_of(sketch)
    other = sketch.fresh("items")
    change = sketch.pick.one(
        [
            f"{name} += [{value}]",
            f"{name}[:1] = [{value}, {value}]",
            f"{name}.insert(0, {value})",
            f"{name}.extend({name})",
            f"{name}.extend([{value}])",
            f"{name}.reverse()",
            f"{name}.clear()",
            f"{name}[0], {name}[-1] = {name}[-1], {name}[0]",
            f"del {name}[0]",
            f"{name}.remove({name}[-1])",
            f"{name} *= 2",
        ]
    )
    before = sketch.pick.one([f"{other} = {name}", f"{other} = {name}[:]", f"{other} = [{name}]"])
    sketch.add(before, change)


@form("containers", place=EVERYWHERE, weight=2)
def dict_changed(sketch: Sketch) -> None:
    name, value = of_type(sketch, dict), part_of(sketch)
    other = sketch.fresh("d")
    change = sketch.pick.one(
        [
            f"{name}.update(k={value})",
            f"{name}.setdefault('new', []).append({value})",
            f"{name}['self'] = {name}['k']",
            f"{other}_left = {name}.pop('k')",
            f"del {name}['k']",
            f"{name} |= {{'k': {value}}}",
            f"{name}.clear()",
            f"{other}_left = {name}.get('k', {value}).add_(1)",
        ]
    )
    before = sketch.pick.one(
        [f"{other} = {name}", f"{other} = {name}.copy()", f"{other} = {name}.values()"]
    )
    sketch.add(before, change)


@form("containers")
def shared_items(sketch: Sketch) -> None:
    """A list that is twice in another list: a write to one is a write to both."""
    name, value = sketch.fresh("items"), part_of(sketch)
    inner = sketch.tensor()
    lines = [
        [f"{name} = [[{value}]] * 2", f"{name}[0].append({inner})"],
        [f"{name} = [{value}] * 2", f"{name}[0].add_(1)"],
        [f"{name} = ([{value}], {inner})", f"{name}[0].append({inner})"],
    ]
    sketch.add(*sketch.pick.one(lines))


@form("containers", place=EVERYWHERE)
def tensor_as_key(sketch: Sketch) -> None:
    """A dict finds a tensor by its identity."""
    key, value, name = sketch.tensor(), sketch.tensor(), sketch.fresh("d")
    other = sketch.tensor()
    sketch.add(f"{name} = {{{key}: {value}}}", f"{sketch.fresh()} = {name}.get({other}, {key})")


@form("containers", place=EVERYWHERE, weight=2)
def membership(sketch: Sketch) -> None:
    """`in` compares identity first, then equality, for which tensors return tensors."""
    one, other = sketch.tensor(), sketch.tensor()
    test = sketch.pick.one(
        [
            f"{one} in [{one}, {other}]",
            f"{one} not in [{other}, {one}]",
            f"{other} in ({one}, {other})",
            f"[{one}, {other}].index({one})",
            f"[{one}, {other}].count({one})",
            f"[{one}] == [{one}]",
            f"({one}, 1) == ({one}, 1)",
            f"{{'k': {one}}} == {{'k': {one}}}",
        ]
    )
    sketch.add(f"{sketch.fresh('items')} = [{test}]")


@form("containers", place=EVERYWHERE)
def iterator_kept(sketch: Sketch) -> None:
    """An iterator that continues after a write to the object that it iterates over."""
    name, value, it = of_type(sketch, list), sketch.tensor(), sketch.fresh("it")
    kinds = ["(item for item in {0})", "zip({0}, {0})", "enumerate({0})", "reversed({0})"]
    made = sketch.pick.one(kinds)
    write = sketch.pick.one([f"{name}.append({value})", f"{name}[0] = {value}", f"{value}.add_(1)"])
    first = [f"{sketch.fresh('items')} = [next({it})]"] * sketch.pick.chance(50)
    rest = [f"{sketch.fresh('items')} = list({it})"] * sketch.pick.chance(70)
    sketch.add(f"{it} = {made.format(name)}", *first, write, *rest)


@form("calls", place="calls", weight=8)  # frequent, since it rarely finds an iterator
def consumed(sketch: Sketch) -> None:
    """Consume the rest of an iterator that a call returned, perhaps after a write."""
    lazy = (types.GeneratorType, zip, enumerate, map, reversed)
    found = [name for name, it in _parts(sketch) if isinstance(it, lazy)]
    lists = [f"{name}[0] = 3" for name, it in _parts(sketch) if isinstance(it, list) and it]
    name = sketch.pick.one(found)
    write = [sketch.pick.one([*lists, f"{sketch.tensor()}.add_(1)"])] * sketch.pick.chance(60)
    sketch.add(*write, f"{sketch.fresh('items')} = {sketch.pick.one(['list', 'next'])}({name})")


def _parts(sketch: Sketch) -> list[tuple[str, object]]:
    """Local values, and the items of tuples and lists among them, by expression."""
    values = sketch.names.values.items()
    inner = [
        (f"{name}[{index}]", item)
        for name, it in values
        if type(it) in (list, tuple)
        for index, item in enumerate(it)
    ]
    return [*values, *inner]


# --- errors ---------------------------------------------------------------------------------------

_ERRORS = ("ValueError", "RuntimeError", "KeyError", "IndexError")


@form("errors", nests=True, weight=3)
def caught_error(sketch: Sketch) -> None:
    """An error is caught; writes before it remain."""
    kind, write = sketch.pick.one(_ERRORS), f"{part_of(sketch)}.add_(1)"
    handler = Block(f"except {kind}:", [write])
    with sketch.inside(Block("try:"), handler):
        sketch.statements(2)
        sketch.point.append(f"raise {kind}")


@form("errors", weight=2)
def error_of_python(sketch: Sketch) -> None:
    name, write, other = sketch.tensor(), f"{part_of(sketch)}.mul_(2)", sketch.tensor()
    causes = [
        ("{'k': 1}['new']", "KeyError"),
        ("[][0]", "IndexError"),
        ("1 // 0", "ZeroDivisionError"),
        ("next(i for i in range(0))", "StopIteration"),
        ("int('x')", "ValueError"),
    ]
    # Dynamo catches no errors that operators raise, so these are rare.
    of_operator = [(f"{name}[99]", "IndexError"), (f"{name}.view(7, 13)", "RuntimeError")]
    cause, kind = sketch.pick.one(of_operator if sketch.pick.chance(8) else causes)
    handler = Block(f"except {kind}:", [f"{other}.add_(1)"])
    sketch.add(Block("try:", [write, cause]), handler)


@form("errors")
def error_of_helper(sketch: Sketch) -> None:
    function, name = sketch.fresh("fails"), sketch.tensor()
    kind = sketch.pick.one(_ERRORS)
    block = Block(f"def {function}(v):", ["v.add_(1)", f"raise {kind}"])
    handler = Block(f"except {kind}:", [f"{sketch.fresh()} = {name} * 2"])
    sketch.add(Block("try:", [f"{function}({name})"]), handler, definition=block)


@form("errors", nests=True)
def at_the_end(sketch: Sketch) -> None:
    last = Block("finally:", [f"{part_of(sketch)}.add_(1)"])
    with sketch.inside(Block("try:"), last):
        sketch.statements(2)


@form("errors", place="calls")
def caught_call(sketch: Sketch) -> None:
    """A call that may fail after some of its writes."""
    if not sketch.arguments:
        raise NoChoice
    arguments = list(sketch.arguments)
    index = sketch.pick.one([i for i, it in enumerate(arguments) if it in sketch.names.tensors])
    arguments[index] = view_of(sketch, arguments[index])
    call = f"{sketch.fresh('out')} = program({', '.join(arguments)})"
    sketch.add(Block("try:", [call]), Block("except RuntimeError:", ["pass"]))
