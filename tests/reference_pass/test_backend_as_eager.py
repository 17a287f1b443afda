"""Steps of programs under the backend: all that a caller sees after three calls is as in eager.

The first call is special: it runs the graph before reinplacing. So there are three.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._higher_order_ops.map import map as map_
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop

from aliasproof.reference_pass.backend.dynamo_backend import aliasproof

CALLS = 3
Compile = Callable[[Callable[..., Any]], Callable[..., Any]]
Steps = Callable[[Compile], Any]


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def observed(steps: Steps, compiled: Compile) -> list[object]:
    """What steps return, with strides, or the kind of error that they raise."""
    torch.manual_seed(0)
    try:
        result = steps(compiled)
    except RuntimeError as error:
        return ["version" if "modified by an inplace operation" in str(error) else str(error)]
    leaves = torch.utils._pytree.tree_leaves(result)
    return [
        (leaf.stride(), leaf.detach().tolist()) if isinstance(leaf, Tensor) else leaf
        for leaf in leaves
    ]


# --- bodies of control flow that write what they own ----------------------------------------------


def added_in_place(x: Any) -> Any:
    y = x.clone()
    y.add_(1)
    return y


def branches(compiled: Compile) -> Any:
    call = compiled(lambda p, x: torch.cond(p, added_in_place, lambda x: x * 3, (x,)))
    return [call(torch.tensor(p), torch.ones(4)) for p in (True, False, True)]


def mapped(compiled: Compile) -> Any:
    call = compiled(lambda x: map_(added_in_place, x))  # type: ignore[arg-type]
    return [call(torch.ones(3, 4)) for _ in range(CALLS)]


def scanned(compiled: Compile) -> Any:
    def step(carry: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        new = carry.clone()
        new.add_(x)
        return new, new * 2

    call = compiled(lambda start, x: scan(step, start, x))
    return [call(torch.zeros(4), torch.ones(3, 4)) for _ in range(CALLS)]


def looped(compiled: Compile) -> Any:
    def body(index: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        return added_in_place(index), added_in_place(x)

    call = compiled(lambda x: while_loop(lambda i, _: i < 3, body, (torch.tensor(0), x)))
    return [call(torch.ones(4)) for _ in range(CALLS)]


# --- writes that autograd does not record ---------------------------------------------------------


def clamps_others(compiled: Compile) -> Any:
    """A training step of one module, which clamps the weights of another one."""
    one, other = nn.Linear(3, 3), nn.Linear(3, 3)
    parameters = [*one.parameters(), *other.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=0.1)

    @compiled
    def loss(x: Tensor) -> Any:
        with torch.no_grad():
            for parameter in other.parameters():
                parameter.clamp_(-0.5, 0.5)
            other.weight[0].mul_(2)
        return one(x).sum()

    seen: list[object] = []
    for _ in range(CALLS):
        loss(torch.ones(2, 3)).backward()
        seen += [parameter.grad for parameter in parameters]
        optimizer.step()
        optimizer.zero_grad()
    return [*seen, *parameters]


def writes_a_view_of_a_leaf(compiled: Compile) -> Any:
    weight = torch.ones(4, 4, requires_grad=True)

    @compiled
    def call(x: Tensor) -> Tensor:
        view = weight.t()
        with torch.no_grad():
            view[0].mul_(0.5)
        return x @ weight

    for _ in range(CALLS):
        call(torch.ones(2, 4)).sum().backward()
    return [weight, weight.grad]


def writes_to_a_part(compiled: Compile) -> Any:
    """The gradient of what is written is no view of that of the whole."""
    weight = torch.ones(2, 3, requires_grad=True)

    @compiled
    def call(x: Tensor) -> Tensor:
        x[1:3] = weight
        return x * 2

    for _ in range(CALLS):
        call(torch.ones(10, 3)).sum().backward()
    assert weight.grad is not None
    return [weight.grad, weight.grad.untyped_storage().nbytes()]


def writes_attributes(compiled: Compile) -> Any:
    """Dynamo makes parameters that a closure holds attributes of its graph, and not inputs."""
    layer = nn.Linear(6, 6, bias=False)
    optimizer = torch.optim.Muon(layer.parameters(), lr=0.1)
    step = compiled(lambda: optimizer.step())  # noqa: PLW0108
    for _ in range(CALLS):
        optimizer.zero_grad()
        layer(torch.ones(2, 6)).pow(2).sum().backward()
        step()
    return layer.weight


def writes_a_result(compiled: Compile) -> Any:
    weight = torch.ones(3, 3, requires_grad=True)

    @compiled
    def call(h: Tensor) -> Tensor:
        with torch.no_grad():
            h[0].mul_(2)
            h[1].copy_(weight[0] * 3)
        return h * weight

    for _ in range(CALLS):
        h = weight * 2
        history = h.grad_fn
        (call(h).sum() + h.sum()).backward()
        assert h.grad_fn is history
    return weight.grad


# --- inputs with a history ------------------------------------------------------------------------


def truncated(compiled: Compile) -> Any:
    """Backpropagation through time, truncated: the history of the state is freed by then."""
    cell = nn.LSTMCell(3, 3)

    @compiled
    def call(x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        h, c = cell(x, (h.detach(), c.detach()))
        h = h.clone()
        h[:, 0].mul_(0.5)
        return h, c

    h = c = torch.zeros(2, 3)
    for _ in range(CALLS):
        h, c = call(torch.ones(2, 3), h, c)
        (h.sum() + c.sum()).backward()
    return [parameter.grad for parameter in cell.parameters()]


def overwrites_what_is_saved(compiled: Compile) -> Any:
    @compiled
    def call(view: Tensor, x: Tensor, weight: Tensor) -> Tensor:
        y = x * weight
        view.add_(1)
        return y

    x, weight = torch.ones(2, 2), torch.ones(2, 2, requires_grad=True)
    call(x.view(-1), x, weight).sum().backward()
    return weight.grad


# --- inputs that share storage, of which autograd saves one ---------------------------------------


def statistics_in_one_tensor(compiled: Compile) -> Any:
    both, norm = torch.tensor([0.0] * 4 + [1.0] * 4), nn.BatchNorm1d(4)
    norm.running_mean, norm.running_var = both[:4], both[4:]
    call, seen = compiled(lambda x: norm(x) * 2), []
    for _ in range(CALLS):
        x = torch.randn(5, 4, requires_grad=True)
        call(x).pow(2).sum().backward()
        seen.append(x.grad)
    return [*seen, both]


def writes_one_half(compiled: Compile) -> Any:
    base = torch.arange(8.0)

    @compiled
    def call(a: Tensor, b: Tensor, weight: Tensor) -> Tensor:
        y = a * weight
        b.add_(1)
        return y

    weight = torch.ones(4, requires_grad=True)
    for _ in range(CALLS):  # `data`: each has versions of its own
        call(base.data[:4], base.data[4:], weight).sum().backward()
    return [weight.grad, base]


# --- the rest -------------------------------------------------------------------------------------


def data_dependent(compiled: Compile) -> Any:
    @compiled
    def call(x: Tensor) -> Tensor:
        z = x[x > 0] * 2
        z.mul_(3)
        return z.sum()

    x = torch.tensor([1.0, -1.0, 2.0], requires_grad=True)
    for _ in range(CALLS):
        call(x).backward()
    return x.grad


@pytest.mark.parametrize(
    "steps",
    [
        *(branches, mapped, scanned, looped),
        *(clamps_others, writes_a_view_of_a_leaf, writes_attributes, writes_a_result),
        *(writes_to_a_part, truncated, overwrites_what_is_saved),
        *(statistics_in_one_tensor, writes_one_half, data_dependent),
    ],
    ids=lambda steps: steps.__name__,
)
def test_all_that_a_caller_sees_is_as_in_eager(steps: Steps) -> None:
    expected = observed(steps, lambda function: function)
    assert observed(steps, lambda f: torch.compile(f, backend=aliasproof)) == expected


# --- operators that keep what they are given ------------------------------------------------------

KEPT: list[Tensor] = []


@pytest.fixture
def keeping():
    """`store` keeps its operand, and `load` returns it plus another one."""
    with torch.library._scoped_library("aliasproof_keeping", "DEF") as library:
        library.define("store(Tensor x) -> Tensor")
        library.define("load(Tensor x) -> Tensor")

        def store(x: Tensor) -> Tensor:
            KEPT[:] = [x]
            return x * 2

        library.impl("store", store, "CPU")
        library.impl("load", lambda x: KEPT[0] + x, "CPU")
        for name in ("store", "load"):
            library.impl(name, torch.empty_like, "Meta")
        yield torch.ops.aliasproof_keeping
    KEPT.clear()


@pytest.mark.parametrize(
    ("stated", "expected"), [((), [20.0] * 4), (("store", "load"), [20.0, 24.0, 24.0, 24.0])]
)
def test_an_operator_may_keep_its_operands_unless_it_is_stated(keeping, stated, expected):
    """The first call is not reinplaced yet. `load` is wrong where it is said to keep nothing."""

    def program(x: Tensor) -> Any:
        a = x + 1
        stored = keeping.store(a)
        b = a + 1
        return keeping.load(b) * stored

    options: Any = {"non_aliasing": [getattr(keeping, name).default for name in stated]}
    call = torch.compile(program, backend=aliasproof, options=options)
    assert [call(torch.ones(1)).item() for _ in range(4)] == expected


def test_a_storage_that_is_resized_is_refused():
    def program(x: Tensor, y: Tensor) -> Tensor:
        x.untyped_storage().resize_(0)
        x.untyped_storage().resize_(12)
        x.copy_(y)
        return x * 2

    with pytest.raises(Exception, match="resizes a storage below tensors that show it"):
        torch.compile(program, backend=aliasproof)(torch.zeros(3), torch.ones(3))
