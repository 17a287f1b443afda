"""The forms of view ops: in place on metadata (`t_` of `t`), and copying (`select_copy`)."""

from __future__ import annotations

import functools

from torch._ops import OpOverload

from aliasproof.reference_pass.calls.operator_forms import aten, overloads, signature


@functools.cache
def view_form(op: OpOverload) -> OpOverload | None:
    """The view op of an op that changes metadata in place: `t` of `t_`; None if there is none."""
    name = op.overloadpacket.__name__
    if op.namespace != "aten" or not name.endswith("_"):
        return None
    # A view aliases its first argument without writing it: `add` does not, so `add_` has none.
    for candidate in overloads(name[:-1]):
        info = candidate._schema.arguments[0].alias_info if candidate._schema.arguments else None
        if info is not None and not info.is_write and signature(candidate) == signature(op):
            return candidate
    return None


def mutates_only_metadata(op: OpOverload) -> bool:
    """True if an op changes the metadata of its argument, and not its contents."""
    others = (aten.set_, aten.resize_, aten.resize_as_)
    return view_form(op) is not None or op.overloadpacket in others


@functools.cache
def copy_form(op: OpOverload) -> OpOverload | None:
    """The functional form of a view op: `select_copy` of `select`; None if there is none."""
    # The overloads of the two may have other names, so they are matched by their arguments.
    wanted = signature(op)
    return next(
        (
            candidate
            for candidate in overloads(op.overloadpacket.__name__ + "_copy")
            if signature(candidate) == wanted
        ),
        None,
    )


@functools.cache
def copied_view(op: OpOverload) -> OpOverload | None:
    """The view op of a view-copy op: `select` of `select_copy`; None for other ops."""
    name = op.overloadpacket.__name__
    if op.namespace != "aten" or not name.endswith("_copy"):
        return None
    views = overloads(name.removesuffix("_copy"))
    return next((view for view in views if copy_form(view) is op), None)
