"""`GraphCall`: one call of a captured graph, which can be repeated.

A run gets copies of the inputs that look the same to autograd. It runs in the modes in which the
model made the call, and draws the same random numbers. So eager and target can run as often as a
verdict needs, without any effect on the model.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch
from torch.utils import _pytree as pytree

from aliasproof.ir.devices import finish
from aliasproof.ir.guarded_memory import GuardedMemory
from aliasproof.ir.values import clone_inputs
from aliasproof.oracles.observation import Observation
from aliasproof.user_code.user_call import Copies

# --- autograd history -----------------------------------------------------------------------------
#
# What autograd knows about the tensors that a run leaves: leaves, results, and earlier results.


# The autograd node that computed a tensor, and the index of its result. None: a leaf.
End: TypeAlias = tuple[torch.autograd.graph.Node, int] | None
LEAF, RESULT, FORBIDDEN = "leaf", "result of the run", "forbidden"


def end_of(tensor: torch.Tensor) -> End:
    """The node behind a tensor. Autograd may forbid this (`RuntimeError`)."""
    return None if tensor.grad_fn is None else (tensor.grad_fn, tensor.output_nr)


def histories(run: Observation, ends: Sequence[End]) -> dict[str, str]:
    """The histories of all tensors that require gradients after a run, by location.

    `ends` are those of the inputs before the run.
    """
    known = {end: f"history of input {index}" for index, end in enumerate(ends) if end}
    named = {}
    for place, tensor in run.tensors().items():
        if tensor.requires_grad:
            try:
                end = end_of(tensor)
                named[place] = LEAF if end is None else known.get(end, RESULT)
            except RuntimeError:  # some views, after a write to their base
                named[place] = FORBIDDEN
    return named


# --- graph call -----------------------------------------------------------------------------------


GraphFunction: TypeAlias = Callable[..., object]
# The gradients of outputs and written inputs in a backward pass, by location: 'output 0'.
Tangents: TypeAlias = Mapping[str, torch.Tensor]
# New contents of inputs, by index.
Overwritten: TypeAlias = Mapping[int, torch.Tensor]


@dataclass(frozen=True, slots=True)
class RandomState:
    """The states of torch's generators on the host and on each CUDA device."""

    host: torch.Tensor
    devices: Sequence[torch.Tensor]

    @classmethod
    def now(cls) -> RandomState:
        """The current states."""
        devices = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else ()
        return cls(torch.get_rng_state(), devices)

    def restore(self) -> None:
        """Set the generators to these states."""
        torch.set_rng_state(self.host)
        if self.devices:
            torch.cuda.set_rng_state_all(self.devices)


@dataclass(frozen=True, slots=True)
class Modes:
    """The modes of torch at a call: gradients, inference, and autocast by type of device."""

    gradients: bool
    inference: bool
    autocast: Mapping[str, torch.dtype]

    @classmethod
    def now(cls, tensors: Sequence[torch.Tensor]) -> Modes:
        """The current modes, for these inputs."""
        devices = {"cpu", *(tensor.device.type for tensor in tensors)} - {"meta"}
        autocast = {
            device: torch.get_autocast_dtype(device)
            for device in sorted(devices)
            if torch.is_autocast_enabled(device)
        }
        return cls(torch.is_grad_enabled(), torch.is_inference_mode_enabled(), autocast)

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """Enter these modes for a context."""
        with contextlib.ExitStack() as stack:
            stack.enter_context(torch.inference_mode(self.inference))
            stack.enter_context(torch.set_grad_enabled(self.gradients))
            for device, dtype in self.autocast.items():
                stack.enter_context(torch.autocast(device, dtype))
            yield


@dataclass(frozen=True, slots=True)
class GraphRun:
    """What a run left behind: inputs and outputs, and the leaves that get gradients, by name.

    `histories` are those of the tensors that require gradients, by location. `overwritten` inputs
    are written before the backward pass.
    """

    observation: Observation
    leaves: Mapping[str, torch.Tensor]
    histories: Mapping[str, str]
    overwritten: Overwritten

    def differentiate(
        self, tangents: Tangents, within: AbstractContextManager[object] | None = None
    ) -> Observation:
        """The gradients of the leaves, as outputs in the order of the leaves.

        The tangent of a tensor without a history is ignored.
        """
        tensors, observation = self.observation.tensors(), Observation([], [])
        memory = GuardedMemory()
        given = [place for place in tangents if self.histories.get(place, LEAF) != LEAF]
        ends = [tensors[place] for place in given]
        with torch.no_grad():
            for index, contents in self.overwritten.items():
                self.observation.inputs[index].copy_(contents)
        with observation.noting_errors():
            around = within or nullcontext()
            with torch.inference_mode(mode=False), torch.enable_grad(), around, memory:
                if ends:
                    torch.autograd.backward(ends, clone_inputs([tangents[it] for it in given]))
            observation.memory = memory.use
            observation.outputs = [leaf.grad for leaf in self.leaves.values()]
            finish(observation.outputs)
        return observation


