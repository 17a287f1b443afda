"""Generated code has the overload `from` as an attribute, so it is no Python."""

from __future__ import annotations

import functools
import keyword
from collections.abc import Callable
from typing import Any

from aliasproof.corpus.known_bug import KnownBug, program_of, view
from aliasproof.corpus.mends import mends, together


@mends("torch.fx.graph:_get_qualified_name")
def _in_graphs(original: Callable[..., str], target: Any) -> str:
    return _path(original(target))


@mends("torch._inductor.ir:ExternKernel.set_python_kernel_name")
def _in_calls_of_kernels(original: Callable[..., None], kernel: Any, given: str | None) -> None:
    original(kernel, given)
    if kernel.python_kernel_name is not None:
        kernel.python_kernel_name = _path(kernel.python_kernel_name)


# An attribute whose name is a keyword is printed as a call of `getattr`. Inductor prints calls in
# two ways: graphs by fx, and calls of kernels itself.
MENDED = together(_in_graphs, _in_calls_of_kernels)


def _path(dotted: str) -> str:
    first, *names = dotted.split(".")
    return functools.reduce(_attribute, names, first)


def _attribute(owner: str, name: str) -> str:
    return f'getattr({owner}, "{name}")' if keyword.iskeyword(name) else f"{owner}.{name}"


BUG = KnownBug(
    "keyword-overload",
    "fx generates torch.ops.aten.random_.from for x.random_(0, 2), which is a SyntaxError",
    "https://github.com/pytorch/pytorch/issues/151432",
    program_of(
        """
        getattr(aten.random_, "from")(x0, 0, 2)
        return ()
        """,
        view(2),
    ),
    ("functionalize", "fx-reinplace", "aot", "aot-epilogue", "inductor-fx", "inductor"),
    ("2.13", "2.15"),
    MENDED,
    plausible=lambda program: any(
        keyword.iskeyword(call.op.split(".")[-1]) for call in program.instructions
    ),
    rank=120,
)
