"""Source texts of classes in programs: objects with state, records, modules."""

from __future__ import annotations

from aliasproof.generators.scene import Pick

_STATE = """
class State{parent}:
    shared = torch.zeros(2)
    history = []

    def __init__(self, first):
        self.first = first
        self.cache = torch.ones(3)

    def memory(self, x):
        self.last = x
        self.cache.add_(1)
        return self.cache[1:]
"""
PARENT = """
class Base:
    count = 1

    def scale(self, x):
        return x.mul_(2)
"""
# Optional members of a class: each has a part of a program, which Python calls implicitly.
_MEMBERS = (
    """
    @property
    def view_of(self):
        return self.cache[:2]
""",
    """
    @property
    def view_of(self):
        return self.first

    @view_of.setter
    def view_of(self, value):
        self.first = value
        self.cache.add_(1)
""",
    """
    @property
    def total(self):
        self.cache.mul_(2)
        return self.cache
""",
    """
    def __call__(self, x):
        self.inner = x
        return x.add_(self.cache[0])
""",
    """
    def __getitem__(self, index):
        return self.cache[index:]

    def __setitem__(self, index, value):
        self.cache[index] = 2
        self.first = value
""",
    """
    def __iadd__(self, other):
        self.cache += 1
        self.last = other
        return self
""",
    """
    @classmethod
    def other(cls, x):
        cls.shared = x
        return x
""",
    """
    @staticmethod
    def other(x):
        State.history.append(x)
        return x.view(-1)
""",
)
RECORD = """
@dataclasses.dataclass{options}
class Record:
    first: torch.Tensor
    second: torch.Tensor
    history: list = dataclasses.field(default_factory=list)

    def memory(self, x):
        self.history.append(x)
        return self.first.add_(1)
"""
_LAYER = """
class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.arange(4.0))
        self.register_buffer("buffer", torch.arange(4.0))
        self.history = []{more}

    def forward(self, x):
        {write}
        return {result}
"""
_MORE = (
    "",
    "",
    "self.tied = self.weight",
    'self.register_buffer("memory", self.buffer[1:])',
    'self.register_buffer("memory", self.weight.detach()[:2], persistent=False)',
    "self.bias = torch.nn.Parameter(self.weight.detach()[:2])",
    "self.inner = torch.nn.ParameterList([self.weight, torch.nn.Parameter(torch.ones(2))])",
    "self.inner = torch.nn.ModuleList([torch.nn.Linear(2, 2)])",
)
_WRITES = (
    "self.buffer.add_(1)",
    "self.buffer[0] = x.sum().detach()",
    "self.history.append(x)",
    "self.buffer = self.buffer * 2",
    "self.buffer.copy_(self.weight.detach())",
    "x = x + self.buffer[0]",
    "self.buffer.add_(self.training)",
    "self.weight.data.add_(1)",
)
_RESULTS = (
    "x * self.weight.sum()",
    "self.weight",
    "self.weight * self.buffer",
    "self.buffer[:2]",
    "x",
    "(x * 2).add_(self.weight[0])",
)


def state_class(pick: Pick) -> list[str]:
    """The texts of `State`, and of its base class, if it has one."""
    parents = [PARENT.strip()] if pick.chance(25) else []
    text = _STATE.format(parent="(Base)" * bool(parents)).rstrip()
    members = [pick.one(_MEMBERS) for _ in range(pick.integer(0, 2))]
    # A later method overrides an earlier one of the same name.
    return [*parents, "\n".join([text.strip(), *dict.fromkeys(it.rstrip() for it in members)])]


def record_class(pick: Pick) -> str:
    """The text of a dataclass."""
    return RECORD.format(options=pick.one(["", "", "(frozen=True)"])).strip()


def layer_class(pick: Pick) -> str:
    """The text of a module."""
    more = pick.one(_MORE)
    more = f"\n        {more}" if more else ""
    return _LAYER.format(more=more, write=pick.one(_WRITES), result=pick.one(_RESULTS)).strip()


# --- function texts -------------------------------------------------------------------------------
#
# Custom `autograd.Function`s, as people write them: each saves, writes or returns its arguments.


def _function(name: str, forward: str, backward: str, more: str = "") -> str:
    """The text of a class; semicolons separate the statements of its two methods."""
    lines = [f"class {name}(torch.autograd.Function):"]
    for method, text in (("forward", forward), ("backward", backward)):
        parameters, _, body = text.partition(":")
        lines += ["    @staticmethod", *[f"    {more}"] * (bool(more) and method == "backward")]
        lines += [f"    def {method}(ctx, {parameters.strip()}):"]
        lines += [f"        {statement.strip()}" for statement in body.split(";")]
        lines += [""]
    return "\n".join(lines).strip()


# By name; a Function takes as many tensors as `forward` has parameters.
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
    "Collects": ("x: return x * 2", "grad: collected.append(grad); return grad.mul_(2)"),
}


def text_of(name: str) -> str:
    """The definition that a call of this Function needs."""
    forward, backward = FUNCTIONS[name]
    more = "@torch.autograd.function.once_differentiable" if name == "Collects" else ""
    before = "collected = []\n\n\n" if name == "Collects" else ""
    return before + _function(name, forward, backward, more)


def tensor_count(name: str) -> int:
    """The number of tensors that this Function takes."""
    return FUNCTIONS[name][0].partition(":")[0].count(",") + 1
