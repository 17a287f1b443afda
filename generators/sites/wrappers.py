"""AOTAutograd's work around a graph: the cases of its metadata, and its wrappers.

Cases are read from the types of `ViewAndMutationMeta`: each member of an enumeration, and each flag
of an input or output. A wrapper fires when it returns another function or other inputs.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import fields
from typing import Any
from unittest import mock

import torch
from torch._C import _functionalization
from torch._functorch._aot_autograd import runtime_wrappers
from torch._functorch._aot_autograd.schemas import (
    CompilerWrapper,
    InductorWrapper,
    InputAliasInfo,
    MutationType,
    OutputAliasInfo,
    OutputType,
    ViewAndMutationMeta,
)
from torch._ops import OpOverload
from torch._subclasses.functional_tensor import FunctionalTensor, FunctionalTensorMode

from aliasproof.generators.sites.site import Site, SiteKind, SiteRecorder, location_of

_FILE = location_of(ViewAndMutationMeta.__post_init__)[0]
_LAYER = "AOTAutograd"


# --- cases ----------------------------------------------------------------------------------------


def _cases() -> list[Site]:
    kinds: list[tuple[type, str, str]] = [
        *((OutputType, it.name, "an output is of this kind") for it in OutputType),
        *((MutationType, it.name, "an input is mutated like this") for it in MutationType),
    ]
    for kind, noun in ((InputAliasInfo, "input"), (OutputAliasInfo, "output")):
        kinds += [(kind, flag, f"it is true of an {noun}") for flag in _FLAGS[kind]]
    return [
        Site(f"case/{kind.__name__}.{name}", "case", _LAYER, _FILE, _line(kind), fires_when)
        for kind, name, fires_when in kinds
    ]


_FLAGS: dict[type, tuple[str, ...]] = {
    kind: tuple(field.name for field in fields(kind) if field.type in (bool, "bool"))
    for kind in (InputAliasInfo, OutputAliasInfo)
}


def _line(kind: type) -> int:
    """The line that defines a type, also for a type made by a call such as `Enum(...)`."""
    lines = inspect.getsource(sys.modules[kind.__module__]).splitlines()
    definitions = (f"class {kind.__name__}", f"{kind.__name__} = ")
    return next((number for number, line in enumerate(lines, 1) if line.startswith(definitions)), 0)


@contextmanager
def _cases_recorded(recorder: SiteRecorder) -> Iterator[None]:
    finish = ViewAndMutationMeta.__post_init__

    def finish_and_note(metadata: ViewAndMutationMeta) -> None:
        finish(metadata)
        outputs, inputs = metadata.output_info, metadata.input_info
        cases = [f"{OutputType.__name__}.{output.output_type.name}" for output in outputs]
        cases += [f"{MutationType.__name__}.{given.mutation_type.name}" for given in inputs]
        cases += [
            f"{type(info).__name__}.{flag}"
            for info in (*inputs, *outputs)
            for flag in _FLAGS[type(info)]
            if getattr(info, flag)
        ]
        recorder.fired.update(f"case/{case}" for case in cases)

    with mock.patch.object(ViewAndMutationMeta, "__post_init__", finish_and_note):
        yield


# --- wrappers -------------------------------------------------------------------------------------


def _steps() -> Iterator[tuple[type, str, Callable[..., Any]]]:
    """The steps of classes that wrap a compiled function, which the class implements itself."""
    classes = [
        value
        for value in vars(runtime_wrappers).values()
        if isinstance(value, type)
        and issubclass(value, CompilerWrapper | InductorWrapper)
        and value.__module__ == runtime_wrappers.__name__
    ]
    for wrapper in sorted(classes, key=_line):
        for step in ("pre_compile", "post_compile"):
            if step in vars(wrapper):
                yield wrapper, step, vars(wrapper)[step]


def _wrapper_sites() -> list[Site]:
    return [
        Site(
            f"wrapper/{wrapper.__name__}.{step}",
            "wrapper",
            _LAYER,
            *location_of(method),
            "it gives another function, or other inputs, than it was given",
        )
        for wrapper, step, method in _steps()
    ]


@contextmanager
def _wrappers_recorded(recorder: SiteRecorder) -> Iterator[None]:
    with ExitStack() as patches:
        for wrapper, step, method in _steps():
            acted = functools.partial(recorder.fired.add, f"wrapper/{wrapper.__name__}.{step}")
            patches.enter_context(mock.patch.object(wrapper, step, _noting(method, acted)))
        yield


def _noting(method: Callable[..., Any], acted: Callable[[], None]) -> Callable[..., Any]:
    @functools.wraps(method)
    def run(wrapper: object, function: object, *args: Any, **kwargs: Any) -> Any:
        inputs = list(args[0]) if args and isinstance(args[0], list) else None
        result = method(wrapper, function, *args, **kwargs)
        returned = result[0] if isinstance(result, tuple) else result
        another = returned is not None and returned is not function
        others = inputs is not None and (
            (isinstance(result, tuple) and not _same(inputs, result[1]))
            or not _same(inputs, args[0])
        )
        if another or others:
            acted()
        return result

    return run


def _same(before: list[object], after: list[object]) -> bool:
    return len(before) == len(after) and all(a is b for a, b in zip(before, after, strict=True))


KINDS = (
    SiteKind("case", _cases, _cases_recorded),
    SiteKind("wrapper", _wrapper_sites, _wrappers_recorded),
)


# --- view writes ----------------------------------------------------------------------------------
#
# Writes through a view, by kind of view: functionalization has an inverse for each kind.
#
# The kinds are torch's classes `torch._C._functionalization.<view>_ViewMeta`. A kind fires when
# AOTAutograd functionalizes a write into a tensor with such a view in its history, which is read
# before the write. Work that `torch.func.functionalize` does only in C++ is not seen.


KIND = "write through a view"
_ENDING = "_ViewMeta"


def sites() -> list[Site]:
    """Each kind of view that functionalization can write through."""
    file, line = location_of(FunctionalTensorMode.__torch_dispatch__)
    return [
        Site(
            f"{KIND}/{name.removesuffix(_ENDING)}",
            KIND,
            "functionalization",
            file,
            line,
            "an operator writes into a tensor that is such a view of another",
        )
        for name in sorted(vars(_functionalization))
        if name.endswith(_ENDING)
    ]


@contextmanager
def recorded(recorder: SiteRecorder) -> Iterator[None]:
    """Record the kinds of view that writes in this block go through."""
    dispatch = FunctionalTensorMode.__torch_dispatch__

    def noting(
        mode: FunctionalTensorMode,
        func: OpOverload,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        if func._schema.is_mutable:
            for kind in _views_written(func, args, kwargs or {}):
                recorder.fired.add(f"{KIND}/{kind}")
        return dispatch(mode, func, types, args, kwargs)

    with mock.patch.object(FunctionalTensorMode, "__torch_dispatch__", noting):
        yield


def _views_written(
    func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Iterator[str]:
    for position, argument in enumerate(func._schema.arguments):
        if argument.alias_info is None or not argument.alias_info.is_write:
            continue
        given = args[position] if position < len(args) else kwargs.get(argument.name)
        for tensor in given if isinstance(given, list | tuple) else (given,):
            if isinstance(tensor, FunctionalTensor) and torch._is_functional_tensor(tensor.elem):
                for view in _functionalization.get_view_meta_sequence(tensor.elem):
                    yield type(view).__name__.removesuffix(_ENDING)


# Sites of any target that captures by AOTAutograd. Reading them runs no pass of Inductor.
WITHOUT_INDUCTOR: tuple[SiteKind, ...] = (SiteKind(KIND, sites, recorded), *KINDS)
