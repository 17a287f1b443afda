"""How `sweep` compiles a call, and what it says of the result.

Eager is run twice, and the reference pass once, on equal inputs and from the same seed. All oracles
on results compare, bit for bit: values, inputs afterwards, sharing of memory, sizes and strides.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import torch
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.backends.debugging import boxed_nop
from torch.fx.experimental.proxy_tensor import make_fx

from aliasproof.eager.definedness import Undefined
from aliasproof.eager.trace import Trace
from aliasproof.ir.errors import Rejected
from aliasproof.ir.execution import SEED
from aliasproof.ir.values import clone_inputs
from aliasproof.oracles.contract import Contract
from aliasproof.oracles.judge import judge
from aliasproof.oracles.observation import Observation, observe, observe_eager
from aliasproof.oracles.verdict import Violation
from aliasproof.processes.isolation import step
from aliasproof.reference_pass.backend import aliasproof
from aliasproof.reference_pass.exceptions import Refused
from aliasproof.reference_pass.pipeline import pipeline
from aliasproof.targets import gradients
from aliasproof.targets.target import Build, Function
from benchmarks.sweep_subjects import SampleCall, at_other_sizes

EAGER_STEP = "eager"  # the step of a call whose end is not the fault of the passes
Tensors = Sequence[torch.Tensor]
# (function, sample inputs) -> the compiled function
Compiler = Callable[[Function, Tensors], Function]


class SweepAnswer(StrEnum):
    """What is said of one call in one mode."""

    RIGHT = "right"
    WRONG = "wrong"
    CRASH = "crash"
    REFUSED = "refused"
    EAGER_DIFFERS = "eager differs"  # from itself, from run to run
    LIKE_AOT_EAGER = "as aot_eager"  # or torch's own trace: it differs from eager in the same way
    UNDEFINED = "undefined"  # in eager
    NOT_COMPILED = "not compiled"  # Dynamo runs the call in Python
    EAGER_RAISES = "eager raises"
    NOT_DENSE = "not dense"  # sparse or nested results


@dataclass(frozen=True, slots=True)
class Outcome:
    """The answer for one call; `detail` is a reason or the evidence."""

    answer: SweepAnswer
    detail: str = ""


# --- compilers ------------------------------------------------------------------------------------


class _NotCompiledError(Exception):
    """Dynamo has not called the backend."""


def _directly(function: Function, sample: Tensors, sizes: Any = "fixed") -> Function:
    return pipeline(function, *sample, sizes=sizes)


def _by_dynamo(backend: Any, function: Function, sample: Tensors, *, dynamic: bool) -> Function:
    torch._dynamo.reset()
    calls: list[object] = []

    def counting_backend(graph_module: torch.fx.GraphModule, inputs: Sequence[Any]) -> Any:
        calls.append(graph_module)
        return backend(graph_module, inputs)

    compiled = torch.compile(function, backend=counting_backend, dynamic=dynamic or None)

    def run(*tensors: torch.Tensor) -> object:
        result: object = compiled(*tensors)
        if not calls:
            raise _NotCompiledError
        return result

    if dynamic:
        run(*sample)
    return run


def _aot_eager(function: Function, sample: Tensors, *, dynamic: bool = False) -> Function:
    backend = torch._dynamo.lookup_backend("aot_eager")
    return _by_dynamo(backend, function, sample, dynamic=dynamic)


def _aot_graphs(function: Function, sample: Tensors) -> Function:
    """`aot_eager` with the options of our backend: the graphs that the passes get, as they are."""
    backend = aot_autograd(fw_compiler=boxed_nop, keep_inference_input_mutations=True)
    return _by_dynamo(backend, function, sample, dynamic=False)


def _trace_of_torch(function: Function, sample: Tensors) -> Function:
    """Torch's own trace with symbolic sizes, as it is, of the tensors that it then runs on.

    Not of the sample: such a trace forgets its guards, and may be wrong for other sizes.
    """

    def run(*tensors: torch.Tensor) -> object:
        trace = make_fx(function, tracing_mode="symbolic", _allow_non_fake_inputs=True)
        traced = trace(*clone_inputs(tensors))
        torch.manual_seed(SEED)
        return traced(*tensors)

    return run


def with_gradients(compiler: Compiler) -> Compiler:
    """The compiler for functions that also return gradients."""

    def build(function: Function, sample: Tensors) -> Build:
        return Build(compiler(function, sample), [])

    return lambda function, sample: gradients.build(build, function, sample).function


@dataclass(frozen=True, slots=True)
class Mode:
    """A way to compile, and other ways beside it, which show what is due to torch itself.

    `trains`: inputs require gradients, and gradients are results. `resizes`: the graph runs on
    inputs of other sizes than it was traced for.
    """

    name: str
    compiler: Compiler
    beside: tuple[Compiler, ...]
    trains: bool = False
    resizes: bool = False


_BY_BACKEND: Compiler = functools.partial(_by_dynamo, aliasproof, dynamic=False)

MODES = (
    Mode("direct", _directly, (_aot_eager,)),
    Mode("inference", _BY_BACKEND, (_aot_eager,)),
    Mode("training", with_gradients(_BY_BACKEND), (with_gradients(_aot_graphs),), trains=True),
    Mode(
        "symbolic sizes",
        functools.partial(_directly, sizes="symbolic"),
        # Dynamo runs some modules in Python.
        (functools.partial(_aot_eager, dynamic=True), _trace_of_torch),
        resizes=True,
    ),
)


# --- one call -------------------------------------------------------------------------------------


def outcome(call: SampleCall, mode: Mode) -> Outcome | None:
    """What the mode makes of a call; None if the mode is not for it."""
    if mode.trains and not call.trains:
        return None
    result: Outcome | None = None
    others = at_other_sizes(call.tensors) if mode.resizes else ()
    for tensors in itertools.chain(others, [call.tensors]):
        result = _outcome_on(call, tensors, mode)
        # Not all sizes are valid for the operator, nor does a graph accept all of them.
        if result is None or result.answer not in (SweepAnswer.EAGER_RAISES, SweepAnswer.REFUSED):
            break
    return result


def _outcome_on(call: SampleCall, tensors: Tensors, mode: Mode) -> Outcome | None:
    """The same; the graph is traced for the tensors of the call, and runs on these."""
    step(EAGER_STEP)
    function: Function = call.function
    fresh, sample = _maker(tensors), _maker(call.tensors)
    try:
        if mode.trains:
            function, fresh = gradients.conditions(function, fresh, None)
            _, sample = gradients.conditions(call.function, sample, None)
        compare = _Comparison(function, fresh, sample)
        if (error := compare.eager.error) is not None:
            return Outcome(SweepAnswer.EAGER_RAISES, type(error).__name__)
        step(mode.name)
        return compare.outcome(mode)
    except Rejected as error:
        # Of the conditions: no input requires a gradient. Else of an observation.
        return None if "require gradients" in str(error) else Outcome(SweepAnswer.NOT_DENSE)


def _maker(tensors: Tensors) -> Callable[[], Tensors]:
    return lambda: clone_inputs(tensors)


class _Comparison:
    """One function on equal inputs, in eager and compiled."""

    def __init__(
        self, function: Function, fresh: Callable[[], Tensors], sample: Callable[[], Tensors]
    ) -> None:
        self.function, self.fresh, self.sample = function, fresh, sample
        self.eager = self._eager()

    def _eager(self) -> Observation:
        torch.manual_seed(SEED)
        return observe(self.function, self.fresh())

    def _observe_compiled(self, compiler: Compiler) -> Observation:
        # Two sets, since a build may mutate the inputs that it traces with.
        sample, inputs = self.sample(), self.fresh()

        def build_and_run(*tensors: torch.Tensor) -> object:
            compiled = compiler(self.function, sample)
            torch.manual_seed(SEED)
            return compiled(*tensors)

        return observe(build_and_run, inputs)

    def outcome(self, mode: Mode) -> Outcome:
        """Compare, and explain a difference."""
        compiled = self._observe_compiled(mode.compiler)
        if compiled.error is not None and (refused := refusal(compiled.error)) is not None:
            return Outcome(SweepAnswer.REFUSED, _reason(str(refused)))
        if isinstance(compiled.error, _NotCompiledError):
            return Outcome(SweepAnswer.NOT_COMPILED)
        violations = _violations(self.eager, compiled)
        if not violations:
            return Outcome(SweepAnswer.RIGHT)
        shown = _evidence(violations[0], compiled.error)
        if _violations(self.eager, self._eager()):
            return Outcome(SweepAnswer.EAGER_DIFFERS, shown)
        if (undefined := self._undefined_reason()) is not None:
            return Outcome(SweepAnswer.UNDEFINED, undefined)
        step("aot_eager")
        for compiler in mode.beside:
            others = _violations(self.eager, self._observe_compiled(compiler))
            if _symptoms(violations) <= _symptoms(others):
                return Outcome(SweepAnswer.LIKE_AOT_EAGER, shown)
        return Outcome(
            SweepAnswer.CRASH if compiled.error is not None else SweepAnswer.WRONG, shown
        )

    def _undefined_reason(self) -> str | None:
        """Why the function is undefined in eager; None if it is defined."""
        torch.manual_seed(SEED)
        try:
            observe_eager(self.function, self.fresh())
        except Undefined as error:
            return _reason(str(error))
        return None


def _violations(eager: Observation, other: Observation) -> list[Violation]:
    # An empty trace tolerates nothing, and an empty contract documents nothing.
    return judge(Contract(), eager, other, Trace()).violations


def _symptoms(violations: Sequence[Violation]) -> set[tuple[str, str]]:
    # Two compilers may raise in other words.
    return {
        (
            violation.oracle,
            "" if violation.oracle == "errors" else f"{violation.kind} {violation.place}",
        )
        for violation in violations
    }


def refusal(error: BaseException | None) -> Refused | None:
    """The refusal in an error: Dynamo raises its own from what a backend raises."""
    while error is not None and not isinstance(error, Refused):
        error = error.__cause__ or error.__context__
    return error


def _reason(message: str) -> str:
    """A message without what differs from call to call, as the name of a reason."""
    first = message.split("\n", 1)[0]
    plain = re.sub(r"\[[^]]*\]|'[^']*'|%?\b\w+_\d+\b|\d+(\.\d+)?", "#", first)
    return plain[:120]


def _evidence(violation: Violation, error: BaseException | None) -> str:
    evidence = ", ".join(f"{key} {value}" for key, value in violation.evidence.items())
    text = f"{violation.oracle}: {violation.describe()}; {evidence}"
    return " ".join((f"{text} {type(error).__name__}" if error is not None else text).split())[:400]
