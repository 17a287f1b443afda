"""Functions of functions: checkpoints, transforms, conditions, loops, regions, custom operators."""

from __future__ import annotations

import torch

from aliasproof.generators.python_forms.control_forms import rows
from aliasproof.generators.python_forms.gradient_forms import is_real, recorded
from aliasproof.generators.python_forms.state_forms import objects
from aliasproof.generators.python_forms.tensor_forms import EVERYWHERE, view_of
from aliasproof.generators.scene import NoChoice
from aliasproof.generators.sketch import Block, Sketch, form


@form("transforms")
def checkpointed(sketch: Sketch) -> None:
    name, other = sketch.tensor(recorded), sketch.tensor(is_real)
    does = sketch.pick.one(
        ["v * v", "(v * 2).add_(1)", "v.sin().mul_(2)", f"v * {other}", f"{other}.add_(1) * v"]
    )
    call = f"torch.utils.checkpoint.checkpoint(lambda v: {does}, {name}, use_reentrant=False)"
    sketch.add(f"{sketch.fresh('r')} = {call}")


@form("transforms", weight=2)
def transformed(sketch: Sketch) -> None:
    name = sketch.tensor(lambda it: is_real(it) and it.dim() > 0 and it.numel() > 0)
    other, pick = sketch.tensor(), sketch.pick
    does = pick.one(["(v * v).sum()", "v.clone().mul_(2).sum()", "(v[0] * v).sum()"])
    rows = pick.one(["v * 2", "v.clone().add_(1)", "v.add_(1)", "v.sum()", "v", f"{other}[...]"])
    kept = pick.one([f"((v * v).sum(), {other})", "((v * 2).sum(), v)", "(v.sum(), v.detach())"])
    calls = [
        f"torch.func.grad(lambda v: {does})({name})",
        f"torch.vmap(lambda v: {rows})({name})",
        f"torch.func.grad(lambda v: {kept}, has_aux=True)({name})",
        f"torch.func.grad_and_value(lambda v: {does})({name})",
        f"torch.func.vjp(lambda v: {rows}, {name})[0]",
        f"torch.func.jvp(lambda v: {rows}, ({name},), ({name},))",
        f"torch.func.jacrev(lambda v: {rows})({name})",
    ]
    sketch.add(f"{sketch.fresh('items')} = {pick.one(calls)}")


@form("transforms")
def functional_call(sketch: Sketch) -> None:
    """A module called with other tensors than its own."""
    layer = sketch.pick.one([k for k, it in sketch.names.values.items() if hasattr(it, "weight")])
    key = sketch.pick.one(["weight", "buffer"])
    other, name = sketch.tensor(lambda it: it.shape == (4,)), sketch.tensor(is_real)
    call = f"torch.func.functional_call({layer}, {{'{key}': {other}}}, ({name},))"
    sketch.add(f"{sketch.fresh('r')} = {call}")


# Bodies of control flow: uses of `{v}`, and the return value, which torch wants to be new.
BODIES = (
    ("{v} * 2",),
    ("{v}.clone()",),
    ("{v} + {other}",),
    ("{v} - 1",),
    ("b = {v}.clone()", "b.add_(1)", "b"),
    ("b = {v} * 2", "b[..., :1] += 1", "b"),
    ("b = {v} * 2", "b.view(-1)[1:].mul_(3)", "b + {v}"),
    ("b = torch.zeros_like({v})", "b.copy_({other} * {v})", "b"),
    ("b = {other}.clone()", "b.mul_(2)", "b + {v}"),
    ("b = {v}.clone()", "c = b.detach()", "c.add_(1)", "b"),
    ("b = {v}.expand(2, *{v}.shape).clone()", "b[0].neg_()", "b.sum(0)"),
)


def _body(sketch: Sketch, parameters: str, returns: str = "{0}", v: str = "v") -> tuple[Block, str]:
    """A function of `v` that writes a new tensor, and may capture another one; and its name."""
    name, other = sketch.fresh("body"), sketch.tensor(is_real)
    *lines, result = sketch.pick.one(BODIES)
    lines.append(f"return {returns.format(result)}")
    return Block(
        f"def {name}({parameters}):", [line.format(other=other, v=v) for line in lines]
    ), name


