"""Functions that `torch.compile` gets wrong, each beside a right one that is like it.

The wrong ones are the programs of `aliasproof/corpus/bugs` as a user has them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from aliasproof.judge import python_case
from aliasproof.targets.target import Target


class Pairing(NamedTuple):
    """A wrong function with its layer and the oracle that sees it, a right one, and the inputs."""

    layer: str
    oracle: str
    wrong: Callable[..., Any]
    right: Callable[..., Any]
    inputs: Callable[[], Sequence[Any]]


def leaf() -> Tensor:
    return torch.ones(2).requires_grad_()


def result() -> Tensor:
    return leaf() * 1


def compile_with(monkeypatch: pytest.MonkeyPatch, wrong: Callable[[Any], Any]) -> None:
    """Let each target compile what is called as `wrong` does; eager stays."""

    def compiler(target: Target) -> Callable[[Any], Any]:
        return in_eager(target) if target.name == python_case.EAGER else wrong

    in_eager = python_case.compiler
    monkeypatch.setattr(python_case, "compiler", compiler)


# --- Parameters, .data, views ---------------------------------------------------------------------


def parameter_of_data(p: Tensor) -> Tensor:
    q = torch.nn.Parameter(p.data)
    with torch.no_grad():
        q.mul_(2)
    return p * q


def parameter_written(p: Tensor) -> Tensor:
    with torch.no_grad():
        p.mul_(2)
    return p * p.detach()


def data_given_and_written(p: Tensor, q: Tensor) -> None:
    p.data = q
    q.add_(1)


def data_copied(p: Tensor, q: Tensor) -> None:
    with torch.no_grad():
        p.copy_(q)
    q.add_(1)


def leaf_and_its_view(view: Tensor, whole: Tensor) -> Tensor:
    with torch.no_grad():
        view.mul_(2)
    return whole * 2


def leaf_beside_its_view(view: Tensor, whole: Tensor) -> Tensor:
    return view + whole * 2


def leaf_with_view() -> Sequence[Tensor]:
    whole = leaf()
    return whole[0], whole


def view_under_no_grad(x: Tensor) -> Tensor:
    with torch.no_grad():
        return x[0]


def copy_under_no_grad(x: Tensor) -> Tensor:
    with torch.no_grad():
        return x[0] * 1


def view_and_write_under_no_grad(x: Tensor) -> Tensor:
    with torch.no_grad():
        view = x[1:]
        x.mul_(3)
    return view


def write_under_no_grad(x: Tensor) -> Tensor:
    with torch.no_grad():
        x.mul_(3)
    return x[1:]


def gradient_into_written_leaf(p: Tensor) -> Tensor:
    with torch.no_grad():
        p[0].mul_(2)
    return (p * p).sum()


def leaf_squared(p: Tensor) -> Tensor:
    return (p * p).sum()


def gradient_state_of_alias(x: Tensor, p: Tensor) -> Tensor:
    x[0].mul_(p)
    return x * x.requires_grad


def written_by_parameter(x: Tensor, p: Tensor) -> Tensor:
    x[0].mul_(p)
    return x * 2


def rows_written(x: Tensor) -> None:
    for row in x:
        row.mul_(2)


def rows_written_by_index(x: Tensor) -> None:
    for index in range(2):
        x[index].mul_(2)


# --- functions of autograd ------------------------------------------------------------------------


class Saved(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return 2 * gradient * ctx.saved_tensors[0]


def saved_of_function_written(y: Tensor) -> Tensor:
    out = Saved.apply(y)
    y.mul_(2)
    return out


def saved_of_function(y: Tensor) -> Tensor:
    return Saved.apply(y)


class Both(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> tuple[Tensor, Tensor]:
        return x + 1, x

    @staticmethod
    def backward(ctx: Any, one: Tensor, other: Tensor) -> Tensor:
        return one + other


class BothNew(Both):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> tuple[Tensor, Tensor]:
        return x + 1, x * 1


def function_returns_input(x: Tensor) -> Tensor:
    return Both.apply(x)


def function_returns_new(x: Tensor) -> Tensor:
    return BothNew.apply(x)


class Dirty(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        x.mul_(2)
        ctx.mark_dirty(x)
        return x

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient * 5


class Clean(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient * 5


def dirty_input_not_rebased(h: Tensor) -> Tensor:
    return Dirty.apply(h)


def clean_input(h: Tensor) -> Tensor:
    return Clean.apply(h)


class Detached(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.detach()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient * 3


def detached_in_function(x: Tensor) -> Tensor:
    out = Detached.apply(x)
    with torch.no_grad():
        out.add_(1)
    return out


def detached(x: Tensor) -> Tensor:
    with torch.no_grad():
        x.add_(1)
    return x * 3


# --- hooks ----------------------------------------------------------------------------------------


def hook_on_returned_view(h: Tensor) -> tuple[Tensor, Tensor]:
    view = h[0]
    view.register_hook(lambda gradient: gradient * 7)
    return view, h * 1


def hook_on_result(h: Tensor) -> tuple[Tensor, Tensor]:
    first = h[0] * 1
    first.register_hook(lambda gradient: gradient * 7)
    return first, h * 1


def hook_on_written_input(h: Tensor) -> Tensor:
    h.register_hook(lambda gradient: gradient * 7)
    h.mul_(3)
    return h * 1


def hook_on_input(h: Tensor) -> Tensor:
    h.register_hook(lambda gradient: gradient * 7)
    return h * 3


def hook_removed(x: Tensor) -> Tensor:
    y = x * 2
    handle = y.register_hook(lambda gradient: gradient * 5)
    handle.remove()
    return y * 1


# --- state ----------------------------------------------------------------------------------------


class State:
    total = 1


def attribute_lost_after_cond(x: Tensor, state: State) -> None:
    state.total = 2
    torch.cond(x.sum() > 0, lambda v: v + 1, lambda v: v * 2, (x,))
    state.total = 3


def attribute_kept(x: Tensor, state: State) -> None:
    torch.cond(x.sum() > 0, lambda v: v + 1, lambda v: v * 2, (x,))
    state.total = 3


def set_of_intermediate(x: Tensor, y: Tensor) -> Tensor:
    z = x * 1
    z.set_(y)  # type: ignore[call-overload]
    z.add_(1)
    return z


def written_and_returned(x: Tensor, y: Tensor) -> Tensor:
    y.add_(1)
    return y


# --- the table ------------------------------------------------------------------------------------

AOT = "aot-eager"


def square() -> Tensor:
    return torch.arange(4.0).reshape(2, 2).requires_grad_()


def parameter() -> Tensor:
    return torch.nn.Parameter(torch.ones(2))


def given(*inputs: Callable[[], Any]) -> Callable[[], Sequence[Any]]:
    return lambda: [make() for make in inputs]


def ones() -> Tensor:
    return torch.ones(2)


def number() -> Tensor:
    return torch.tensor(2.0).requires_grad_()


PAIRINGS = (
    Pairing(AOT, "errors", parameter_of_data, parameter_written, given(parameter)),
    Pairing(AOT, "errors", data_given_and_written, data_copied, given(leaf, ones)),
    Pairing(AOT, "errors", leaf_and_its_view, leaf_beside_its_view, leaf_with_view),
    Pairing(AOT, "structure", view_under_no_grad, copy_under_no_grad, given(leaf)),
    Pairing(AOT, "errors", view_and_write_under_no_grad, write_under_no_grad, given(leaf)),
    Pairing("inductor", "values", gradient_into_written_leaf, leaf_squared, given(square)),
    Pairing("dynamo", "values", gradient_state_of_alias, written_by_parameter, given(ones, number)),
    Pairing("dynamo", "errors", rows_written, rows_written_by_index, given(result)),
    Pairing("dynamo", "errors", saved_of_function_written, saved_of_function, given(result)),
    Pairing("dynamo", "objects", function_returns_input, function_returns_new, given(ones)),
    Pairing(AOT, "values", dirty_input_not_rebased, clean_input, given(result)),
    Pairing(AOT, "aliasing", detached_in_function, detached, given(leaf)),
    Pairing(AOT, "values", hook_on_returned_view, hook_on_result, given(result)),
    Pairing(AOT, "values", hook_on_written_input, hook_on_input, given(result)),
    Pairing("dynamo", "errors", hook_removed, hook_on_result, given(result)),
    Pairing("dynamo", "values", attribute_lost_after_cond, attribute_kept, given(ones, State)),
    Pairing(AOT, "aliasing", set_of_intermediate, written_and_returned, given(ones, ones)),
)
