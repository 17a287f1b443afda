"""What a run of a `PythonProgram` leaves behind, as an `Observation` with a path for each output.

All that the caller can reach counts as an output: inputs, results, attributes, globals, gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch

from aliasproof.oracles.observation import Observation
from aliasproof.programs.definedness import Watch
from aliasproof.programs.devices import finish
from aliasproof.programs.errors import InternalError, Rejected, require_sound_process
from aliasproof.programs.execution import seed_generators
from aliasproof.programs.object_graph import PLAIN, leaves
from aliasproof.programs.python_program import PythonProgram, limited
from aliasproof.programs.trace import Trace


@dataclass(slots=True)
class PythonRun:
    """The leaves of what a run left, by path; `kinds` has a line for each, such as its type."""

    observation: Observation
    paths: Sequence[str] = ()
    kinds: Mapping[str, str] = field(default_factory=dict)


def run_python(
    program: PythonProgram,
    transform: Callable[[Any], Any] = lambda given: given,
    within: AbstractContextManager[object] | None = None,
) -> PythonRun:
    """Run it in a fresh world, with gradients, as a user does. `transform` compiles.

    An error that it raises is part of the run. Raises `Rejected` if a tensor is not dense.
    """
    torch._dynamo.reset()
    seed_generators()
    try:
        # After an error in a compiled graph that enters inference mode, torch leaves it on.
        with torch.inference_mode(mode=False), torch.enable_grad(), within or nullcontext():
            left = program.run(transform)
            named = dict(_leaves(left))
            finish([leaf for leaf in named.values() if isinstance(leaf, torch.Tensor)])
    except (Rejected, InternalError):  # these say something about us, not about the program
        raise
    except Exception as error:  # noqa: BLE001 - any error of the program is part of its run
        require_sound_process(error)
        return PythonRun(Observation([], [], error=error))
    for path, leaf in named.items():
        if isinstance(leaf, torch.Tensor) and leaf.layout is not torch.strided:
            raise Rejected(f"{path} is {leaf.layout}; only dense tensors can be judged")
    kinds = {path: _kind(leaf) for path, leaf in named.items()}
    # Oracles read the numbers, and must not run autograd.
    return PythonRun(Observation([], [], list(named.values())), list(named), kinds)


def run_in_eager(program: PythonProgram) -> tuple[PythonRun, Trace]:
    """Run it in eager, and watch each ATen call.

    Raises:
        Undefined: It is undefined in eager.
        Rejected: It does something else while it is watched: in inference mode, torch makes other
            tensors below a dispatch mode.

    """
    watch = Watch()
    with torch.compiler.set_stance("force_eager"), limited():
        run, alone = run_python(program, within=watch), run_python(program)
    if run.kinds != alone.kinds or type(run.observation.error) is not type(alone.observation.error):
        raise Rejected("it does something else while it is watched")
    watch.require_initialised(
        [leaf for leaf in run.observation.outputs if isinstance(leaf, torch.Tensor)]
    )
    return run, watch.trace


def _leaves(left: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    """The tensors and plain values with their paths, and the gradients of leaves of autograd."""
    for name, value in left.items():
        if isinstance(value, torch.nn.Module):
            for inner, module in value.named_modules():
                yield f"{name}.{inner}.training".replace("..", "."), module.training
        for path, leaf in leaves(value, name):
            if isinstance(leaf, torch.Tensor):
                yield path, leaf
                if leaf.is_leaf and leaf.grad is not None:
                    yield f"{path}.grad", leaf.grad
            elif isinstance(leaf, (*PLAIN, torch.dtype, torch.Size)):
                yield path, leaf


def _kind(leaf: object) -> str:
    """What a caller sees of a leaf besides its data and layout."""
    if not isinstance(leaf, torch.Tensor):
        return type(leaf).__name__
    words = [type(leaf).__name__]
    words += ["requires grad"] * leaf.requires_grad
    words += ["leaf"] * leaf.is_leaf
    return ", ".join(words)
