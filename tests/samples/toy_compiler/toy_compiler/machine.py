"""The compiler: it interprets the ATen calls that it traces, and has one bug."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import fx
from torch.fx.experimental.proxy_tensor import make_fx


def load(x: torch.Tensor) -> torch.Tensor:
    """The bug: the machine computes with copies of its inputs, and copies nothing back."""
    return x.clone()


def compiled(
    function: Callable[..., object], inputs: tuple[torch.Tensor, ...], *, shared: bool = False
) -> Callable[..., object]:
    machine = fx.Interpreter(make_fx(function)(*inputs))
    return machine.run if shared else lambda *given: machine.run(*map(load, given))
