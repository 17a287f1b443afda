"""`part_of`: the part of a layer of `torch.compile` that makes a `PythonProgram` wrong.

Each experiment compiles the program again without one part of the compiler, or one graph alone. The
first after which the difference is gone names the part. An error of a compilation says itself where
it was raised.
"""

from __future__ import annotations

import contextlib
import functools
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import fx
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.backends.debugging import boxed_nop
from torch._dynamo.backends.registry import lookup_backend
from torch._dynamo.exc import SkipFrame
from torch._functorch.partitioners import default_partition, min_cut_rematerialization_partition
from torch._subclasses.fake_tensor import FakeTensorMode

from aliasproof.ir.python_program import PythonProgram
from aliasproof.targets.inductor_fx import DRAWS_AS_EAGER
from aliasproof.targets.registry import target as target_named
from aliasproof.trials.code_generation import EXPERIMENTS, Experiment
from aliasproof.trials.compile_errors import where_raised
from aliasproof.trials.passes import GUARDS
from aliasproof.trials.python_run import run_in_eager, run_python
from aliasproof.trials.python_trial import Cause, compare, compiler

Transform = Callable[[Any], Any]
LAYERS = {
    "dynamo": "Dynamo",
    "aot-eager": "AOTAutograd",
    "inductor": "Inductor",
    "reference": "backend aliasproof",
}


def part_of(program: PythonProgram, cause: Cause) -> str:
    """The part at fault: 'Dynamo: guards', 'AOTAutograd: min-cut partitioner, graph 2 of 3'.

    The layer alone if no experiment tells, and nothing if the difference is not there. Raises
    `Undefined` if the program is undefined in eager.
    """
    return _Blame.of(program, cause).part()


@dataclass(frozen=True, slots=True)
class _Blame:
    program: PythonProgram
    cause: Cause
    shows: Callable[[Transform], bool]  # whether the difference is there

    @classmethod
    def of(cls, program: PythonProgram, cause: Cause) -> _Blame:
        expected, trace = run_in_eager(program)
        contract = target_named(cause.target).contract

        def shows(transform: Transform) -> bool:
            FakeTensorMode.cache_clear()
            found = compare(program, transform, expected, trace, contract, cause.target)
            # After another error, nothing is known.
            return any(one.oracle in (cause.oracle, "errors") for one in found.violations)

        return cls(program, cause, shows)

    def part(self) -> str:
        target = self.cause.target
        layer, compiled = LAYERS.get(target, target), compiler(target, draws=True)
        if not self.shows(compiled):
            return ""
        raised = self._raised_in(compiled)
        if raised is not None:
            return raised
        if not self.shows(_forgetting(compiled)):
            return GUARDS
        for part, transform in self._experiments():
            if not self.shows(transform):
                layer = part
                break
        return layer + self._graph()

    def _raised_in(self, compiled: Transform) -> str | None:
        """Where the compilation raised; None if it did not, or nothing tells."""
        if self.cause.oracle != "errors":
            return None
        error: BaseException | None = run_python(self.program, compiled).observation.error
        while error is not None and error.__cause__ is not None:
            error = error.__cause__
        raised = None if error is None else where_raised(error)
        return _in_dynamo(error) if raised == LAYERS["dynamo"] and error is not None else raised

    def _experiments(self) -> Iterator[tuple[str, Transform]]:
        """The parts that can be left out, each with the compiler without it."""
        if self.cause.target == "aot-eager":
            min_cut = min_cut_rematerialization_partition
            yield "AOTAutograd: min-cut partitioner", _by(_aot(default_partition, keep=True))
            yield "AOTAutograd: mutations in the graph", _by(_aot(min_cut, keep=False))
        if self.cause.target == "inductor":
            passes = (Experiment(name, "", {"disabled_passes": name}) for name in self._passes())
            for experiment in (*passes, *EXPERIMENTS):
                yield f"Inductor: {experiment.part}", _by("inductor", experiment.running)

    def _passes(self) -> Sequence[str]:
        """The names of the passes over graphs that run, in their order."""
        # Imported here: it takes two seconds, and most causes are in other layers.
        from torch.fx.passes.graph_transform_observer import (  # noqa: PLC0415
            GraphTransformObserver,
        )

        names: dict[str, None] = {}
        right = GraphTransformObserver._check_disable_pass

        def noting(observer: Any) -> bool:
            names[observer.passname] = None
            return right(observer)

        with mock.patch.object(GraphTransformObserver, "_check_disable_pass", noting):
            self.shows(_by("inductor"))
        return list(names)

    def _graph(self) -> str:
        """Which graph is at fault, in words, if there are several."""
        target = self.cause.target
        counting = _Chosen(target, range(0))
        self.shows(_by(counting))
        graphs = counting.graphs
        if graphs < 2:
            return ""
        for number in range(graphs):
            # What Dynamo makes of a frame needs what it made of those before it.
            chosen = range(number + 1) if target == "dynamo" else range(number, number + 1)
            if self.shows(_by(_Chosen(target, chosen, skip=target == "dynamo"))):
                return f", graph {number + 1} of {graphs}"
        return ", several graphs"


@dataclass(slots=True)
class _Chosen:
    """A backend that compiles some of the graphs it gets.

    The others run as Dynamo made them, or `skip` their frames, which run as Python then.
    """

    target: str
    chosen: range
    skip: bool = False
    graphs: int = 0

    def __call__(self, graph: fx.GraphModule, inputs: list[torch.Tensor], **_: Any) -> Any:
        self.graphs += 1
        if self.graphs - 1 in self.chosen:
            backend = target_named(self.target).backend
            compiler = lookup_backend(backend) if isinstance(backend, str) else backend
            return compiler(graph, inputs)
        if self.skip:
            raise SkipFrame("not chosen")
        return graph.forward


def _in_dynamo(error: BaseException) -> str:
    """The part of Dynamo that raised: the innermost kind of variable."""
    files = [Path(frame.filename) for frame in traceback.extract_tb(error.__traceback__)]
    kinds = [file.stem for file in files if file.parent.name == "variables"]
    return ": ".join([LAYERS["dynamo"], *kinds[-1:]])


def _by(
    backend: Any, within: Callable[[], AbstractContextManager[object]] = contextlib.nullcontext
) -> Transform:
    """What compiles a function with a backend, and calls it in a context."""

    def transform(program: Any) -> Any:
        options: Any = DRAWS_AS_EAGER if backend == "inductor" else None
        compiled = torch.compile(program, backend=backend, options=options)

        @functools.wraps(program)
        def call(*args: Any, **kwargs: Any) -> Any:
            with within():
                return compiled(*args, **kwargs)

        return call

    return transform


def _forgetting(compiled: Transform) -> Transform:
    """Each call compiles anew, so no guard is asked."""

    def transform(program: Any) -> Any:
        function = compiled(program)

        @functools.wraps(program)
        def call(*args: Any, **kwargs: Any) -> Any:
            torch._dynamo.reset()
            return function(*args, **kwargs)

        return call

    return transform


def _aot(partition: Any, *, keep: bool) -> Any:
    """The backend *aot_eager* with a partitioner, and with writes to inputs in the graph or not."""
    return aot_autograd(
        fw_compiler=boxed_nop, partition_fn=partition, keep_inference_input_mutations=keep
    )
