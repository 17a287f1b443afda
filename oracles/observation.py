"""`Observation`: what one run left behind, recorded in the same way for eager and for a target."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils import _pytree as pytree

from aliasproof.eager.definedness import Watch
from aliasproof.eager.trace import Trace
from aliasproof.ir.custom_operators import NAMESPACE
from aliasproof.ir.devices import finish
from aliasproof.ir.errors import InternalError, Rejected, require_sound_process
from aliasproof.ir.execution import ProgramFunction, leaving_forward_levels
from aliasproof.ir.guarded_memory import MemoryUse
from aliasproof.ir.regions import Region
from aliasproof.ir.schemas import is_composite, resolve
from aliasproof.ir.values import bytes_of


@dataclass(slots=True)
class Observation:
    """Inputs after the run and outputs, or the error that ended it.

    `inputs` are the tensor objects that were passed. `outputs` are the leaves of the return value,
    whether in a list or a tuple: AOTAutograd returns a list for both. Tensors are kept, not copied,
    so that regions and identities stay valid while the observation lives. `before` are views of the
    inputs as they were passed: a run may give an input another shape or storage.

    Only runs of Python code name their outputs by `paths`, such as 'state.first'; then `kinds` has
    the properties of each output that a caller sees besides its data and layout, such as its type.
    `called` is the observation before the backward pass that follows a call, without gradients;
    None if no such pass began. `memory` records what generated code did to its buffers, if any.
    """

    inputs: Sequence[torch.Tensor]
    before: Sequence[torch.Tensor]
    outputs: Sequence[object] = ()
    error: Exception | None = None
    paths: Sequence[str] = ()
    kinds: Mapping[str, str] = field(default_factory=dict)
    called: Observation | None = None
    memory: MemoryUse | None = None
    _regions: dict[str, Region] = field(default_factory=dict)

    def tensors(self) -> dict[str, torch.Tensor]:
        """All inputs and outputs that are tensors, as 'input 0', 'output 2'."""
        named = {f"input {index}": tensor for index, tensor in enumerate(self.inputs)}
        named |= {
            f"output {index}": output
            for index, output in enumerate(self.outputs)
            if isinstance(output, torch.Tensor)
        }
        return named

    def place_names(self) -> dict[str, str]:
        """The path of each output, if outputs have paths: of 'output 2', 'state.first'."""
        return {f"output {index}": path for index, path in enumerate(self.paths)}

    def leaves(self) -> dict[str, object]:
        """The outputs by path; empty if the run raised, or has no paths."""
        return dict(zip(self.paths, self.outputs, strict=True)) if self.paths else {}

    def regions(self) -> dict[str, Region]:
        """The byte region of each tensor, by the same names."""
        # Computed once: several oracles use the regions, and the tensors do not change any more.
        if not self._regions:
            self._regions = {name: Region.of(tensor) for name, tensor in self.tensors().items()}
        return self._regions

    @contextmanager
    def noting_errors(self) -> Iterator[None]:
        """Errors in this context are part of the run, unless they are about us or the machine."""
        try:
            yield
        except (Rejected, InternalError):
            raise
        except Exception as error:  # noqa: BLE001 - any error of the code that runs is part of it
            require_sound_process(error)
            self.error = error

    def is_input(self, output: object) -> int | None:
        """The index of the input that this output is, as an object; None if it is not an input."""
        return next((index for index, tensor in enumerate(self.inputs) if tensor is output), None)


def observe(
    function: Callable[..., object],
    inputs: Sequence[torch.Tensor],
    within: AbstractContextManager[object] | None = None,
) -> Observation:
    """Run the function once, without gradients, on these inputs, which it may mutate.

    Its errors are part of the observation. `within` is a context to run it in.

    Raises:
        Rejected: A tensor is not dense.
        DeviceLost: An error of the function took the device with it.
        OutOfMemory: The function needs more memory than this process may have.

    """
    # `detach` makes a view with metadata of its own, so `t_` on the input leaves it.
    observation = Observation(inputs, [tensor.detach() for tensor in inputs])
    with observation.noting_errors():
        with torch.no_grad(), leaving_forward_levels(), within or nullcontext():
            observation.outputs = pytree.tree_leaves(function(*inputs))
            if _any_fake(observation.outputs) and not _any_fake(inputs):
                raise TypeError("an output is a fake tensor, which has no data")
        # An error of a kernel belongs to this run, not to the next one.
        finish((*inputs, *observation.outputs))
    # Regions describe strided memory only, so nothing else can be compared.
    for name, tensor in observation.tensors().items():
        if tensor.layout is not torch.strided or tensor.is_nested:
            kind = "nested" if tensor.is_nested else tensor.layout
            raise Rejected(f"{name} is {kind}; only dense (strided) tensors can be judged")
    return observation


def _any_fake(values: Iterable[object]) -> bool:
    return any(isinstance(value, FakeTensor) for value in values)


def observe_eager(
    function: Callable[..., object], inputs: Sequence[torch.Tensor]
) -> tuple[Observation, Trace]:
    """Run the function in eager, and watch each ATen call.

    Raises:
        Undefined: The function is undefined in eager.

    """
    watch = Watch(inputs, fill=getattr(function, "fill", None))
    watch.trace.captured = getattr(function, "captured", None)
    watch.trace.is_program = isinstance(function, ProgramFunction)
    if isinstance(function, ProgramFunction):
        # A program lists all ops that it calls. A Python function may call composite ones.
        calls = function.program.instructions
        watch.trace.as_written = not any(is_composite(resolve(call.op)) for call in calls)
        # The watch sees the ops that a composite operator calls, and not the operator itself.
        watch.trace.custom_write = any(
            call.mutates() and resolve(call.op).namespace == NAMESPACE for call in calls
        )
    # Dynamo skips functions that it meets below a dispatch mode, also in later runs. A later run of
    # `torch.cond` without the mode would then fail.
    with torch.compiler.set_stance("force_eager"):
        observation = observe(function, inputs, watch)
    watch.require_defined(observation.error)
    outputs = [output for output in observation.outputs if isinstance(output, torch.Tensor)]
    watch.require_initialised(outputs)
    # Inputs are compared with their whole storages, which `resize_` may have made longer.
    kept = [*observation.before, *observation.inputs]
    watch.require_initialised([bytes_of(tensor.untyped_storage()) for tensor in kept])
    watch.trace.from_expanded = frozenset(_from_expanded(observation, watch.trace))
    return observation, watch.trace


def _from_expanded(observation: Observation, trace: Trace) -> Iterator[str]:
    """The inputs and outputs whose data come from a write through an overlapping region."""
    for index, (before, after) in enumerate(
        zip(observation.before, observation.inputs, strict=True)
    ):
        if trace.expanded.any((before, after)):
            yield f"input {index}"
    for index, output in enumerate(observation.outputs):
        # A Python number may come from any tensor.
        if output in trace.expanded if isinstance(output, torch.Tensor) else trace.expanded:
            yield f"output {index}"
