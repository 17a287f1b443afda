"""Custom `autograd.Function`s, as people write them: each keeps, writes or returns what it gets."""

from __future__ import annotations


def _function(name: str, forward: str, backward: str, more: str = "") -> str:
    """The text of a class; the statements of its two methods are parted by semicolons."""
    lines = [f"class {name}(torch.autograd.Function):"]
    for method, text in (("forward", forward), ("backward", backward)):
        parameters, _, body = text.partition(":")
        lines += ["    @staticmethod", *[f"    {more}"] * (bool(more) and method == "backward")]
        lines += [f"    def {method}(ctx, {parameters.strip()}):"]
        lines += [f"        {statement.strip()}" for statement in body.split(";")]
        lines += [""]
    return "\n".join(lines).strip()


# By name; how many tensors it takes is the number of parameters of `forward`.
FUNCTIONS = {
    "Same": ("x: return x", "grad: return grad * 2"),
    "Dirty": ("x: x.mul_(2); ctx.mark_dirty(x); return x", "grad: return grad * 2"),
    "TwoDirty": (
        "x, y: x.mul_(2); y.add_(1); ctx.mark_dirty(x, y); return x, y",
        "first, second: return first * 2, second",
    ),
    "OneOfTwoDirty": (
        "x, y: y.mul_(2); ctx.mark_dirty(y); return x + y, y",
        "first, second: return first, first + second * 2",
    ),
    "DirtySaved": (
        "x: ctx.save_for_backward(x); y = x.exp_(); ctx.mark_dirty(x); return y",
        "grad: x, = ctx.saved_tensors; return grad * x",
    ),
    "Saved": (
        "x: y = x * x; ctx.save_for_backward(x, y); return y",
        "grad: x, y = ctx.saved_tensors; return 2 * grad * x",
    ),
    "SavedResult": (
        "x: y = x.exp(); ctx.save_for_backward(y); return y",
        "grad: y, = ctx.saved_tensors; return grad * y",
    ),
    "Attribute": ("x: ctx.last = x; return x * x", "grad: return 2 * grad * ctx.last"),
    "Kept": (
        "x: ctx.state = [x]; y = x * 2; ctx.state.append(y); return y",
        "grad: ctx.state[0].detach().add_(1); return grad * ctx.state[1]",
    ),
    "WritesSaved": (
        "x: y = x * 2; ctx.save_for_backward(y.detach()); return y",
        "grad: y, = ctx.saved_tensors; y.add_(1); return grad * y",
    ),
    "WritesInput": ("x: x.detach().add_(1); return x * 2", "grad: return grad * 2"),
    "PartOf": ("x: return x.view(-1)", "grad: return grad.add_(1)"),
    "Optional": (
        "x: ctx.set_materialize_grads(False); return x * 2, x + 1",
        "first, second: return second if first is None else first",
    ),
    "Pair": ("x, y: return x + y, y", "first, second: return first, first + second"),
    "Swapped": ("x, y: return y, x", "first, second: return second * 2, first * 3"),
    "NotDifferentiable": (
        "x: y = x + 1; ctx.mark_non_differentiable(y); return x * 2, y",
        "first, second: return first * 2",
    ),
    "Needs": (
        "x, y: ctx.first = x.detach(); return x * y.detach()",
        "grad: return (grad * 2 if ctx.needs_input_grad[0] else None), None",
    ),
    "Collects": (
        "x: return x * 2",
        "grad: collected.append(grad); return grad.mul_(2)",
    ),
}


def text_of(name: str) -> str:
    """The definition that a call of the Function needs."""
    forward, backward = FUNCTIONS[name]
    more = "@torch.autograd.function.once_differentiable" if name == "Collects" else ""
    before = "collected = []\n\n\n" if name == "Collects" else ""
    return before + _function(name, forward, backward, more)


def taken(name: str) -> int:
    """How many tensors it takes."""
    return FUNCTIONS[name][0].partition(":")[0].count(",") + 1
