"""`FunctionalModule`: a function of tensors, as a model without views and writes.

ONNX and OpenVINO describe functions of values. A model must return the new contents of the inputs
that a program writes, and its caller copies them back.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any
from unittest import mock

import torch
from torch.export import exported_program
from torch.utils import _pytree as pytree

from aliasproof.ir.errors import Rejected
from aliasproof.ir.values import clone_inputs
from aliasproof.oracles.contract import Promise, Waiver
from aliasproof.targets.target import Function


def of_values_alone(values: str, layout: str) -> tuple[Waiver, ...]:
    """Waivers of a model whose outputs are `values` with a `layout` of their own."""
    lost = (Promise.KEEPS_ALIASES, Promise.IDENTITY, Promise.KEEPS_OBJECTS)
    return (
        *(Waiver(promise, values) for promise in lost),
        *(Waiver(promise, layout) for promise in (Promise.STRIDE, Promise.OFFSET)),
    )


class FunctionalModule(torch.nn.Module):
    """A module that returns the inputs that a function writes beside what the function returns.

    The function runs once, on inputs of its own, to find these and the form of what it returns.
    """

    def __init__(self, function: Any, inputs: Any) -> None:
        super().__init__()
        versions = [x._version for x in inputs]
        self.leaves, self.form = pytree.tree_flatten(function(*inputs))
        self.function = function
        written = [i for i, x in enumerate(inputs) if x._version != versions[i]]
        results = self.tensors(self.leaves)
        # An input that is returned anyway is not returned twice.
        returned = {id(y): place for place, y in enumerate(results)}
        self.returned = {i: returned[id(inputs[i])] for i in written if id(inputs[i]) in returned}
        self.added = [i for i in written if i not in self.returned]
        # Sizes and dtypes. A model has complex numbers as pairs.
        self.results = [y.to("meta") for y in (*results, *(inputs[i] for i in self.added))]

    def tensors(self, leaves: Any) -> list[Any]:
        return [y for y in leaves if isinstance(y, torch.Tensor)]

    def forward(self, *inputs: Any) -> Any:
        """Call it."""
        returned = self.tensors(pytree.tree_leaves(self.function(*inputs)))
        return (*returned, *(inputs[i] for i in self.added))

    def run(self, model: Any, inputs: Any) -> Any:
        """Run a model of it, and write the inputs."""
        results = [
            torch.complex(y[..., 0], y[..., 1]) if like.is_complex() else y
            for y, like in zip(model(*inputs), self.results, strict=True)
        ]
        count = len(results) - len(self.added)
        left = {i: results[place] for i, place in self.returned.items()}
        for i, new in (left | dict(zip(self.added, results[count:], strict=True))).items():
            inputs[i].copy_(new)
        rest = iter(results)
        leaves = [next(rest) if isinstance(y, torch.Tensor) else y for y in self.leaves]
        return pytree.tree_unflatten(leaves, self.form)


def functional_module(
    function: Function, inputs: Sequence[torch.Tensor]
) -> tuple[FunctionalModule, Any]:
    """The module, and its export by `torch.export.export` for these inputs.

    Raises `Rejected` if the module has nothing to return.
    """
    module = FunctionalModule(function, clone_inputs(inputs)).eval()
    if not module.results:
        raise Rejected("a model needs an output: the function returns nothing and writes no input")
    return module, torch.export.export(module, tuple(inputs))


def kept_composites() -> AbstractContextManager[object]:
    """Cache the set of all composite operators between exports: computing it takes 0.1 s."""
    return mock.patch.object(exported_program, COMPOSITES, _composites)


COMPOSITES = "_collect_all_valid_cia_ops"
_composites = functools.cache(vars(exported_program)[COMPOSITES])


SOURCE = f"""from typing import Any

from torch.utils import _pytree as pytree

{inspect.getsource(FunctionalModule)}"""
