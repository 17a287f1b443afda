"""Whether a script prints and ends with the same in eager and compiled as it is, up to rounding.

Each run has a process of its own. Where another run in eager differs, as in times, nothing is
compared. Modules of that run begin with parameters that are off by one rounding: what this changes
is ill-conditioned, as a step of Adam for a gradient that is zero but for rounding.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from torch import fx, nn
from torch._inductor import config as inductor_config
from torch.optim import Optimizer

from aliasproof.judge.rounding_control import wide_dtype

_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?|nan|[-+]?inf", re.IGNORECASE)
SMALLEST = 1e-6  # of what is printed: below, a number is as good as zero
Way: TypeAlias = Literal["eager", "perturbed", "compiled"]  # perturbed: also in eager
# Runs the script in a way, and writes its tensors. The exit status.
Run: TypeAlias = Callable[[Path, Way], int]
COARSENESS = "coarseness"  # of the dtypes: the distance from 1 to the next number


@dataclass(frozen=True, slots=True)
class _Ending:
    """The exit status of a run, what it printed, and the tensors at its end as float64."""

    status: int
    printed: str
    tensors: Mapping[str, np.ndarray]

    def differing(self, other: _Ending) -> set[str]:
        """What differs by more than rounding."""
        limit = max(float(self.tensors.get(COARSENESS, 0.0)), 2.0**-23) ** 0.5
        names = (self.tensors.keys() | other.tensors.keys()) - {COARSENESS}
        wrong = {name for name in names if not self._agrees(other, name, limit)}
        ours, theirs = self.printed.splitlines(), other.printed.splitlines()
        wrong |= {
            f"printed line {number}"
            for number, pair in enumerate(zip(ours, theirs, strict=False), 1)
            if not _alike(*pair, limit)
        }
        wrong |= {"number of printed lines"} if len(ours) != len(theirs) else set()
        return wrong | ({"exit status"} if self.status != other.status else set())

    def _agrees(self, other: _Ending, name: str, limit: float) -> bool:
        one, two = self.tensors.get(name), other.tensors.get(name)
        if one is None or two is None:  # a gradient of zeros is as good as none
            return not np.any(two if one is None else one)
        if one.shape != two.shape:
            return False
        # A gradient can be zero in exact arithmetic: its noise is small beside other gradients.
        kind = re.split(r"[.,] ?", name)[-1]
        alike = [it for key, it in self.tensors.items() if key.endswith(kind)]
        largest = max(float(np.abs(it[np.isfinite(it)]).max(initial=0.0)) for it in alike)
        atol = limit * largest + SMALLEST**2
        return bool(np.allclose(one, two, rtol=0, atol=atol, equal_nan=True))


def _alike(one: str, other: str, limit: float) -> bool:
    """Whether two lines differ in the last digits of numbers only."""
    if _NUMBER.sub("0", one) != _NUMBER.sub("0", other):
        return False
    pairs = zip(_NUMBER.findall(one), _NUMBER.findall(other), strict=True)
    return all(
        np.isclose(float(ours), float(theirs), rtol=limit, atol=SMALLEST, equal_nan=True)
        for ours, theirs in pairs
    )


def verify(run: Run) -> tuple[int, bool, str]:
    """The exit status of the compiled run, whether both agree, and a line that says so."""
    eager, compiled = _ended(run, "eager"), _ended(run, "compiled")
    sys.stdout.write(compiled.printed)
    sys.stdout.flush()
    wrong = eager.differing(compiled)
    left_out = wrong & eager.differing(_ended(run, "perturbed")) if wrong else set()
    wrong -= left_out
    number = len(eager.tensors.keys() - {COARSENESS})
    what = f"what it prints and {number} tensors of its modules and optimizers"
    rest = ""
    if left_out:
        rest = (
            "; not compared, since eager with parameters off by one rounding differs, too:"
            f" {len(left_out)}, {_shown(left_out)}"
        )
    if not wrong:
        return compiled.status, True, f"verified: eager and compiled agree in {what}{rest}"
    line = f"NOT THE SAME: of {what}, {len(wrong)} differ: {_shown(wrong)}{rest}"
    return compiled.status, False, line


def _shown(names: set[str]) -> str:
    return ", ".join(sorted(names, key=lambda name: ("printed" not in name, name))[:5])


def _ended(run: Run, way: Way) -> _Ending:
    with tempfile.TemporaryDirectory() as folder:
        printed, tensors = Path(folder, "printed"), Path(folder, "tensors.npz")
        sys.stdout.flush()
        process = os.fork()
        if process == 0:
            _run_and_save(run, printed, tensors, way)
        status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
        kept = dict(np.load(tensors)) if tensors.exists() else {}
        return _Ending(status, printed.read_text(errors="replace"), kept)


def _run_and_save(run: Run, printed: Path, tensors: Path, way: Way) -> None:
    """In the process of a run, which ends here."""
    status = 1
    try:
        os.dup2(os.open(printed, os.O_WRONLY | os.O_CREAT), 1)
        status = run(tensors, way)
    finally:
        sys.stdout.flush()
        os._exit(status)


# --- held tensors ---------------------------------------------------------------------------------
#
# The tensors that modules and optimizers of a script hold, by names that two runs share.


_found: list[Any] = []
_autocast: list[torch.dtype] = []


@contextlib.contextmanager
def recording(file: Path, way: Way) -> Iterator[None]:
    """Run a script in this context, in a way, and write its tensors as float64.

    Each module and optimizer that is made, copied or read is kept. This is for a process that ends
    soon: nothing is put back.
    """
    for owner, name in (
        (nn.Module, "__init__"),
        (nn.Module, "__setstate__"),
        (Optimizer, "__init__"),
    ):
        setattr(owner, name, _keeping(getattr(owner, name)))
    if way == "perturbed":
        setattr(nn.Module, "__call__", _perturbing(nn.Module.__call__))  # noqa: B010
    if way != "compiled":  # Dynamo would not know it
        torch.set_autocast_dtype = _noting_dtype(torch.set_autocast_dtype)
    # Random numbers are drawn in the order of eager.
    inductor_config.fallback_random = True
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
    """Move each parameter of a module by one rounding, before the first call."""
    moved: dict[int, torch.Tensor] = {}  # kept, so that no other tensor has the id

    @functools.wraps(original)
    def perturbing(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        for parameter in self._parameters.values():
            if isinstance(parameter, nn.Parameter) and id(parameter) not in moved:
                moved[id(parameter)] = parameter
                if parameter.is_floating_point() or parameter.is_complex():
                    # Through `data`, since what autograd has saved may not count as written.
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
    """The tensors of all that is kept, by class, number in this class, and attribute."""
    numbers: Counter[str] = Counter()
    for owner in {id(it): it for it in _found}.values():
        kind = type(owner).__name__
        if type(owner) is nn.Module or isinstance(owner, fx.GraphModule):
            continue  # compilers make these
        own = _of_optimizer(owner) if isinstance(owner, Optimizer) else _of_module(owner)
        for name, value in own:
            if isinstance(value, torch.Tensor) and value.layout is torch.strided:
                yield f"{kind} {numbers[kind]}: {name}", value.detach()
        numbers[kind] += 1


def _of_module(module: nn.Module) -> Iterator[tuple[str, object]]:
    for name, value in {**module._parameters, **module._buffers}.items():
        yield name, value
        if isinstance(value, torch.Tensor) and value.is_leaf:
            yield f"{name}.grad", value.grad


def _of_optimizer(optimizer: Optimizer) -> Iterator[tuple[str, object]]:
    parameters = [it for group in optimizer.param_groups for it in group["params"]]
    for index, parameter in enumerate(parameters):
        for name, value in optimizer.state.get(parameter, {}).items():
            yield f"state of parameter {index}, {name}", value
