"""The tensors in modules and optimizers of a script, by names that are equal in two runs."""

from __future__ import annotations

import contextlib
import functools
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import fx, nn
from torch._inductor import config as inductor_config
from torch.optim import Optimizer

from aliasproof.ir.execution import SEED, seed_generators
from aliasproof.judge.rounding_control import wide_dtype
from aliasproof.running_model.verifying import COARSENESS, Way

_found: list[Any] = []
_autocast: list[torch.dtype] = []


@contextlib.contextmanager
def recording(file: Path, way: Way) -> Iterator[None]:
    """Run a script in this context, in the given way, and write its tensors as float64.

    Each module and optimizer that is made, copied or unpickled is kept. Patches are not undone, so
    the process must end soon.
    """
    made = (nn.Module, "__init__"), (nn.Module, "__setstate__"), (Optimizer, "__init__")
    for owner, name in made:
        setattr(owner, name, _keeping(getattr(owner, name)))
    if way == "perturbed":
        setattr(nn.Module, "__call__", _perturbing(nn.Module.__call__))  # noqa: B010
    if way != "compiled":  # Dynamo does not know the replacement
        torch.set_autocast_dtype = _noting_dtype(torch.set_autocast_dtype)
    # Draw random numbers in the order of eager, and without a seed of the script the same ones.
    inductor_config.fallback_random = True
    seed_generators()
    torch.cuda.manual_seed_all(SEED)  # also where CUDA starts later
    with torch.compiler.set_stance("default" if way == "compiled" else "force_eager"):
        yield
    kept = dict(_held())
    dtypes = [*_autocast, *(it.dtype for it in kept.values() if it.is_floating_point())]
    values: dict[str, Any] = {
        name: it.to(wide_dtype(it.dtype)).cpu().numpy() for name, it in kept.items()
    }
    values[COARSENESS] = np.array(max((torch.finfo(it).eps for it in dtypes), default=0.0))
    with file.open("wb") as opened:
        np.savez(opened, **values)


def _perturbing(original: Any) -> Any:
    """Change each parameter of a module by one rounding step, before the module's first call."""
    moved: dict[int, torch.Tensor] = {}  # kept alive, so that no other tensor gets the id

    @functools.wraps(original)
    def perturbing(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        for parameter in self._parameters.values():
            if isinstance(parameter, nn.Parameter) and id(parameter) not in moved:
                moved[id(parameter)] = parameter
                if parameter.is_floating_point() or parameter.is_complex():
                    # Through `data`, since tensors saved by autograd must not count as written.
                    parameter.data.mul_(1 + torch.finfo(parameter.dtype).eps)
        return original(self, *args, **kwargs)

    return perturbing


def _noting_dtype(original: Any) -> Any:
    def noting(device: str, dtype: torch.dtype) -> None:
        _autocast.append(dtype)
        original(device, dtype)

    return noting


def _keeping(original: Any) -> Any:
    @functools.wraps(original)
    def keeping(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        _found.append(self)

    return keeping


def _held() -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors of all kept objects, by class, index within the class, and attribute."""
    numbers: Counter[str] = Counter()
    for owner in {id(it): it for it in _found}.values():
        kind = type(owner).__name__
        of_torch = type(owner).__module__.startswith("torch._dynamo.")
        if of_torch or type(owner) is nn.Module or isinstance(owner, fx.GraphModule):
            continue  # compilers make these
        own: dict[str, object] = {}
        if isinstance(owner, Optimizer):
            parameters = [it for group in owner.param_groups for it in group["params"]]
            for index, parameter in enumerate(parameters):
                for name, value in owner.state.get(parameter, {}).items():
                    own[f"state of parameter {index}, {name}"] = value
        else:
            for name, value in {**owner._parameters, **owner._buffers}.items():
                own[name] = value
                if isinstance(value, torch.Tensor) and value.is_leaf:
                    own[f"{name}.grad"] = value.grad
        for name, value in own.items():
            if isinstance(value, torch.Tensor) and value.layout is torch.strided:
                yield f"{kind} {numbers[kind]}: {name}", value.detach()
        numbers[kind] += 1
