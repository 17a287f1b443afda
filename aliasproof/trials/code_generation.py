"""`part_at_fault`: the part of Inductor's code generator that is at fault.

The last graph is right, and the code that is generated from it is wrong. Each experiment compiles
again with one part switched off, or with one operator as a call of ATen instead of generated code.
The first experiment after which the violation is gone names the part. They run from the most
special to the most general: without fusion, fewer buffers are reused, so that buffer reuse must be
asked before fusion; and any operator that runs as a call changes what is fused.

Compare `torch/_inductor/compiler_bisector.py`, which disables lowerings by their number, and knows
no scheduler.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from unittest import mock

from torch import fx
from torch._ops import OpOverload

from aliasproof.oracles.verdict import Violation
from aliasproof.targets.target import Target
from aliasproof.trials.promises import same_promise
from aliasproof.trials.trial import Case, EagerRun, run_trial

GENERATES_CODE = ("inductor",)
WHOLE_GENERATOR = "code generation"
ONE_OPERATOR = "lowering of "


@dataclass(frozen=True, slots=True)
class Experiment:
    """A part of the code generator, and a context in which it does nothing.

    `without` says what the context does, in words after 'it is right'. `settings` are those of
    `torch._inductor.config`.
    """

    part: str
    without: str
    settings: Mapping[str, object]
    patch: Callable[[], contextlib.AbstractContextManager[object]] = contextlib.nullcontext

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """The context."""
        # Imported here: this takes two seconds, and most targets generate no code.
        from torch._inductor import config  # noqa: PLC0415

        with config.patch(dict(self.settings)), self.patch():
            yield


def _without_fusion() -> contextlib.AbstractContextManager[object]:
    from torch._inductor.scheduler import Scheduler  # noqa: PLC0415

    return mock.patch.object(Scheduler, "fuse_nodes", lambda scheduler, nodes: nodes)


@contextlib.contextmanager
def _at_once() -> Iterator[None]:
    """Each operator fills a buffer when it is lowered; none is computed where it is used."""
    from torch._inductor import graph, ir  # noqa: PLC0415

    lowered = graph.GraphLowering.run_node

    def run_node(lowering: Any, node: fx.Node) -> Any:
        result = lowered(lowering, node)
        if isinstance(result, ir.TensorBox) and node.op == "call_function":
            result.realize()
        return result

    with mock.patch.object(graph.GraphLowering, "run_node", run_node):
        yield


@contextlib.contextmanager
def _noted_anew() -> Iterator[None]:
    """The metadata of all nodes is computed again after the passes."""
    from torch._inductor import compile_fx  # noqa: PLC0415
    from torch._inductor.virtualized import V  # noqa: PLC0415
    from torch.fx.passes.fake_tensor_prop import FakeTensorProp  # noqa: PLC0415

    passes = compile_fx._recursive_post_grad_passes

    def run_passes(graph: fx.GraphModule, is_inference: bool = False) -> None:
        passes(graph, is_inference)
        inputs = [node.meta["val"] for node in graph.graph.find_nodes(op="placeholder")]
        FakeTensorProp(graph, mode=V.fake_mode).propagate_dont_convert_inputs(*inputs)

    with mock.patch.object(compile_fx, "_recursive_post_grad_passes", run_passes):
        yield


def _setting(part: str, name: str, value: object) -> Experiment:
    return Experiment(part, f"with `{name}={value}` in `torch._inductor.config`", {name: value})


EXPERIMENTS: tuple[Experiment, ...] = (
    Experiment(
        "post_grad: metadata of the graph",
        "if the metadata of its graph is computed again after all passes",
        {},
        _noted_anew,
    ),
    _setting("scheduler: in-place buffers", "inplace_buffers", False),
    _setting("wrapper: memory planning", "memory_planning", False),
    _setting("wrapper: buffer reuse", "allow_buffer_reuse", False),
    _setting("scheduler: order for peak memory", "reorder_for_peak_memory", False),
    _setting("scheduler: dead-node elimination", "use_dce", False),
    Experiment(
        "lowering: computation at the place of use",
        "if each operator fills a buffer when it is lowered",
        {},
        _at_once,
    ),
    _setting("C++: vectorized code", "cpp.simdlen", 1),
    Experiment("scheduler: fusion", "if the scheduler fuses nothing", {}, _without_fusion),
)


def in_code_generator(part: str) -> bool:
    """Whether a blamed part is one of the code generator, so that all graphs are right."""
    return part == WHOLE_GENERATOR or bool(without(part))


def without(part: str) -> str:
    """What makes the generated code right, in words after 'it is right'; empty if nothing does."""
    if part.startswith(ONE_OPERATOR):
        return f"if it calls `{part.removeprefix(ONE_OPERATOR)}` of ATen"
    return next((experiment.without for experiment in EXPERIMENTS if experiment.part == part), "")


def part_at_fault(case: Case, target: Target, violation: Violation, eager: EagerRun) -> str | None:
    """The part after whose removal the violation is gone: 'lowering of aten.add.Tensor'.

    'code generation' if no experiment tells. None if the violation depends on chance.
    """
    operators: dict[OpOverload, None] = {}

    def shows(context: contextlib.AbstractContextManager[object], accused: Target = target) -> bool:
        with context:
            trial = run_trial(case, accused, eager=eager)
        # After another error, nothing is known.
        failed = trial.target.error is not None and violation.silent
        return failed or any(same_promise(other, violation) for other in trial.judgement.violations)

    if not shows(_lowered_operators(operators)):
        return None
    for experiment in EXPERIMENTS:
        if not shows(experiment.running(), _without_setting(target, experiment)):
            return experiment.part
    for operator in operators:
        if not shows(_as_call(operator)):
            return f"{ONE_OPERATOR}{operator}"
    return WHOLE_GENERATOR


def _without_setting(target: Target, experiment: Experiment) -> Target:
    """The target without the setting of an experiment, if its name gives one."""
    # `inductor:memory_planning=True` sets what it names after the experiment did.
    given = [part for part in target.name.split(":") if part.split("=")[0] in experiment.settings]
    fewer = [other for other in target.varies if not set(given) & set(other.name.split(":"))]
    return fewer[0] if given and fewer else target


@contextlib.contextmanager
def _lowered_operators(operators: dict[OpOverload, None]) -> Iterator[None]:
    """Note the operators that are lowered."""
    from torch._inductor.graph import GraphLowering  # noqa: PLC0415

    lowered = GraphLowering.call_function

    def call_function(lowering: Any, target: Any, args: Any, kwargs: Any) -> Any:
        if isinstance(target, OpOverload):
            operators[target] = None
        return lowered(lowering, target, args, kwargs)

    with mock.patch.object(GraphLowering, "call_function", call_function):
        yield


@contextlib.contextmanager
def _as_call(operator: OpOverload) -> Iterator[None]:
    """Generated code calls ATen for this operator."""
    from torch._inductor.graph import GraphLowering  # noqa: PLC0415
    from torch._inductor.lowering import fallback_handler  # noqa: PLC0415

    lowered = GraphLowering.call_function

    def call_function(lowering: Any, target: Any, args: Any, kwargs: Any) -> Any:
        if target is operator:
            return fallback_handler(target, add_to_fallback_set=False)(*args, **kwargs)
        return lowered(lowering, target, args, kwargs)

    with mock.patch.object(GraphLowering, "call_function", call_function):
        yield
