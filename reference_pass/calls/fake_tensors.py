"""*Fake* tensors: sizes, strides, offsets and storages, but no data.

They show which tensors share a storage, also for operators whose schemas say nothing about it.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Sequence

import torch
from torch import fx
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from aliasproof.reference_pass.calls.nested import tensors_in


def fake_mode(graph_module: fx.GraphModule, sample_args: Sequence[object] = ()) -> FakeTensorMode:
    """The mode of the fakes among the sample arguments or in the graph's metadata, or a new one."""
    # Fakes of two modes cannot meet in one call.
    values = (node.meta.get("val") for node in graph_module.graph.nodes)
    for value in itertools.chain(sample_args, values):
        for tensor in tensors_in(value):
            if isinstance(tensor, FakeTensor):
                return tensor.fake_mode
    return FakeTensorMode(allow_non_fake_inputs=True, shape_env=ShapeEnv())


@contextlib.contextmanager
def on_fakes(mode: FakeTensorMode) -> Iterator[None]:
    """The context to run nodes in: a fake mode, no gradients, no autocast, and no record of views.

    Without autocast, since its casts are calls of the graph already. Without the record, since
    autograd would note for each view how it was made from its base, and the cost grows with the
    length of the chain.
    """
    # Some C++ kernels accept no symbols for sizes. As in a trace, Python kernels replace them.
    symbolic = mode.shape_env is not None and mode.shape_env.var_to_sources
    kernels = enable_python_dispatcher() if symbolic else contextlib.nullcontext()
    autocast = torch._C._DisableAutocast()
    with kernels, mode, torch.no_grad(), autocast, without_record_of_views():
        yield


def without_record_of_views() -> contextlib.AbstractContextManager[None]:
    """A context in which autograd does not record that a tensor is a view."""
    views = torch._C.DispatchKeySet(torch._C.DispatchKey.ADInplaceOrView)
    return torch._C._ExcludeDispatchKeyGuard(views)
