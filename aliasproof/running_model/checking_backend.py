"""The backend `aliasproof_check`, and the context that checks whatever compiles in it."""

from __future__ import annotations

import atexit
import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from torch import fx
from torch._dynamo import eval_frame

from aliasproof.ir.errors import UserError
from aliasproof.running_model.checked_target import CheckedTarget
from aliasproof.running_model.model_check import (
    OUT,
    CheckOptions,
    ModelCheck,
    OnDifference,
    print_summary,
)
from aliasproof.targets.registry import target as target_named
from aliasproof.targets.user_names import grant

_OPTIONS = ("target", "calls", "on_difference", "out")
# By target and options: models that are compiled in the same way share a summary.
_checks: dict[tuple[str, CheckOptions], ModelCheck] = {}


def aliasproof_check(
    module: fx.GraphModule,
    examples: Sequence[Any],
    *,
    options: Mapping[str, Any] | None = None,
) -> Callable[..., object]:
    """A backend of `torch.compile` that compares each graph with eager and returns eager's results.

    Options: `target`, a name as in `aliasproof check`, or code of your own as FILE.py:FUNCTION
    (default: inductor); `calls`, how many calls of each graph are judged (default: all);
    `on_difference`, "continue" or "raise"; `out`, the folder for graphs that differ. Raises
    `UserError` for other options, or a target that is no form of `torch.compile`.
    """
    given = dict(options or {})
    unknown = sorted(given.keys() - set(_OPTIONS))
    if unknown:
        raise UserError(
            f"aliasproof_check has no option {', '.join(unknown)}; it has {', '.join(_OPTIONS)}"
        )
    name = str(given.pop("target", "inductor"))
    out = given.pop("out", OUT)
    checked = CheckOptions(out=None if out is None else Path(out), **given)
    key, target = (name, checked), named_target(name)
    if key not in _checks:
        _checks[key] = ModelCheck(checked)
        atexit.register(_print_at_exit, _checks[key], os.getpid())
    return _checks[key].compile(target, module, examples)


def _print_at_exit(check: ModelCheck, process: int) -> None:
    if os.getpid() == process:  # not in a worker that was forked from the process
        print_summary(check)


def named_target(name: str) -> CheckedTarget:
    """The target with a name from the user. Raises `UserError` like `CheckedTarget.of`."""
    grant([name])
    return CheckedTarget.of(target_named(name))


@dataclass(frozen=True, slots=True)
class CheckingBackend:
    """The backend of a model, or a target instead of it, with a check of each graph.

    Two are equal if they would compile the model in the same way: Dynamo compares backends.
    """

    target: CheckedTarget
    check: ModelCheck

    def __call__(
        self, module: fx.GraphModule, examples: Sequence[Any], **_: Any
    ) -> Callable[..., object]:
        return self.check.compile(self.target, module, examples)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, CheckingBackend):
            return NotImplemented
        return self.check is other.check and self.target == other.target

    __hash__ = None  # type: ignore[assignment]


@contextlib.contextmanager
def checking_compiled(
    target: str | None = None,
    *,
    calls: int | None = None,
    on_difference: OnDifference = "continue",
    out: str | Path | None = OUT,
    summary: bool = True,
) -> Iterator[ModelCheck]:
    """Check each graph of whatever `torch.compile` compiles in this context.

    The model keeps its own backend, mode and options; `target` replaces them. Code that was
    compiled earlier is not checked. Code that is compiled here is checked later, too. The value has
    `graphs` and `differences`. With `summary`, a summary is printed at the end. Raises `UserError`
    like `aliasproof_check`.
    """
    check = ModelCheck(CheckOptions(calls, on_difference, None if out is None else Path(out)))
    chosen = None if target is None else named_target(target)
    original: Callable[[Any], Any] = eval_frame.get_compiler_fn

    def checking(backend: Any) -> Any:
        ours = getattr(backend, "compiler_name", backend) == "aliasproof_check"
        if backend is None or isinstance(backend, CheckingBackend) or ours:
            return original(backend)
        return original(CheckingBackend(chosen or CheckedTarget.of_backend(backend), check))

    # `torch.compile`, `Module.compile` and `torch._dynamo.optimize` all call this.
    with mock.patch.object(eval_frame, "get_compiler_fn", checking):
        try:
            yield check
        finally:
            if summary:
                print_summary(check)
