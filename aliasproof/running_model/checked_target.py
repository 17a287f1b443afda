"""`CheckedTarget`: the backend whose graphs are compared with eager, and what it promises."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx
from torch._dynamo.backends.registry import lookup_backend

from aliasproof.ir.errors import Rejected, UserError
from aliasproof.ir.guarded_memory import GuardedMemory
from aliasproof.oracles.contract import Contract
from aliasproof.running_model.graph_call import GraphFunction
from aliasproof.running_model.lifted_graph import snapshot, without_narrow_conversions
from aliasproof.targets import aot_eager
from aliasproof.targets.dynamo import DRAWS_AS_EAGER, drawing_as_eager
from aliasproof.targets.registry import TARGETS
from aliasproof.targets.target import Target
from aliasproof.targets.user_names import name_of_object
from aliasproof.targets.variants import GRAD
from aliasproof.user_code.user_call import Copies


@dataclass(frozen=True, slots=True)
class CheckedTarget:
    """A backend of `torch.compile` with a name and a contract.

    `gradients` says whether the target has a variant that compiles a program for training.
    """

    name: str
    backend: Callable[..., Any] = field(repr=False)
    contract: Contract = field(repr=False, compare=False)
    gradients: bool = field(default=False, compare=False)

    @classmethod
    def of(cls, target: Target) -> CheckedTarget:
        """Raises `UserError` if a target is not a form of `torch.compile`."""
        if target.backend is None:
            raise UserError(
                f"target '{target.name}' is no form of torch.compile, and a model runs through"
                " such: give aot-eager, inductor, or your own pass or backend"
            )
        reason = target.unavailable()
        if reason is not None:
            raise UserError(f"target '{target.name}' {reason}")
        if target.backend == "inductor":
            inductor = torch._TorchCompileInductorWrapper(None, dict(DRAWS_AS_EAGER), None)
            return cls(target.name, inductor, target.contract, gradients=True)
        backend = lookup_backend(target.backend)
        return cls(target.name, backend, target.contract, target.own(GRAD) is not None)

    @classmethod
    def of_backend(cls, backend: Any) -> CheckedTarget:
        """What a model is compiled with: the name of a backend, or an object of `torch.compile`."""
        name = backend if isinstance(backend, str) else getattr(backend, "compiler_name", None)
        if name == "inductor" and hasattr(backend, "config"):
            drawing = copy.copy(backend)
            # Keep the model's options, but draw random numbers in the order of eager.
            drawing.config = {**backend.config, **DRAWS_AS_EAGER}
            return cls(name, drawing, TARGETS["inductor"].contract, gradients=True)
        known = next((it for it in TARGETS.values() if name and it.backend == name), None)
        if known is not None:
            gradients = known.own(GRAD) is not None
            return cls(known.name, lookup_backend(backend), known.contract, gradients)
        shown = name or getattr(backend, "__name__", type(backend).__name__)
        # A command that imports the backend would not have the options that the script gives.
        if not getattr(backend, "kwargs", None):
            shown = name_of_object(getattr(backend, "compiler_fn", backend)) or shown
        return cls(str(shown), lookup_backend(backend), aot_eager.CONTRACT)

    def reducing(self, direction: str) -> str:
        """The name of the target for programs that show a difference in this direction."""
        backward = self.gradients and direction == "backward"
        return f"{self.name}:{GRAD.name}" if backward else self.name

    def compile(self, graph: fx.GraphModule, args: Sequence[object]) -> GraphFunction:
        """Compile a graph for arguments like these."""
        # Code that is loaded in this context allocates its buffers with our allocator.
        with drawing_as_eager(), GuardedMemory():
            compiled: GraphFunction = self.backend(graph, args)
            return compiled

    def compile_wide(
        self, module: fx.GraphModule, eager: fx.GraphModule, given: Sequence[object]
    ) -> tuple[GraphFunction, GraphFunction]:
        """The graph in eager and compiled, for these inputs as float64. Raises `Rejected`."""
        tensors = [value for value in given if isinstance(value, torch.Tensor)]
        copies = Copies.of(tensors, wide=True, bare=True)
        args = [copies.made.get(id(value), value) for value in given]
        # Constants of the graph are widened, too.
        wide, in_eager = (
            without_narrow_conversions(copy.deepcopy(it).double()) for it in (module, eager)
        )
        try:
            # Not through Dynamo: it would fall back to eager after compiling the graph often.
            return in_eager, self.compile(snapshot(wide), args)
        except Exception as error:
            raise Rejected(f"no control in float64: {type(error).__name__}") from error
