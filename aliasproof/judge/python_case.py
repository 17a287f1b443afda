"""`PythonCase`: Python code that is judged by all that its caller can reach after a run.

All of that counts as outputs with paths: inputs, results, attributes, globals, gradients. The code
is a `PythonProgram`, or a call of a user's function. `torch.compile` compiles it for a target.
"""

from __future__ import annotations

import enum
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeAlias

import torch
from torch._dynamo.utils import counters
from torch._subclasses.fake_tensor import FakeTensorMode

from aliasproof.eager.definedness import Watch
from aliasproof.eager.rounding import is_inexact
from aliasproof.ir.devices import finish
from aliasproof.ir.errors import Rejected
from aliasproof.ir.execution import seed_generators
from aliasproof.ir.guarded_memory import GuardedMemory, needs_resizing
from aliasproof.ir.object_graph import NUMPY, NUMPY_NAME, PLAIN, leaves
from aliasproof.ir.program import Program
from aliasproof.ir.python_program import SECONDS, AnyProgram, PythonProgram, limit_run_time
from aliasproof.ir.values import has_bytes
from aliasproof.judge.trial import (
    Case,
    EagerRun,
    EarlierLayers,
    Subject,
    guarded,
    with_more_runs,
)
from aliasproof.oracles.contract import EVERYTHING, Contract
from aliasproof.oracles.judge import judge
from aliasproof.oracles.observation import Observation
from aliasproof.oracles.verdict import Violation
from aliasproof.processes.isolation import ORACLES_STEP, TARGET_STEP, step
from aliasproof.targets.dynamo import drawing_as_eager, unmeasured
from aliasproof.targets.registry import target as target_named
from aliasproof.targets.target import Build, Target

Left: TypeAlias = Mapping[str, object]  # by name, what a caller can reach after a call


class Runnable(Protocol):
    """Code that runs in its own namespace."""

    def run(self, transform: Callable[[Any], Any], then: Callable[[Left], None]) -> Left:
        """What the caller can reach after a run of the code as `transform` compiles it.

        If a backward pass must follow the call, `then` runs it, on what the caller can reach
        before.
        """

    def widened(self) -> Runnable:
        """The code with float64 instead of less precise dtypes.

        While it runs, float64 must be the default dtype. A run raises `Rejected` if this is
        impossible.
        """


LAYERS = ("dynamo", "aot-eager", "inductor")  # each builds on the earlier ones
EAGER = "identity"  # eager again, in another namespace: any difference is a mistake of ours


def layers(target: str) -> list[str]:
    """The target and those that it builds on, in order."""
    if target in LAYERS:
        return list(LAYERS[: LAYERS.index(target) + 1])
    return [target] if target == EAGER else [*LAYERS[:-1], target]


@dataclass(frozen=True, slots=True)
class PythonCase:
    """Code to judge, see `Subject`; a watched run in eager may take `seconds`, 0 for no limit."""

    code: Runnable
    seconds: float = SECONDS

    def under(self, target: Target) -> PythonCase:
        """Itself: eager runs under the same conditions for each target."""
        return self

    def run_eager(self) -> EagerRun:
        """Run it in eager, and watch each ATen call."""
        return run_in_eager(self.code, self.seconds)

    def observe(self) -> Observation:
        """Run it in eager."""
        return run_python(self.code, compiler(target_named(EAGER)))

    def run_target(self, target: Target) -> tuple[Observation, Build | None]:
        """Run the compiled code. There is no build: Dynamo may make any number of graphs."""
        run = guarded(lambda _: run_python(self.code, compiler(target)))
        if needs_resizing(run.error):
            run = run_python(self.code, compiler(target))
        return run, None

    def run_again(self, target: Target, build: Build | None, memory: GuardedMemory) -> Observation:
        """Compile and run it."""
        with memory:
            return run_python(self.code, compiler(target))

    def widened(self) -> Iterator[PythonCase]:
        """The case with float64 instead of less precise dtypes."""
        yield replace(self, code=self.code.widened())

    def earlier_layers(self, target: Target) -> EarlierLayers:
        """The layer of `torch.compile` before a target."""
        before = layers(target.name)[:-1]
        return EarlierLayers(after=target_named(before[-1]) if before else None)


def subject_of(program: AnyProgram) -> Subject:
    """A program as a subject to judge."""
    return Case.of(program) if isinstance(program, Program) else PythonCase(program)


