"""`first_new_value`: the first call of a graph whose value eager never has.

What a compiler makes of a program computes the values that eager has, at some time, and those of
its own: the inverse of a view, a copy. The first value that no tensor of eager ever has, on the way
to a wrong result, is where a reader should look. It is a hint, and no proof: a compiler may compute
a new value and be right.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import torch
from torch import fx

from aliasproof.ir.eager_call import tensors_in
from aliasproof.ir.execution import seed_generators

MOST_ELEMENTS = 1 << 14  # of a value; larger ones are not compared
RTOL, ATOL = 1e-3, 1e-5


class _ValueRecorder(fx.Interpreter):
    """Runs a graph. `values` has what each node returned, `history` all that its tensors had."""

    def __init__(self, graph_module: fx.GraphModule) -> None:
        super().__init__(graph_module)
        self.values: dict[str, list[torch.Tensor]] = {}
        self.history: list[torch.Tensor] = []
        self._alive: list[torch.Tensor] = []

    def run_node(self, n: fx.Node) -> Any:
        result = super().run_node(n)
        made = [it for it in tensors_in(result) if it.numel() <= MOST_ELEMENTS]
        self.values[n.name] = [_elements(it) for it in made]
        self._alive += made
        self.history += map(_elements, self._alive)
        return result


def first_new_value(
    before: tuple[fx.GraphModule, Sequence[object]],
    after: tuple[fx.GraphModule, Sequence[object]],
    candidates: Collection[str],
) -> str | None:
    """The first node among the candidates whose value no tensor has in a run of `before`.

    Each graph is given with its own inputs. None if there is none, or if a graph does not run.
    """
    runs = []
    for graph_module, inputs in (before, after):
        recorder = _ValueRecorder(graph_module)
        seed_generators()
        try:
            with torch.no_grad():
                recorder.run(*inputs)
        except Exception:  # noqa: BLE001 - a hint is left out; the verdicts say what is wrong
            return None
        runs.append(recorder)
    ours, theirs = runs
    for name, values in theirs.values.items():
        if name in candidates and any(not _is_in(value, ours.history) for value in values):
            return name
    return None


def _is_in(value: torch.Tensor, history: Sequence[torch.Tensor]) -> bool:
    return any(_alike(value, other) for other in history)


def _alike(one: torch.Tensor, other: torch.Tensor) -> bool:
    if one.dtype != other.dtype or one.numel() != other.numel():
        return False
    if one.dtype.is_floating_point or one.dtype.is_complex:
        return torch.allclose(one, other, rtol=RTOL, atol=ATOL, equal_nan=True)
    return torch.equal(one, other)


def _elements(tensor: torch.Tensor) -> torch.Tensor:
    """A copy of the elements, in order, in a dtype that can be compared."""
    flat = tensor.detach().reshape(-1).clone()
    short = flat.dtype.is_floating_point and flat.dtype.itemsize < 4
    return flat.float() if short else flat
