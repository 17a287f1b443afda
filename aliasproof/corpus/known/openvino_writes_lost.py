"""The backend of OpenVINO for `torch.compile` keeps writes inside of its partitions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.func import functionalize

from aliasproof.corpus.known_bug import KnownBug, program_of, view, writes
from aliasproof.corpus.mends import mends_outside, together

BACKEND = "openvino.frontend.pytorch.torchdynamo"


@mends_outside(f"{BACKEND}.backend:make_fx")
def traces_functions(original: Callable[..., Any], graph: Any, **options: Any) -> Any:
    """The trace has no writes but those to inputs at its end."""
    return original(functionalize(graph), **options)


@mends_outside(f"{BACKEND}.op_support:OperatorSupport.is_node_supported")
def writes_in_eager(original: Callable[..., bool], made: Any, modules: Any, node: Any) -> bool:
    """No partition has those."""
    schema = getattr(node.target, "_schema", None)
    return not (schema is not None and schema.is_mutable) and original(made, modules, node)


# `fx_openvino` in openvino/frontend/pytorch/torchdynamo/backend.py traces with `make_fx`, which
# functionalizes nothing, and `OperatorSupport` beside it lists `add_`, `copy_`, `mul_` and more. A
# partition writes values of its own, and its views are copies. With the option `aot_autograd`, the
# graph has no writes.
BUG = KnownBug(
    "openvino-writes-lost",
    'torch.compile(backend="openvino") loses in-place writes to inputs, and through views',
    "",
    program_of(
        """
        aten.add_.Tensor(x0, x0)
        v0 = aten.mul.Tensor(x0, x0)
        return (v0,)
        """,
        view(2),
    ),
    ("openvino",),
    ("2.13",),
    together(traces_functions, writes_in_eager),
    plausible=writes,
    rank=1170,
)
