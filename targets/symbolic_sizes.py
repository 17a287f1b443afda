"""Builds with symbolic sizes, by the name of the target.

A build takes the function and fake tensors with symbolic sizes, which it may mutate. It leaves its
guards in the `ShapeEnv` of these fakes. The function that it returns accepts fake and real tensors
of all sizes that satisfy the guards.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Sequence
from typing import TypeAlias

import torch
from torch._functorch.aot_autograd import aot_function
from torch.func import functionalize
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.passes.reinplace import reinplace

import reference_pass
from reference_pass.functionalize import Views
from reference_pass.noops import remove_noops
from targets.target import Function

SymbolicBuild: TypeAlias = Callable[[Function, Sequence[torch.Tensor]], Function]


def _identity(function: Function, fakes: Sequence[torch.Tensor]) -> Function:
    return function


def _functionalize(function: Function, fakes: Sequence[torch.Tensor]) -> GraphModule:
    return make_fx(functionalize(function), tracing_mode="symbolic")(*fakes)


def _fx_reinplace(function: Function, fakes: Sequence[torch.Tensor]) -> Function:
    return reinplace(copy.deepcopy(_functionalize(function, fakes)), *fakes)


def _aot(
    function: Function, fakes: Sequence[torch.Tensor], *, keep_input_mutations: bool
) -> Function:
    """Compiles in its first call, which must be on fakes."""
    return aot_function(
        function,
        fw_compiler=lambda graph, _: graph,
        keep_inference_input_mutations=keep_input_mutations,
        enable_log=False,
        dynamic=True,
    )


def _reference(function: Function, fakes: Sequence[torch.Tensor], *, views: Views) -> Function:
    functional = reference_pass.functionalize(function, *fakes, views=views, sizes="symbolic")
    return reference_pass.reinplace(remove_noops(functional))


# A target without an entry has no symbolic form: `prove` answers unknown.
SYMBOLIC: dict[str, SymbolicBuild] = {
    "identity": _identity,
    "functionalize": _functionalize,
    "fx-reinplace": _fx_reinplace,
    "aot": functools.partial(_aot, keep_input_mutations=True),
    "aot-epilogue": functools.partial(_aot, keep_input_mutations=False),
    "reference": functools.partial(_reference, views="alias"),
    "reference-copy": functools.partial(_reference, views="copy"),
}
