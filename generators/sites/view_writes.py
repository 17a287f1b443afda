"""Writes through a view, by the kind of view: functionalization has an inverse for each.

The kinds are those that torch shows as `torch._C._functionalization.<view>_ViewMeta`. One fires
when AOTAutograd functionalizes a write into a tensor with such a view in its history. The history
is asked before the write. What `torch.func.functionalize` does in C++ alone is not seen.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch
from torch._C import _functionalization
from torch._ops import OpOverload
from torch._subclasses.functional_tensor import FunctionalTensor, FunctionalTensorMode

from aliasproof.generators.sites.site import Site, SiteKind, SiteRecorder, location_of

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
    """Tell the kinds of view that writes in this block go through."""
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


KINDS = (SiteKind(KIND, sites, recorded),)
