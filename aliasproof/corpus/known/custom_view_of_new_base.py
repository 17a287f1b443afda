"""`auto_functionalized_v2` takes views of a written tensor with the layout it had before."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest import mock

from torch._higher_order_ops import auto_functionalize

from aliasproof.corpus.functional_layouts import layout_of_value
from aliasproof.corpus.known_bug import KnownBug, program_of, view
from aliasproof.corpus.mends import mends


@mends("torch._higher_order_ops.auto_functionalize:write_view_information_to_args")
def mended(
    original: Callable[..., Any], names: list[str], types: Any, kwargs: dict[str, Any], bases: Any
) -> None:
    """Views are described by the layouts of the values that they have now.

    Torch describes a view by the layout that it had when it was taken. A write in between replaces
    the base with a new tensor, in a storage of its own.
    """
    given = {name: kwargs[name] for name in names}
    kwargs |= {name: _layouts(argument) for name, argument in given.items()}
    with mock.patch.object(auto_functionalize, "get_base", lambda layout: layout.base):
        original(names, types, kwargs, bases)
    kwargs |= given


def _layouts(given: Any) -> Any:
    if given is None:
        return None
    if isinstance(given, list):
        return [_layouts(argument) for argument in given]
    base = auto_functionalize.get_base(given)
    return layout_of_value(given, None if base is None else layout_of_value(base))


BUG = KnownBug(
    "custom-view-of-new-base",
    "a custom operator that writes v = x[0] after x.add_(1) writes x[1] if x has an offset",
    "",
    program_of(
        """
        v0 = aten.select.int(x0, 0, 0)
        aten.add_.Scalar(x0, 0)
        torch.ops.aliasproof.double.default(v0)
        return ()
        """,
        view(2, offset=1),
    ),
    ("aot", "aot-epilogue"),
    ("2.13", "2.15"),
    mended,
    rank=850,
)