def compiler(target: Target) -> Callable[[Any], Any]:
    """The function that compiles the code for a target; it is called once per run."""
    if target.name == EAGER:
        # `torch.cond` compiles its branches in eager, too.
        without: Callable[[Any], Any] = torch.compiler.set_stance("force_eager")
        return without
    unmeasured()
    FakeTensorMode.cache_clear()  # as for code that was never compiled
    return lambda program: torch.compile(program, backend=target.backend)


def compare(
    program: Runnable,
    compiled: Callable[[Any], Any],
    eager: EagerRun,
    contract: Contract = EVERYTHING,
) -> list[Violation]:
    """Run the program as `compiled` transforms it, and compare with a run in eager."""

    def again(memory: GuardedMemory) -> Observation:
        with memory:
            return run_python(program, compiled)

    step(TARGET_STEP)
    actual = guarded(lambda _: run_python(program, compiled))
    step(ORACLES_STEP)
    runs = eager.observation, actual
    judgement = judge(contract, *runs, eager.trace)
    if judgement.violations:
        judgement = with_more_runs(judgement, contract, runs, eager.trace, again)
    return judgement.violations


def run_python(
    program: Runnable,
    transform: Callable[[Any], Any] = lambda given: given,
    within: AbstractContextManager[object] | None = None,
) -> Observation:
    """Run it in a fresh namespace, with gradients, as a user does. `transform` compiles.

    An exception of the program is part of the run.
    """
    torch._dynamo.reset()
    seed_generators()
    called: Observation | None = None

    def then(left: Left) -> None:
        nonlocal called
        called = _seen(dict(_leaves(left, gradients=False)))
        tensors = {id(leaf): leaf for leaf in called.outputs if isinstance(leaf, torch.Tensor)}
        ends = [it for it in tensors.values() if it.requires_grad and _history(it) == RESULT]
        if ends:  # run backward from all tensors that autograd computed
            torch.autograd.backward(ends, list(map(numbers_for, ends)))

    run, around = Observation([], []), within or nullcontext()
    with (
        run.noting_errors(),
        _dispatch_keys_kept(),
        torch.enable_grad(),
        drawing_as_eager(),
        around,
    ):
        named = dict(_leaves(program.run(transform, then)))
        finish([leaf for leaf in named.values() if isinstance(leaf, torch.Tensor)])
    return replace(run if run.error is not None else _seen(named), called=called)


@contextmanager
def _dispatch_keys_kept() -> Iterator[None]:
    """Free, before this ends, objects whose deallocation changes torch's dispatch keys.

    After an error in a compiled graph that enters inference mode, torch stays in that mode until
    the frames of the error are freed, and then restores the dispatch keys of the tracing: from then
    on, every call on a tensor fails.
    """
    with torch.inference_mode(mode=False):  # restores the dispatch keys at its entry
        try:
            yield
        except Exception as error:
            chained: BaseException | None = error
            while chained is not None:
                traceback.clear_frames(chained.__traceback__)
                chained = chained.__cause__ or chained.__context__
            raise


def _seen(named: Mapping[str, object]) -> Observation:
    kinds = {path: _kind(leaf) for path, leaf in named.items()}
    return Observation([], [], list(named.values()), None, list(named), kinds)


def numbers_for(tensor: torch.Tensor) -> torch.Tensor:
    """A gradient to start a backward pass from this tensor, whose elements vary."""
    return torch.arange(tensor.numel()).remainder(5).add(1).reshape(tensor.shape).to(tensor)


def run_in_eager(program: Runnable, seconds: float = SECONDS) -> EagerRun:
    """Run it in eager for at most `seconds`, 0 for no limit, and watch each ATen call.

    Raises:
        Undefined: It is undefined in eager.
        Rejected: It behaves differently while it is watched: in inference mode, torch makes
            other tensors below a dispatch mode. Or it raises only where nothing is compiled: eager
            compiles what a higher-order operator calls, and without that, `map` fails.

    """
    watch = Watch()
    with torch.compiler.set_stance("force_eager"), limit_run_time(seconds):
        run, alone = run_python(program, within=watch), run_python(program)
    watch.require_defined(run.error)
    if run.error is not None:
        with limit_run_time(seconds):
            as_called = run_python(program)
        if as_called.error is None:
            raise Rejected("it raises where nothing is compiled, and eager compiles a part of it")
    if run.kinds != alone.kinds or type(run.error) is not type(alone.error):
        raise Rejected("it does something else while it is watched")
    watch.require_initialised([leaf for leaf in run.outputs if isinstance(leaf, torch.Tensor)])
    return EagerRun(run, watch.trace)


