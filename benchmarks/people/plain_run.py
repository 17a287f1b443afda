"""Plain runs: eager, and `torch.compile` with a pass, compared by tensors alone.

Nothing of aliasproof is used here. It says independently which planted passes change a result.
"""

from __future__ import annotations

import copy
import functools
import types
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch
import torch._dynamo
from functorch.compile import make_boxed_func
from torch import Tensor, fx
from torch._dynamo.backends.common import aot_autograd

from benchmarks.people.people_functions import World, world

Pass: TypeAlias = Callable[[fx.GraphModule], fx.GraphModule]
# What a run leaves: tensors and numbers by where they are, or the text of an exception.
Left: TypeAlias = dict[str, Any]
_SEED = 5
MOST_SITES = 40  # that are tried, per kind


@dataclass(slots=True)
class GivenGraph:
    """A graph that a compiler got, with copies of the arguments of its first call."""

    graph: fx.GraphModule
    inputs: list[Any] = field(default_factory=list)


# --- runs -----------------------------------------------------------------------------------------


def eager_run(name: str) -> Left:
    """What the function leaves behind in eager."""
    return _run(world(name), lambda function: function)


def compiled_run(name: str, planted: Pass | None, graphs: list[GivenGraph] | None = None) -> Left:
    """What it leaves under `torch.compile`, whose graphs go through a pass. Graphs are noted."""

    def compiler(graph: fx.GraphModule, _: Sequence[object]) -> Callable[..., object]:
        given = GivenGraph(copied(graph))
        if graphs is not None:
            graphs.append(given)
        changed = graph if planted is None else planted(graph)

        def run(*args: Any) -> object:
            if not given.inputs:
                given.inputs = copies(args)
            return changed(*args)

        return make_boxed_func(run)

    backend = aot_autograd(
        fw_compiler=compiler,
        bw_compiler=compiler,
        inference_compiler=compiler,
        keep_inference_input_mutations=True,
    )
    torch._dynamo.reset()
    try:
        return _run(world(name), lambda function: torch.compile(function, backend=backend))
    finally:
        torch._dynamo.reset()


def _run(fresh: World, compiled: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Left:
    """With gradients enabled, as a user calls a function, and as `check` does."""
    args, kwargs = _call_forms(fresh.inputs)
    torch.manual_seed(_SEED)
    try:
        returned = compiled(fresh.function)(*args, **kwargs)
    except Exception as error:  # noqa: BLE001 - what a wrong pass raises is its result
        return {"raises": f"{type(error).__name__}: {error}"}
    left: Left = {}
    seen: set[int] = set()
    for place, value in (
        ("returned", returned),
        ("args", args),
        ("kwargs", kwargs),
        ("file", vars(fresh.file)),
    ):
        left |= dict(_found(place, value, seen))
    return left


def _call_forms(inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The forms of docs/check.md that occur here."""
    pair = type(inputs) is tuple and len(inputs) == 2
    if pair and type(inputs[0]) is tuple and type(inputs[1]) is dict:
        return inputs
    return (inputs, {}) if type(inputs) is tuple else ((inputs,), {})


def _found(place: str, value: Any, seen: set[int]) -> Iterator[tuple[str, Any]]:
    """The tensors that can be reached, and the numbers, by their places."""
    if isinstance(value, Tensor):
        yield place, value.detach().clone()
        if value.is_leaf and value.grad is not None:
            yield f"{place}.grad", value.grad.detach().clone()
        return
    if isinstance(value, bool | int | float | str | None):
        yield place, value
        return
    if id(value) in seen or isinstance(value, _CODE):
        return
    seen.add(id(value))
    if isinstance(value, dict):
        # A key may be a parameter.
        keys = [key if isinstance(key, str) else number for number, key in enumerate(value)]
        parts = [
            (str(key), part)
            for key, part in zip(keys, value.values(), strict=True)
            if key not in _NOT_LEFT and not str(key).startswith("__")
        ]
    elif isinstance(value, list | tuple):
        parts = [(str(number), part) for number, part in enumerate(value)]
    else:
        yield from _found(place, getattr(value, "__dict__", {}), seen)
        return
    for key, part in parts:
        yield from _found(f"{place}.{key}", part, seen)


# What importing and compiling leave.
_NOT_LEFT = ("annotations", "_is_torch_compile")
_CODE = (
    type,
    torch.dtype,
    torch.device,
    types.ModuleType,
    types.FunctionType,
    types.BuiltinFunctionType,
    types.MethodType,
    functools._lru_cache_wrapper,
)


def differences(one: Left, other: Left) -> list[str]:
    """The places where two runs differ by more than the tolerance of `torch.testing`."""
    return [place for place in {**one, **other} if not _same(one.get(place), other.get(place))]


def _same(one: Any, other: Any) -> bool:
    if not isinstance(one, Tensor) or not isinstance(other, Tensor):
        return type(one) is type(other) and (one == other or one != one)
    try:
        torch.testing.assert_close(one, other, equal_nan=True)
    except AssertionError:
        return False
    return True


# --- a pass alone on a graph ----------------------------------------------------------------------


def changes(planted: Pass, given: GivenGraph) -> bool:
    """Whether a pass changes what a graph returns, or leaves in its arguments."""
    changed = planted(copied(given.graph))
    return bool(differences(_alone(given.graph, given.inputs), _alone(changed, given.inputs)))


def _alone(graph: fx.GraphModule, inputs: Sequence[Any]) -> Left:
    args = copies(inputs)
    torch.manual_seed(_SEED)
    try:
        with torch.no_grad():
            returned = graph(*args)
    except Exception as error:  # noqa: BLE001 - as above
        return {"raises": f"{type(error).__name__}: {error}"}
    seen: set[int] = set()
    return dict([*_found("returned", returned, seen), *_found("args", args, seen)])


def copied(graph: fx.GraphModule) -> fx.GraphModule:
    """A copy with the constants of the original, which may be fake."""
    return fx.GraphModule(graph, copy.deepcopy(graph.graph))


def copies(args: Sequence[Any]) -> list[Any]:
    """Copies that share memory as the arguments do."""
    plain = [arg.detach() if isinstance(arg, Tensor) else arg for arg in args]
    return copy.deepcopy(plain)