@form("transforms", weight=4)
def functional_condition(sketch: Sketch) -> None:
    name = sketch.tensor(is_real)
    captured = sketch.pick.chance(15)  # rather than an operand
    parameter, operands, v = ("", "()", name) if captured else ("v", f"({name},)", "v")
    (one, first), (other, second) = (_body(sketch, parameter, v=v) for _ in range(2))
    made = sketch.fresh(), sketch.fresh()
    sketch.add(one, other, f"{made[0]}, {made[1]} = {first}(*{operands}), {second}(*{operands})")
    alike = len({(it.dtype, it.shape, it.stride()) for it in map(sketch.at, made)}) == 1
    del sketch.point[-1]  # eager runs one branch, a compiler both; the branches must be alike
    sketch.look()  # the names of the removed line are gone
    if not alike:
        raise NoChoice
    test = sketch.pick.one([f"{name}.sum() > 0", f"{name}.sum() < 0"])
    call = f"{sketch.fresh('r')} = torch.cond({test}, {first}, {second}, {operands})"
    around = objects(sketch)
    if not around or not sketch.pick.chance(15):
        sketch.add(call)
        return
    # Written before and after it, and read afterwards.
    where, fresh = f"{sketch.pick.one(around)}.total", sketch.fresh()
    after = sketch.pick.one([f"{where} = 3", f"{where} += 2"])
    sketch.add(f"{where} = 2", call, after, f"{fresh} = {name} * {where}")


@form("transforms", weight=3)
def loop_with_body(sketch: Sketch) -> None:
    """A loop, scan or map, whose carried or mapped values go through a body."""
    name = sketch.tensor(lambda it: is_real(it) and it.dim() > 0 and it.numel() > 0)
    parameters, returns, call = sketch.pick.one(
        [
            (
                "i, v",
                "i + 1, {0}",
                "torch.while_loop(lambda i, v: i < 2, {1}, (torch.tensor(0), {0}))",
            ),
            ("v, w", "{0}, v + w", "torch._higher_order_ops.scan({1}, {0}[0], {0})"),
            ("w, v", "w + v, {0}", "torch._higher_order_ops.scan({1}, {0}[0].clone(), {0})"),
            ("v", "{0}", "torch._higher_order_ops.map({1}, {0})"),
        ]
    )
    block, body = _body(sketch, parameters, returns)
    sketch.add(block, f"{sketch.fresh('r')} = {call.format(name, body)}")


@form("transforms", weight=2)
def region_twice(sketch: Sketch) -> None:
    """A region that is compiled once and called twice, with other aliases in each call."""
    function, pick = sketch.fresh("region"), sketch.pick
    body = [pick.one(["v.add_(1)", "w.mul_(2)", "v = v + w", "v[0] = 1", "w = v * 2"])]
    body.append(f"return {pick.one(['v * w', 'v + 1', 'v', 'w[...]', '(v * 2, w + v)'])}")
    block = Block(f"@torch.compiler.nested_compile_region\ndef {function}(v, w):", list(body))
    name = sketch.tensor()
    shape = sketch.at(name).shape
    others = [sketch.tensor(lambda it: it.shape == shape) for _ in range(2)]
    calls = [f"{sketch.fresh('r')} = {function}({name}, {other})" for other in others]
    sketch.add(*calls, definition=block)


# --- custom operators -----------------------------------------------------------------------------


@form("operators", place=EVERYWHERE, weight=4)
def custom_operator(sketch: Sketch) -> None:
    """A custom operator of ours (`ir/custom_operators.py`) that writes, or returns a new tensor."""
    name = sketch.tensor(lambda it: it.dtype is not torch.bool)
    at = sketch.at(name)
    other, third = (
        sketch.tensor(lambda it: (it.shape, it.dtype) == (at.shape, at.dtype)) for _ in range(2)
    )
    first = view_of(sketch, name) if other == name and sketch.pick.chance(20) else name
    call = sketch.pick.one(
        [
            f"add_both({first}, {other})",
            f"add_twice({first}, {other})",
            f"double({first})",
            f"add_into({first}, {other})",
            f"add_into({first})",
            f"running_sum([{name}, {other}, {third}])",
            f"add_if({first}, {other}, {sketch.pick.one(['True', 'False'])})",
            f"store_sum({name}, {other}, {third})",
            f"add_({first}, {other})",
            f"add_out({name}, {other}, out={third})",
            f"add_composite({first}, {other})",
            f"plus({name}, {other})",
            f"strides({first})",
        ]
    )
    sketch.add(f"{sketch.fresh('o')} = torch.ops.aliasproof.{call}")


@form("operators")
def operator_in_loop(sketch: Sketch) -> None:
    row, among = sketch.fresh("row"), rows(sketch)
    call = sketch.pick.one(["double({0})", "add_({0}, {0})", "add_both({0}, {0})"]).format(row)
    sketch.add(Block(f"for {row} in {among}:", [f"torch.ops.aliasproof.{call}"]))
