"""Calls on copies in a graph that is differentiated: each is one functional call to AOTAutograd.

AOTAutograd would functionalize the call on copies again, and call another operator: `bernoulli` for
`bernoulli_`, which draws in the order of its own result, and not in that of the memory that the
program fills; or `sigmoid` for `sigmoid(x, out=y)`, whose result has the strides of `x`. So
AOTAutograd gets an operator of our own, and its graphs call `on_copies` in place of that at the
end.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx
from torch._C import DispatchKey
from torch._ops import HigherOrderOperator, OpOverload
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import ProxyTorchDispatchMode, track_tensor_tree
from torch.fx.node import has_side_effect
from torch.utils import _pytree as pytree

from aliasproof.reference_pass.calls.copied_operands import on_copies
from aliasproof.reference_pass.calls.nested import tensors_in
from aliasproof.reference_pass.calls.operator_forms import bind, facts
from aliasproof.reference_pass.eager.history import LostHistory, overwriting


class _OpaqueCall(HigherOrderOperator):
    """`on_copies` of the operator with this name; its results have no history.

    FX refuses an operator as an argument if it needs exact strides.
    """

    def __init__(self) -> None:
        super().__init__("aliasproof_opaque_call")

    def __call__(self, name: str, *args: Any, **kwargs: Any) -> Any:
        return super().__call__(name, *args, **kwargs)


OPAQUE_CALL: Any = has_side_effect(_OpaqueCall())


def _operator(name: str) -> OpOverload:
    namespace, packet, overload = name.split(".")
    op: OpOverload = getattr(getattr(getattr(torch.ops, namespace), packet), overload)
    return op


def _on_copies(name: str, *args: Any, **kwargs: Any) -> Any:
    return on_copies(_operator(name), *args, **kwargs)


def _without_history(name: str, *args: Any, **kwargs: Any) -> Any:
    with torch._C._AutoDispatchBelowAutograd():
        return OPAQUE_CALL(name, *args, **kwargs)


def _functionalized(ctx: Any, name: str, *args: Any, **kwargs: Any) -> Any:
    args, kwargs = ctx.unwrap_tensors((args, kwargs))
    with ctx.redispatch_to_next():
        return ctx.wrap_tensors(OPAQUE_CALL(name, *args, **kwargs))


def _traced(mode: ProxyTorchDispatchMode, name: str, *args: Any, **kwargs: Any) -> Any:
    tracer: Any = mode.tracer
    passed, named = pytree.tree_map(tracer.unwrap_proxy, ((name, *args), kwargs))
    call = tracer.create_proxy("call_function", OPAQUE_CALL, passed, named)
    results = OPAQUE_CALL(name, *args, **kwargs)
    return track_tensor_tree(results, call, constant=None, tracer=tracer)


def _on_fakes(mode: FakeTensorMode, name: str, *args: Any, **kwargs: Any) -> Any:
    with mode:
        return _on_copies(name, *args, **kwargs)


OPAQUE_CALL.py_impl(DispatchKey.CompositeExplicitAutograd)(_on_copies)
OPAQUE_CALL.py_impl(DispatchKey.Autograd)(_without_history)
OPAQUE_CALL.py_functionalize_impl(_functionalized)
OPAQUE_CALL.py_impl(ProxyTorchDispatchMode)(_traced)
OPAQUE_CALL.py_impl(FakeTensorMode)(_on_fakes)


@has_side_effect
def opaque_call(op: OpOverload, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
    """`on_copies` in a graph that is differentiated.

    Raises `LostHistory` for a call that autograd records, except random fills: the gradient of the
    contents that they overwrite is zero.
    """
    given = bind(op, args, kwargs)
    fills = facts(op).random and facts(op).writes == facts(op).names[:1]
    old = given.pop(facts(op).names[0]) if fills else None
    if torch.is_grad_enabled() and any(x.requires_grad for x in tensors_in(given)):
        raise LostHistory(f"{op} has no functional form, and is differentiated")
    results: tuple[Any, ...] = OPAQUE_CALL(str(op), *args, **kwargs)
    if not isinstance(old, torch.Tensor):
        return results
    *fresh, new = results
    return (*fresh, overwriting(old, new))


def on_copies_again(graph_module: fx.GraphModule) -> fx.GraphModule:
    """Let a graph of AOTAutograd call `on_copies`. Changes the graph module and returns it."""
    for node in graph_module.graph.find_nodes(op="call_function", target=OPAQUE_CALL):
        node.target, node.args = on_copies, (_operator(node.args[0]), *node.args[1:])
    return graph_module
