"""A pytest plugin that puts the reference pass in the place of PyTorch's own, for PyTorch's tests.

It is loaded before the test modules, which import the passes by name (`-p`). What it replaces:

- `torch.fx.passes.reinplace.reinplace`, and `_functionalize` of `test_functionalization.py`;
- the compilers of AOTAutograd (`aot_function` and its like): the compiler of a test is called for
  what it notes of a graph, and the reference pass compiles the graph;
- comparisons of graphs as text, since two right passes make different graphs: they are left out.

A test that ends in `Refused` is skipped, with the reason.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Generator, Sequence
from typing import Any

import functorch.compile
import pytest
import torch
import torch._functorch.aot_autograd
import torch.fx.passes.reinplace
from torch.fx.experimental import proxy_tensor
from torch.testing._internal.common_utils import TestCase

from aliasproof.reference_pass.backend import boxed
from aliasproof.reference_pass.functionalize import functionalize
from aliasproof.reference_pass.reinplace import reinplace
from benchmarks.sweep_modes import refusal

_ENTRIES = ("aot_function", "aot_module", "aot_module_simplified")
_COMPILERS = ("fw_compiler", "bw_compiler", "inference_compiler")


class _Functionalized:
    """A function whose calls are functionalized; `make_fx` of it is its graph."""

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        reapply_views: bool,
        crossref: bool,
        skip_input_mutations: bool = False,
    ) -> None:
        self.function, self.reapply_views = function, reapply_views
        self.skip_input_mutations = skip_input_mutations

    def graph(self, *inputs: Any) -> torch.fx.GraphModule:
        views = "alias" if self.reapply_views else "copy"
        return functionalize(self.function, *inputs, views=views)  # type: ignore[arg-type]

    def __call__(self, *inputs: Any) -> Any:
        graph = self.graph(*inputs)
        if self.skip_input_mutations:
            inputs = tuple(value.clone() for value in inputs)
        with torch.no_grad():
            return graph(*inputs)


def _make_fx(function: Any, *args: Any, **kwargs: Any) -> Any:
    if isinstance(function, _Functionalized):
        return function.graph
    return proxy_tensor.make_fx(function, *args, **kwargs)


def _compiles(compiler: Callable[..., Any] | None) -> Callable[..., Any] | None:
    if compiler is None:
        return None

    def by_reference(graph_module: torch.fx.GraphModule, inputs: Sequence[Any]) -> Any:
        compiler(graph_module, inputs)
        return boxed("alias", False, graph_module, inputs)

    return by_reference


def _with_reference(entry: Callable[..., Any]) -> Callable[..., Any]:
    """A function of AOTAutograd, with other compilers."""
    signature = inspect.signature(entry)

    @functools.wraps(entry)
    def replaced(*args: Any, **kwargs: Any) -> Any:
        given = signature.bind(*args, **kwargs)
        for name in _COMPILERS:
            if name in given.arguments:
                given.arguments[name] = _compiles(given.arguments[name])
        return entry(*given.args, **given.kwargs)

    return replaced


def _accept(*_: object, **__: object) -> None:
    """In the place of an assertion on the text of a graph."""


def pytest_configure(config: pytest.Config) -> None:
    """Replace the passes, before a test module is imported."""
    vars(torch.fx.passes.reinplace)["reinplace"] = reinplace
    for name in _ENTRIES:
        replaced = _with_reference(getattr(torch._functorch.aot_autograd, name))
        for module in (torch._functorch.aot_autograd, functorch.compile):
            vars(module)[name] = replaced
    for name in ("assertExpectedInline", "assertExpectedRaisesInline"):
        setattr(TestCase, name, _accept)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Replace what a test module defines itself."""
    for module in {item.module for item in items if isinstance(item, pytest.Function)}:
        if hasattr(module, "_functionalize"):
            module._functionalize, module.make_fx = _Functionalized, _make_fx


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Turn a refusal into a skip."""
    report = yield
    error = refusal(call.excinfo.value) if call.excinfo is not None else None
    if error is not None:
        report.outcome = "skipped"
        report.longrepr = (str(item.path), 0, f"Refused: {error}")
    return report
