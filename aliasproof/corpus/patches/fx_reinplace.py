"""Patches of `torch.fx.passes.reinplace`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
from torch import fx
from torch.fx.passes import reinplace
from torch.utils import _pytree

from aliasproof.corpus.patching import Function, Patch, replaces


@replaces("torch.fx.passes.reinplace:_get_view_inverse_node_usages")
def reinplaced_scatter(original: Function, *args: Any) -> set[fx.Node]:
    """No scatter is removed because a view of the same layout exists.

    Torch only compares layouts. It does not check whether the scatter writes the view back into its
    own base.
    """
    return set()


def functional_if(condition: Callable[[fx.Node, set[fx.Node]], bool]) -> Patch:
    """An op stays functional if the condition holds, of it and the aliases of an operand."""

    def later_uses(
        original: Callable[..., set[fx.Node]], aliases: set[fx.Node], index: int
    ) -> set[fx.Node]:
        users = {user for alias in aliases for user in alias.users}
        # The op itself counts as a later use of the alias that it reads.
        own = {user for user in users if user.meta.get("node_idx") == index}
        return original(aliases, index) | {user for user in own if condition(user, aliases)}

    return replaces("torch.fx.passes.reinplace:_get_all_later_node_usages")(later_uses)


@functional_if
def reinplaced_operands(node: fx.Node, aliases: set[fx.Node]) -> bool:
    """An op that reads another alias of its first operand is not put in place.

    Torch only checks whether the other operand is the same node, and ignores lists.
    """
    read: list[fx.Node] = []
    fx.map_arg((node.args, node.kwargs), read.append)
    return sum(operand in aliases for operand in read) > 1


@functional_if
def reinplaced_windows(node: fx.Node, aliases: set[fx.Node]) -> bool:
    """An op is not put in place on an operand that may overlap itself.

    Torch takes the answer "too hard" of `has_internal_overlap` (2) for no.
    """
    operand = node.args[0]
    value = operand.meta["fake_result"] if isinstance(operand, fx.Node) else None
    return isinstance(value, torch.Tensor) and torch._debug_has_internal_overlap(value) == 2


@Patch
@contextlib.contextmanager
def reinplaced_sizes() -> Iterator[None]:
    """The pass compares the layouts of tensors only.

    Torch reads the number of elements of each result of a call on a tensor, even if it is an int.
    """

    def leaves(tree: object) -> list[object]:
        return [leaf for leaf in _pytree.tree_leaves(tree) if isinstance(leaf, torch.Tensor)]

    pytree = SimpleNamespace(**{**vars(_pytree), "tree_leaves": leaves})
    with mock.patch.object(reinplace, "pytree", pytree):
        yield


@replaces("torch.fx.passes.reinplace:_schemas_match")
def several_written(original: Function, functional: Any, inplace: Any) -> bool:
    """An op whose in-place form writes to a second argument has no in-place form for the pass."""
    written = [
        argument
        for argument in inplace.arguments
        if argument.alias_info is not None and argument.alias_info.is_write
    ]
    return len(written) == 1 and original(functional, inplace)


@functional_if
def reinplaced_shape(node: fx.Node, aliases: set[fx.Node]) -> bool:
    """An op whose result has other sizes than its first operand is not put in place."""
    operand = node.args[0]
    if not isinstance(operand, fx.Node):
        return False
    values = [it.meta["fake_result"] for it in (operand, node)]
    tensors = all(isinstance(value, torch.Tensor) for value in values)
    return tensors and values[0].shape != values[1].shape
