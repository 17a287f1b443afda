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


@replaces("torch.fx.passes.reinplace:_get_all_later_node_usages")
def reinplaced_operands(
    original: Callable[..., set[fx.Node]], aliases: set[fx.Node], index: int
) -> set[fx.Node]:
    """An op that reads another alias of its first operand is not put in place.

    Torch only checks whether the other operand is the same node, and ignores lists.
    """
    users = {user for alias in aliases for user in alias.users}
    # The op itself counts as a later use of the alias that it reads, which keeps it functional.
    overlapping = {
        user for user in users if user.meta.get("node_idx") == index and _reads(user, aliases) > 1
    }
    return original(aliases, index) | overlapping


def _reads(user: fx.Node, aliases: set[fx.Node]) -> int:
    """How many operands of a node are among these aliases."""
    read: list[fx.Node] = []
    fx.map_arg((user.args, user.kwargs), read.append)
    return sum(operand in aliases for operand in read)


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


@replaces("torch.fx.passes.reinplace:_get_all_later_node_usages")
def reinplaced_shape(
    original: Callable[..., set[fx.Node]], aliases: set[fx.Node], index: int
) -> set[fx.Node]:
    """An op whose result has other sizes than its first operand is not put in place."""
    users = {user for alias in aliases for user in alias.users}
    # The op itself counts as a later use of its operand, which keeps it functional.
    resized = {
        user for user in users if user.meta.get("node_idx") == index and _has_other_sizes(user)
    }
    return original(aliases, index) | resized


def _has_other_sizes(node: fx.Node) -> bool:
    operand = node.args[0]
    if not isinstance(operand, fx.Node):
        return False
    values = [it.meta["fake_result"] for it in (operand, node)]
    tensors = all(isinstance(value, torch.Tensor) for value in values)
    return tensors and values[0].shape != values[1].shape
