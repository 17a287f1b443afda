"""What the code that Inductor generates allocates: its wrapper, run on fake tensors.

The wrapper is Python: it allocates buffers, calls kernels, reuses buffers, and frees them. Here,
kernels do nothing, and each allocation is noted with the bytes that are live then. Kernels hold
what they fuse in registers, so a fused intermediate counts nothing: compare with care.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from unittest import mock

import torch
from torch._inductor.async_compile import AsyncCompile
from torch._inductor.utils import run_and_get_code
from torch._subclasses import FakeTensorMode
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from aliasproof.reference_pass.capture.footprint import Footprint


def inductor_footprint(
    function: Callable[..., Any], inputs: Sequence[torch.Tensor], planning: bool
) -> Footprint:
    """The allocations of a function compiled by Inductor, with its memory planning or without."""
    torch._dynamo.reset()
    with mock.patch.object(AsyncCompile, "cpp_pybinding", _no_kernel):
        settings: dict[str, Any] = {"memory_planning": planning, "fx_graph_cache": False}
        compiled = torch.compile(function, backend="inductor", options=settings)
        with torch.no_grad():
            _, (source, *others) = run_and_get_code(compiled, *[t.clone() for t in inputs])
        assert not others, "the function has more than one graph"
        names: dict[str, Any] = {"__name__": "wrapper"}
        exec(compile(source, "wrapper", "exec"), names)  # noqa: S102 - Inductor has written it
    return _run(names)


def _no_kernel(*_: object, **__: object) -> Callable[..., None]:
    return lambda *_, **__: None


def _run(names: dict[str, Any]) -> Footprint:
    """Run a wrapper on fake tensors, with kernels that do nothing."""
    with FakeTensorMode():
        # In the wrapper's own order, which is not that of the function.
        fakes = names["get_args"]()
        allocations = _Allocations(fakes)
        names["empty_strided_cpu"] = _new
        names["assert_size_stride"] = names["assert_alignment"] = lambda *_: None
        names["alloc_from_pool"] = _from_pool
        names["reinterpret_tensor"] = torch.as_strided
        with allocations:
            names["call"](fakes)
    return Footprint(allocations.calls, allocations.peak)


def _new(size: Any, stride: Any, dtype: torch.dtype) -> torch.Tensor:
    return torch.empty_strided(size, stride, dtype=dtype)


def _from_pool(pool: Any, offset: int, dtype: Any, size: Any, stride: Any) -> torch.Tensor:
    whole = torch.as_strided(pool, (pool.untyped_storage().nbytes() // pool.itemsize,), (1,), 0)
    return torch.as_strided(whole.view(torch.uint8)[offset:].view(dtype), size, stride)


class _Allocations(TorchDispatchMode):
    """Notes each new storage, and the bytes that are live when it is made."""

    def __init__(self, known: Sequence[torch.Tensor]) -> None:
        super().__init__()
        self.known = {StorageWeakRef(tensor.untyped_storage()) for tensor in known}
        self.live: dict[StorageWeakRef, int] = {}
        self.calls = self.peak = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run a call and look at the storages of its results."""
        result = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, torch.Tensor):
                self._note(tensor.untyped_storage())
        return result

    def _note(self, storage: torch.UntypedStorage) -> None:
        reference = StorageWeakRef(storage)
        if reference in self.live or reference in self.known or not storage.nbytes():
            return
        self.live = {other: n for other, n in self.live.items() if not other.expired()}
        self.live[reference] = storage.nbytes()
        self.calls += 1
        self.peak = max(self.peak, sum(self.live.values()))