# Other values are compared by their text; values without text of their own, by their type.
NAMED = (
    *(torch.dtype, torch.device, torch.layout, torch.memory_format),
    *(enum.Enum, bytes, range, slice),
)
_NOT_COMPARED = (torch.autograd.graph.Node, Iterator)  # a compiler makes others


def _leaves(left: Left, *, gradients: bool = True) -> Iterator[tuple[str, object]]:
    """The tensors and plain values with their paths, and the gradients of autograd leaves."""
    for name, value in left.items():
        if isinstance(value, torch.nn.Module):
            for inner, module in value.named_modules():
                yield f"{name}.{inner}.training".replace("..", ".").lstrip("."), module.training
        for path, leaf in leaves(value, name):
            if isinstance(leaf, torch.Tensor) and has_bytes(leaf):
                yield path, leaf
                if gradients and _history(leaf) == LEAF and leaf.grad is not None:
                    yield f"{path}.grad", leaf.grad
            elif isinstance(leaf, NUMPY):
                yield path, f"<{NUMPY_NAME}>"
            elif isinstance(leaf, PLAIN):
                yield path, leaf
            elif not callable(leaf) and not isinstance(leaf, _NOT_COMPARED):
                yield path, str(leaf) if isinstance(leaf, NAMED) else f"<{type(leaf).__name__}>"


@dataclass(slots=True)
class FloatState:
    """The floating-point tensors that eager left after a call, by path.

    Accepted rounding in the state of a compiled function would grow in the next call, which starts
    from that state. So a later call starts from the numbers that eager left. Tensor objects and
    their memory stay the same.
    """

    tensors: dict[str, torch.Tensor] = field(default_factory=dict)

    def keep(self, left: Left) -> None:
        """Keep copies of what eager left."""
        self.tensors = {path: it.detach().clone() for path, it in _inexact(left)}

    def restore(self, left: Left) -> None:
        """Write these numbers into the tensors of the same path, dtype and size."""
        for path, tensor in _inexact(left):
            kept = self.tensors.get(path)
            if kept is not None and (kept.dtype, kept.shape) == (tensor.dtype, tensor.shape):
                tensor.detach().data.copy_(kept)


def _inexact(left: Left) -> Iterator[tuple[str, torch.Tensor]]:
    for path, leaf in _leaves(left):
        if isinstance(leaf, torch.Tensor) and is_inexact(leaf):
            yield path, leaf


def _kind(leaf: object) -> str:
    """What a caller sees of a leaf, besides its data and layout."""
    if not isinstance(leaf, torch.Tensor):
        return type(leaf).__name__
    words = [type(leaf).__name__]
    words += ["requires grad"] * leaf.requires_grad
    words += [] if (history := _history(leaf)) == RESULT else [history]
    return ", ".join(words)


LEAF, RESULT, FORBIDDEN = "leaf", "result", "forbidden"


def _history(tensor: torch.Tensor) -> str:
    """LEAF or RESULT of autograd; FORBIDDEN for a view that a write to its base made unusable."""
    try:
        return LEAF if tensor.is_leaf else RESULT
    except RuntimeError:
        return FORBIDDEN


# --- python frames --------------------------------------------------------------------------------
#
# How Dynamo splits a `PythonProgram`: whether it is defined, how many graphs, where graphs break.


ONE, BROKEN, NONE, RAISES = "no graph breaks", "graphs break", "no graph", "raises"


def is_defined(program: PythonProgram) -> bool:
    """Whether it is defined in eager, and behaves the same while it is watched."""
    try:
        run_in_eager(program)
    except Rejected:
        return False
    return True


def cut_of(program: PythonProgram, counts: Counter[str]) -> str:
    """How Dynamo splits it, in all its calls. Adds frames, graphs and breaks to `counts`.

    A frame that is compiled again for other arguments counts again.
    """
    torch._dynamo.reset()
    counters.clear()
    run = run_python(program, compiler(target_named("dynamo")))
    breaks = sum(counters["graph_break"].values())
    graphs = counters["stats"]["unique_graphs"]
    counts["frames"] += counters["frames"]["total"]
    counts["graphs"] += graphs
    counts["graph breaks"] += breaks
    if run.error is not None:
        return RAISES
    return BROKEN if breaks else ONE if graphs else NONE
