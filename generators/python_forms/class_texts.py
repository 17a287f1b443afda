"""Classes that programs have: objects with state, records, modules."""

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
# What a class may have besides: each is a part of a program in which Python calls it.
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
    """The texts of `State`, and of the class that it may be made of."""
    parents = [PARENT.strip()] if pick.chance(25) else []
    text = _STATE.format(parent="(Base)" * bool(parents)).rstrip()
    members = [pick.one(_MEMBERS) for _ in range(pick.integer(0, 2))]
    # A later method of the same name takes the place of an earlier one.
    return [*parents, "\n".join([text.strip(), *dict.fromkeys(it.rstrip() for it in members)])]


def record_class(pick: Pick) -> str:
    """The text of a dataclass."""
    return RECORD.format(options=pick.one(["", "", "(frozen=True)"])).strip()


def layer_class(pick: Pick) -> str:
    """The text of a module."""
    more = pick.one(_MORE)
    more = f"\n        {more}" if more else ""
    return _LAYER.format(more=more, write=pick.one(_WRITES), result=pick.one(_RESULTS)).strip()
