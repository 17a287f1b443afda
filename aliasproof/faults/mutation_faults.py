"""Faults of metadata mutation (`t_`, `set_`, `resize_`) and of ops that write many tensors."""

from __future__ import annotations

import operator
from collections.abc import Sequence

from torch import fx
from torch._ops import OpOverload

from aliasproof.faults.fault import Fault, after_functionalize, instead_of
from aliasproof.reference_pass.alias_analysis import Effect
from aliasproof.reference_pass.calls.storages import Geometry
from aliasproof.reference_pass.environment import Environment
from aliasproof.reference_pass.epilogue import _Epilogue
from aliasproof.reference_pass.functionalize import _mutate_metadata


def metadata_of_results_is_not_mutated(
    env: Environment, node: fx.Node, effect: Effect, identity: int, geometry: Geometry
) -> None:
    """`t_` on a tensor that the program made leaves its metadata as they were."""
    if identity in env.inputs:
        _mutate_metadata(env, node, effect, identity, geometry)


def metadata_of_inputs_is_not_mutated(
    self: _Epilogue, mutated: Sequence[int], final: dict[int, fx.Node]
) -> None:
    """After `t_` on an input, the caller's tensor keeps its metadata."""
    _mutate_at_end(
        self, [identity for identity in mutated if not _keeps_storage(self, identity)], final
    )


def storage_of_inputs_is_not_replaced(
    self: _Epilogue, mutated: Sequence[int], final: dict[int, fx.Node]
) -> None:
    """After `set_` on an input, the caller's tensor keeps its storage."""
    _mutate_at_end(
        self, [identity for identity in mutated if _keeps_storage(self, identity)], final
    )


def _keeps_storage(epilogue: _Epilogue, identity: int) -> bool:
    env = epilogue.env
    return env.views[identity].storage is env.at_start[identity].storage


def only_first_tensor_of_foreach_is_written(graph_module: fx.GraphModule) -> None:
    """Of the results of a `_foreach_` op, only the first replaces what it was computed from."""
    for node in graph_module.graph.nodes:
        if node.target is operator.getitem and _is_foreach(node.args[0]) and node.args[1] > 0:
            items = node.args[0].args[0]
            node.replace_all_uses_with(items[node.args[1]])


def _is_foreach(node: fx.Node) -> bool:
    op = node.target
    return isinstance(op, OpOverload) and op.overloadpacket.__name__.startswith("_foreach_")


_mutate_at_end = _Epilogue.mutate_metadata

FAULTS: tuple[Fault, ...] = (
    instead_of(
        "_mutate_metadata",
        metadata_of_results_is_not_mutated,
        "rule of functionalize: a tensor object becomes another view",
        "functionalize",
    ),
    instead_of(
        "mutate_metadata",
        metadata_of_inputs_is_not_mutated,
        "step 3 of reference_pass/epilogue.py: metadata is mutated",
        _Epilogue,
    ),
    instead_of(
        "mutate_metadata",
        storage_of_inputs_is_not_replaced,
        "step 3 of reference_pass/epilogue.py: metadata is mutated",
        _Epilogue,
    ),
    after_functionalize(
        only_first_tensor_of_foreach_is_written,
        "rule of functionalize: each result of a call is written to its tensor",
    ),
)
