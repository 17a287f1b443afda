"""Making `node.meta["val"]` true for every node of a graph, also after other passes.

Only values that are out of date are recomputed: a node runs again if its op, its constant arguments
or the values of its operands are not those noted beside its value (`metadata.dependencies`). If its
new value has the same metadata, the old one stays, and no user of the node runs again.

Mirrors `FakeTensorUpdater` (`torch/_inductor/fx_utils.py`), on which the passes of Inductor rely.
Differences: the notes are on the nodes, not in an object that must exist before the rewrite; an
operand is compared by identity of the tensor, not by a hash.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import fx

from aliasproof.reference_pass.calls.fake_inputs import (
    attribute,
    fake_inputs,
    fake_value,
    refuse_another_number,
)
from aliasproof.reference_pass.calls.fake_tensors import fake_mode, on_fakes
from aliasproof.reference_pass.calls.metadata import (
    can_keep,
    dependencies,
    note_value,
    set_value,
)
from aliasproof.reference_pass.exceptions import Refused
from aliasproof.reference_pass.semantics import NAIVE, Semantics


def refresh_metadata(
    graph_module: fx.GraphModule, sample_args: Sequence[object], semantics: Semantics = NAIVE
) -> int:
    """Make `meta["val"]` true for every node; returns the number of nodes that ran.

    Inputs keep their values, or get those of the sample arguments. Linear in the number of nodes.
    Raises `Refused` if an input has neither.
    """
    placeholders = [node for node in graph_module.graph.nodes if node.op == "placeholder"]
    mode = fake_mode(graph_module, sample_args)
    ran = 0
    if sample_args:
        refuse_another_number(placeholders, sample_args)
    with on_fakes(mode):
        # All inputs or none: they must be fakes of one mode, and share storages among each other.
        if not all("val_of" in node.meta for node in placeholders):
            if not sample_args and any("val" not in node.meta for node in placeholders):
                raise Refused("the inputs of the graph have no metadata; pass sample arguments")
            # New fakes even for existing metadata: no other graph may change these objects.
            given = sample_args or [node.meta["val"] for node in placeholders]
            for node, value in zip(placeholders, fake_inputs(mode, given), strict=True):
                node.meta["val"], node.meta["val_of"] = value, ()
        for node in graph_module.graph.nodes:
            if node.op in ("placeholder", "output") or _is_current(node):
                continue
            old, had_note = node.meta.get("val"), "val_of" in node.meta
            if node.op == "get_attr":
                note_value(node, fake_value(mode, attribute(node)))
            else:
                set_value(node, semantics)
            # A value without a note comes from another pass: its storage means nothing here.
            if had_note and can_keep(old, node.meta["val"], node):
                node.meta["val"] = old
            ran += 1
    return ran


# The types of values that a run computes; all others are constants.
_COMPUTED = (torch.Tensor, list, tuple, torch.SymInt)


def _is_current(node: fx.Node) -> bool:
    noted, now = node.meta.get("val_of"), dependencies(node)
    # Values are compared by identity: a fake that only looks alike may be on another storage, and
    # `==` on symbols would add a guard.
    return (
        noted is not None
        and len(noted) == len(now)
        and all(
            one is other or (not isinstance(one, _COMPUTED) and one == other)
            for one, other in zip(noted, now, strict=True)
        )
    )
