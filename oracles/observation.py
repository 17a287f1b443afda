"""`Observation`: what one run left behind, seen the same way for eager and for a target."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

import torch
from torch.utils import _pytree as pytree

from programs.definedness import Watch
from programs.errors import InternalError, Rejected
from programs.execution import ProgramFunction
from programs.regions import Region
from programs.schemas import is_composite, resolve
from programs.trace import Trace


@dataclass(slots=True)
class Observation:
    """Inputs after the run and outputs, or the error that ended it.

    `inputs` are the very tensors passed; `outputs` the leaves of what was returned (whether in a
    list or a tuple is not looked at: AOTAutograd returns a list for either). Tensors are kept, not
    copied, so that regions and identities stay valid while the observation lives. `before` are
    views of the inputs as they were passed: a run may give an input another shape or storage.
    """

    inputs: Sequence[torch.Tensor]
    before: Sequence[torch.Tensor]
    outputs: Sequence[object] = ()
    error: Exception | None = None
    _regions: dict[str, Region] = field(default_factory=dict)

    def tensors(self) -> dict[str, torch.Tensor]:
        """All inputs and outputs that are tensors, as 'input 0', 'output 2'."""
        named = {f"input {index}": each for index, each in enumerate(self.inputs)}
        named |= {
            f"output {i}": each
            for i, each in enumerate(self.outputs)
            if isinstance(each, torch.Tensor)
        }
        return named

    def regions(self) -> dict[str, Region]:
        """The byte region of each tensor, by the same names."""
        if not self._regions:
            self._regions = {name: Region.of(each) for name, each in self.tensors().items()}
        return self._regions

    def is_input(self, output: object) -> int | None:
        """The number of the input that this output is, as an object; None if it is none."""
        return next((index for index, each in enumerate(self.inputs) if each is output), None)


def observe(
    function: Callable[..., object],
    inputs: Sequence[torch.Tensor],
    within: AbstractContextManager[object] | None = None,
) -> Observation:
    """Run the function once on these inputs (which it may mutate), without gradients. Its errors are part of the result.

    `within` is a context to run it in. Raises `Rejected` if something is no dense tensor.
    """
    observation = Observation(inputs, [each.detach() for each in inputs])
    try:
        with torch.no_grad(), within or nullcontext():
            observation.outputs = pytree.tree_leaves(function(*inputs))
    except (Rejected, InternalError):
        raise
    except Exception as error:  # noqa: BLE001 - whatever the function raises is what we are here to see
        observation.error = error
    for name, each in observation.tensors().items():
        if each.layout is not torch.strided or each.is_nested:
            kind = "nested" if each.is_nested else each.layout
            raise Rejected(f"{name} is {kind}; only dense (strided) tensors can be judged")
    return observation


def observe_eager(
    function: Callable[..., object], inputs: Sequence[torch.Tensor]
) -> tuple[Observation, Trace]:
    """Run the function in eager under watch.

    Raises `Undefined` if eager gives it no single meaning.
    """
    watch = Watch(inputs)
    if isinstance(function, ProgramFunction):
        watch.trace.as_written = not any(
            is_composite(resolve(each.op)) for each in function.program.instructions
        )
    observation = observe(function, inputs, watch)
    watch.require_initialised(
        [each for each in observation.outputs if isinstance(each, torch.Tensor)]
    )
    return observation, watch.trace