@dataclass(frozen=True, slots=True)
class GraphCall:
    """The inputs of a call at its start, which no run changes, with modes and random state.

    `number` counts the calls of a graph from 1. `overwritten` inputs are written between the call
    and its backward pass, for example by another call; see `GraphRun`.
    """

    number: int
    given: Sequence[object]
    modes: Modes
    random: RandomState
    overwritten: Overwritten = field(default_factory=dict)

    @classmethod
    def of(cls, args: Sequence[object], number: int = 1) -> GraphCall:
        """The next call, with these arguments."""
        tensors, _, given = _copied(args)
        return cls(number, given, Modes.now(tensors), RandomState.now())

    def run(
        self,
        function: GraphFunction,
        within: Callable[[Sequence[torch.Tensor]], AbstractContextManager[object]] | None = None,
        *,
        wide: bool = False,
    ) -> GraphRun:
        """Run a function on copies. Errors are part of the run.

        `within` makes the context for the run from the inputs. With `wide`, inputs with less
        precise dtypes become float64; raises `Rejected` if that is impossible.
        """
        tensors, copies, args = _copied(self.given, wide=wide)
        inputs = [copies.made[id(tensor)] for tensor in tensors]
        leaves = {name: leaf for name, leaf in _leaves(tensors, copies) if leaf.requires_grad}
        ends = [end_of(tensor) for tensor in inputs]
        self.random.restore()
        context, memory = nullcontext() if within is None else within(inputs), GuardedMemory()
        with self.modes.entered():
            observation = Observation(inputs, [tensor.detach() for tensor in inputs])
            with observation.noting_errors():
                with context, memory:
                    observation.outputs = pytree.tree_leaves(function(*args))
                observation.memory = memory.use
                finish((*inputs, *observation.outputs))
        return GraphRun(observation, leaves, histories(observation, ends), self.overwritten)


def _copied(
    args: Sequence[object], *, wide: bool = False
) -> tuple[list[torch.Tensor], Copies, list[object]]:
    """The tensors among the arguments, their copies, and the arguments with these copies."""
    tensors = [value for value in args if isinstance(value, torch.Tensor)]
    with torch.inference_mode(mode=False):
        copies = Copies.of(tensors, wide=wide, bare=True)
    return tensors, copies, [copies.made.get(id(value), value) for value in args]


def _leaves(tensors: Sequence[torch.Tensor], copies: Copies) -> Iterator[tuple[str, torch.Tensor]]:
    """The autograd leaves behind the inputs, by location; bases of views come last."""
    places = {id(tensor): f"input {index}" for index, tensor in enumerate(tensors)}
    order = [*places, *(key for key in copies.made if key not in places)]
    for number, key in enumerate(order):
        leaf = copies.sources.get(key, copies.made[key])
        if leaf.is_leaf:
            yield places.get(key, f"base {number - len(places)} of the inputs"), leaf


# --- arriving gradients ---------------------------------------------------------------------------
#
# The gradients that arrive at a graph's outputs while the model's own backward pass runs.
#
# The model is not changed for this: hooks on the autograd nodes of the outputs see the gradients.
# If other outputs of the graph are computed from such a node, it also gets their part. Eager and
# target get the same gradients, so this does not change a verdict.


@dataclass(slots=True, eq=False)
class ArrivingGradients:
    """Collects the gradients of one backward pass, and passes them to `then` once, at its end.

    `overwritten` returns inputs of the call that were written before this pass begins: hooks of the
    model may write further inputs during it, such as parameters.
    """

    then: Callable[[Overwritten, Tangents], None] | None
    overwritten: Callable[[], Overwritten]
    _overwritten: Overwritten = field(default_factory=dict)
    _arrived: dict[str, torch.Tensor] = field(default_factory=dict)

    def wait_at(self, place: str, tensor: torch.Tensor) -> None:
        """Watch the autograd node that made this tensor."""
        index = tensor.output_nr  # a hook that holds the tensor would keep its memory

        def note(gradients: Sequence[torch.Tensor | None]) -> None:
            if torch.compiler.is_compiling():
                return  # compiled autograd makes graphs of the backward pass, which are checked
            arrived = gradients[index]
            if self.then is None or arrived is None or arrived.layout is not torch.strided:
                return
            if not self._arrived:  # the first gradient of this pass
                engine: Any = torch.autograd.Variable._execution_engine
                engine.queue_callback(self._end)
                self._overwritten = self.overwritten()
            self._arrived[place] = clone_inputs([arrived.detach()])[0]

        assert tensor.grad_fn is not None
        tensor.grad_fn.register_prehook(note)

    def _end(self) -> None:
        then, self.then = self.then, None
        arrived, self._arrived = self._arrived, {}
        if then is not None:
            then(self._overwritten, arrived)
