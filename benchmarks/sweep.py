"""The reference pass on every operator and module that PyTorch tests, in four modes.

For each sample of `op_db` and `module_db`: in the dtypes of `DTYPES`, contiguous and transposed,
and also the in-place form, if there is one. The modes are: only the passes; `torch.compile` for
inference and for training; and symbolic sizes, at other sizes than traced.

How to read a row: how many calls in a mode were *right* (bit for bit as eager: values, inputs
afterwards, aliasing, sizes and strides), *wrong*, a *crash* (another error than `Refused`, or the
end of the process), or *refused*. The other answers are not about the passes: eager itself
*differs* from run to run; `aot_eager` differs *as* we do; the call is *undefined* in eager, is *not
compiled* by Dynamo, *raises* in eager, or has results that are *not dense*.

A sample becomes a `SampleCall`: a function of the tensors anywhere in its arguments; all other
arguments are constants. Eager runs twice and the reference pass once, on equal inputs and with the
same seed. The databases need the package expecttest, which torch does not depend on.

`--resume FILE` stores the results by operator, and continues where an earlier run stopped.
"""

from __future__ import annotations

import copy
import functools
import itertools
import json
import random
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import torch
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.backends.debugging import boxed_nop
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn.parameter import is_lazy
from torch.utils import _pytree as pytree

from aliasproof.campaigns.failure.codec import decoded, encoded
from aliasproof.eager.definedness import Undefined
from aliasproof.eager.trace import Trace
from aliasproof.ir.errors import Rejected, UserError
from aliasproof.ir.execution import SEED
from aliasproof.ir.values import clone_inputs
from aliasproof.judge.trial import start_worker
from aliasproof.oracles.contract import Contract
from aliasproof.oracles.judge import judge
from aliasproof.oracles.observation import Observation, observe, observe_eager
from aliasproof.oracles.verdict import Violation
from aliasproof.processes.isolation import Limits, start_server, step
from aliasproof.processes.outcome import Death, Raised, Returned
from aliasproof.processes.pool import Pool, RemoteCall
from aliasproof.reference_pass.backend import aliasproof
from aliasproof.reference_pass.exceptions import Refused
from aliasproof.reference_pass.pipeline import pipeline
from aliasproof.targets import gradients
from aliasproof.targets.target import Function
from benchmarks.tables import Table

DTYPES = (torch.float32, torch.int64, torch.complex64, torch.bool, torch.bfloat16)
LAYOUTS = ("contiguous", "transposed")
CHOICE = 0  # the seed by which samples and the order of subjects are chosen
_MOST_LISTED = 40  # samples considered per operator and dtype: some yield thousands
_MOST_ELEMENTS = 20_000  # per sample; larger ones test the kernel and not the passes


class SampleCall:
    """A function of the tensors in the arguments of a call. It returns a tensor, or a list.

    `name` is for people, `trains` says whether there are gradients. `constants` are the indices of
    tensors that require none: the buffers of a module.
    """

    def __init__(
        self,
        name: str,
        function: Callable[..., Any],
        arguments: Any,
        trains: bool,
        constants: frozenset[int] = frozenset(),
    ) -> None:
        self.name, self.function, self.trains, self.constants = name, function, trains, constants
        self.leaves, self.spec = pytree.tree_flatten(arguments)
        self.tensors = [leaf for leaf in self.leaves if isinstance(leaf, torch.Tensor)]

    def __call__(self, *tensors: torch.Tensor) -> Any:
        given = iter(tensors)
        leaves = [next(given) if isinstance(leaf, torch.Tensor) else leaf for leaf in self.leaves]
        args, kwargs = pytree.tree_unflatten(leaves, self.spec)
        result = self.function(*args, **kwargs)
        return result if isinstance(result, torch.Tensor) else pytree.tree_leaves(result)

    def in_layout(self, layout: str) -> SampleCall:
        """The same call on equal values, in the same layout or with other strides."""
        call = copy.copy(self)
        if layout == "transposed":
            call.tensors = [_transposed(tensor) for tensor in self.tensors]
        return call


def _transposed(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.dim() < 2:
        return torch.stack((tensor, tensor), -1)[..., 1]  # a stride of two, and an offset
    return tensor.transpose(0, 1).contiguous().transpose(0, 1)


# --- subjects -------------------------------------------------------------------------------------


@functools.cache
def subjects() -> dict[str, Any]:
    """Each OpInfo and ModuleInfo, by a unique name. Raises `UserError` without expecttest."""
    try:
        # Imported here: it takes seconds, and no other benchmark needs it.
        from torch.testing._internal import common_methods_invocations  # noqa: PLC0415
        from torch.testing._internal.common_modules import module_db  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise UserError(
            f"the databases of PyTorch's tests need {error.name}; pip install {error.name}"
        ) from error
    # `wrapper_set_seed` seeds the generator within the function, which the passes refuse.
    vars(common_methods_invocations)["wrapper_set_seed"] = lambda op, *args, **kwargs: op(
        *args, **kwargs
    )
    infos = common_methods_invocations.op_db
    by_name = {f"{info.name}.{info.variant_test_name}".rstrip("."): info for info in infos}
    return by_name | {f"nn.{info.name.replace('nn_', '', 1)} (module)": info for info in module_db}


def dtypes_of(info: Any) -> list[torch.dtype]:
    """The dtypes of `DTYPES` in which an operator or module runs on the CPU."""
    return [dtype for dtype in DTYPES if dtype in info.dtypes]


def calls_of(info: Any, dtype: torch.dtype, most: int) -> Iterator[SampleCall]:
    """At most `most` random samples of an operator or module, in all their forms."""
    torch.manual_seed(CHOICE)
    is_module = hasattr(info, "module_cls")
    listed = _modules(info, dtype) if is_module else _samples(info, dtype)
    candidates = list(itertools.islice(listed, _MOST_LISTED))
    chosen = random.Random(f"{CHOICE} {info.name} {dtype}").sample(
        candidates, min(most, len(candidates))
    )
    return itertools.chain.from_iterable(chosen)


def _is_for_the_sweep(tensors: Sequence[torch.Tensor]) -> bool:
    dense = all(tensor.layout is torch.strided and not tensor.is_nested for tensor in tensors)
    return dense and sum(tensor.numel() for tensor in tensors) <= _MOST_ELEMENTS


def _samples(info: Any, dtype: torch.dtype) -> Iterator[list[SampleCall]]:
    trains = info.supports_autograd and dtype in info.supported_backward_dtypes("cpu")
    in_place = info.get_inplace()
    for number, sample in enumerate(info.sample_inputs("cpu", dtype, requires_grad=False)):
        arguments = ((sample.input, *sample.args), sample.kwargs)
        forms = [SampleCall(f"sample {number}", info.op, arguments, trains)]
        if in_place is not None and not sample.broadcasts_input:
            trained = trains and info.supports_inplace_autograd
            forms.append(SampleCall(f"sample {number} in place", in_place, arguments, trained))
        if _is_for_the_sweep(forms[0].tensors):
            yield forms


def _modules(info: Any, dtype: torch.dtype) -> Iterator[list[SampleCall]]:
    options = {"device": "cpu", "dtype": dtype, "requires_grad": False}
    for training in (True, False):
        inputs = info.module_inputs_func(info, training=training, **options)
        for number, sample in enumerate(inputs):
            built, given = sample.constructor_input, sample.forward_input
            if given is None:
                continue
            module = info.module_cls(*built.args, **built.kwargs).to(dtype).train(training)
            if any(map(is_lazy, module.parameters())):
                module(*given.args, **given.kwargs)  # the module gets its parameters in a call
            parameters = dict(module.named_parameters())
            state = parameters | dict(module.named_buffers())
            call = SampleCall(
                f"sample {number} in {'training' if training else 'eval'}",
                functools.partial(torch.func.functional_call, module),
                (({name: it.detach() for name, it in state.items()}, given.args, given.kwargs), {}),
                True,
                frozenset(range(len(parameters), len(state))),
            )
            if _is_for_the_sweep(call.tensors):
                yield [call]


# --- other sizes ----------------------------------------------------------------------------------


def at_other_sizes(tensors: Sequence[torch.Tensor]) -> Iterator[list[torch.Tensor]]:
    """The tensors at other sizes, in several variants: an operator may accept only some of them.

    Equal sizes stay equal. Values are repeated, so that indices stay in range.
    """
    sizes = {size for tensor in tensors for size in tensor.shape if size > 1}
    firsts = {tensor.shape[0] for tensor in tensors[:1] if tensor.dim() and tensor.shape[0] > 1}
    for chosen in (sizes, firsts):
        for grow in (lambda size: size + 1, lambda size: 2 * size):
            if chosen:
                larger = {size: grow(size) for size in chosen}
                yield [_resized(tensor, larger) for tensor in tensors]


def _resized(tensor: torch.Tensor, sizes: dict[int, int]) -> torch.Tensor:
    shape = [sizes.get(size, size) for size in tensor.shape]
    count = torch.Size(shape).numel()
    if not tensor.numel():
        return tensor.new_empty(shape)
    repeated = tensor.flatten().repeat(count // tensor.numel() + 1)[:count].view(shape)
    # A trace may depend on the order of strides and on the offset.
    in_order = tensor.is_contiguous() and not tensor.storage_offset()
    return repeated.contiguous() if in_order else _transposed(repeated)


EAGER_STEP = "eager"  # a death in this step is not the fault of the passes
Tensors = Sequence[torch.Tensor]
# (function, sample inputs) -> the compiled function
Compiler = Callable[[Function, Tensors], Function]


class SweepAnswer(StrEnum):
    """The result of one call in one mode."""

    RIGHT = "right"
    WRONG = "wrong"
    CRASH = "crash"
    REFUSED = "refused"
    EAGER_DIFFERS = "eager differs"  # from itself, from run to run
    LIKE_AOT_EAGER = "as aot_eager"  # or torch's own trace: it has the same differences from eager
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

    def counting_backend(graph_module: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        calls.append(graph_module)
        return torch._dynamo.lookup_backend(backend)(graph_module, inputs)

    compiled = torch.compile(function, backend=counting_backend, dynamic=dynamic or None)

    def run(*tensors: torch.Tensor) -> object:
        result: object = compiled(*tensors)
        if not calls:
            raise _NotCompiledError
        return result

    if dynamic:
        run(*sample)
    return run


def by(backend: Any, *, dynamic: bool = False) -> Compiler:
    """`torch.compile` with this backend."""
    return functools.partial(_by_dynamo, backend, dynamic=dynamic)


def _trace_of_torch(function: Function, sample: Tensors) -> Function:
    """Torch's own trace with symbolic sizes, without passes, made for the tensors that it runs on.

    It is not made for the sample: a trace drops its guards, and may be wrong for other sizes.
    """

    def run(*tensors: torch.Tensor) -> object:
        trace = make_fx(function, tracing_mode="symbolic", _allow_non_fake_inputs=True)
        traced = trace(*clone_inputs(tensors))
        torch.manual_seed(SEED)
        return traced(*tensors)

    return run


@dataclass(frozen=True, slots=True)
class Mode:
    """A way to compile; `beside` are other ways, which show the bugs of torch itself.

    `trains`: inputs require gradients, and gradients are results. `resizes`: the graph runs on
    inputs of other sizes than it was traced for.
    """

    name: str
    compiler: Compiler
    beside: tuple[Compiler, ...]
    trains: bool = False
    resizes: bool = False


# `aot_eager` with the options of our backend: the same graphs as the passes get.
_AOT_GRAPHS = aot_autograd(fw_compiler=boxed_nop, keep_inference_input_mutations=True)

MODES = (
    Mode("direct", _directly, (by("aot_eager"),)),
    Mode("inference", by(aliasproof), (by("aot_eager"),)),
    Mode("training", by(aliasproof), (by(_AOT_GRAPHS),), trains=True),
    Mode(
        "symbolic sizes",
        functools.partial(_directly, sizes="symbolic"),
        # A trace of torch, too, since Dynamo runs some modules in Python.
        (by("aot_eager", dynamic=True), _trace_of_torch),
        resizes=True,
    ),
)


# --- one call -------------------------------------------------------------------------------------


def outcome(call: SampleCall, mode: Mode) -> Outcome | None:
    """The outcome of a call in a mode; None if the mode does not apply to it."""
    if mode.trains and not call.trains:
        return None
    result: Outcome | None = None
    others = at_other_sizes(call.tensors) if mode.resizes else ()
    for tensors in itertools.chain(others, [call.tensors]):
        result = _outcome_on(call, tensors, mode)
        # Some sizes are invalid for the operator, and others are refused by the graph.
        if result is None or result.answer not in (SweepAnswer.EAGER_RAISES, SweepAnswer.REFUSED):
            break
    return result


def _outcome_on(call: SampleCall, tensors: Tensors, mode: Mode) -> Outcome | None:
    """The outcome on these tensors; the graph is traced for `call.tensors`."""
    step(EAGER_STEP)
    function: Function = call
    fresh: Callable[[], Tensors] = functools.partial(clone_inputs, tensors)
    sample: Callable[[], Tensors] = functools.partial(clone_inputs, call.tensors)

    def in_eager() -> Observation:
        torch.manual_seed(SEED)
        return observe(function, fresh())

    def compiled_by(compiler: Compiler) -> Observation:
        # Two sets of inputs, since a build may mutate the inputs that it traces with.
        traced, inputs = sample(), fresh()

        def build_and_run(*tensors: torch.Tensor) -> object:
            compiled = _built(compiler, function, traced)
            torch.manual_seed(SEED)
            return compiled(*tensors)

        return observe(build_and_run, inputs)

    try:
        if mode.trains:
            function, fresh = gradients.conditions(call, fresh, None)
            _, sample = gradients.conditions(call, sample, None)
        eager = in_eager()
        if eager.error is not None:
            return Outcome(SweepAnswer.EAGER_RAISES, type(eager.error).__name__)
        step(mode.name)
        compiled = compiled_by(mode.compiler)
        if (refused := refusal(compiled.error)) is not None:
            return Outcome(SweepAnswer.REFUSED, _reason(str(refused)))
        if isinstance(compiled.error, _NotCompiledError):
            return Outcome(SweepAnswer.NOT_COMPILED)
        violations = _violations(eager, compiled)
        if not violations:
            return Outcome(SweepAnswer.RIGHT)
        shown = _evidence(violations[0], compiled.error)
        if _violations(eager, in_eager()):
            return Outcome(SweepAnswer.EAGER_DIFFERS, shown)
        torch.manual_seed(SEED)
        try:
            observe_eager(function, fresh())
        except Undefined as error:
            return Outcome(SweepAnswer.UNDEFINED, _reason(str(error)))
        step("aot_eager")
        for compiler in mode.beside:
            if _symptoms(violations) <= _symptoms(_violations(eager, compiled_by(compiler))):
                return Outcome(SweepAnswer.LIKE_AOT_EAGER, shown)
        answer = SweepAnswer.WRONG if compiled.error is None else SweepAnswer.CRASH
        return Outcome(answer, shown)
    except Rejected as error:
        # The message is about preconditions if no input requires a gradient, else about results.
        return None if "require gradients" in str(error) else Outcome(SweepAnswer.NOT_DENSE)


def _built(compiler: Compiler, function: Function, sample: Tensors) -> Function:
    if not isinstance(function, gradients.WithGradients):
        return compiler(function, sample)
    with torch.enable_grad():
        return gradients.WithGradients(compiler(function.function, sample))


def _violations(eager: Observation, other: Observation) -> list[Violation]:
    # An empty trace tolerates nothing, and an empty contract documents nothing.
    return judge(Contract(), eager, other, Trace()).violations


def _symptoms(violations: Sequence[Violation]) -> set[tuple[str, str]]:
    # Two compilers may raise different messages.
    return {
        (it.oracle, "" if it.oracle == "errors" else f"{it.kind} {it.place}") for it in violations
    }


def refusal(error: BaseException | None) -> Refused | None:
    """The refusal inside an error: Dynamo wraps what a backend raises."""
    while error is not None and not isinstance(error, Refused):
        error = error.__cause__ or error.__context__
    return error


def _reason(message: str) -> str:
    """A message without the parts that differ from call to call, as the name of a reason."""
    first = message.split("\n", 1)[0]
    plain = re.sub(r"\[[^]]*\]|'[^']*'|%?\b\w+_\d+\b|\d+(\.\d+)?", "#", first)
    return plain[:120]


def _evidence(violation: Violation, error: BaseException | None) -> str:
    evidence = ", ".join(f"{key} {value}" for key, value in violation.evidence.items())
    text = f"{violation.oracle}: {violation.describe()}; {evidence}"
    return " ".join((f"{text} {type(error).__name__}" if error is not None else text).split())[:400]


SAMPLES = 2  # per operator and dtype
LIMITS = Limits(seconds=120.0, nbytes=6 * 2**30)
_CALLS_PER_PROCESS = 2000  # then a new process: Dynamo and the caches of fakes leak memory
MODULE = "benchmarks.sweep"
_BAD = (SweepAnswer.WRONG, SweepAnswer.CRASH)


@dataclass(frozen=True, slots=True)
class Swept:
    """The results of one operator or module.

    `counts` is by mode and answer, `refused` by mode and reason. `shown` has one line per call that
    was wrong, crashed or could not be compared.
    """

    subject: str
    counts: Counter[tuple[str, str]]
    refused: Counter[tuple[str, str]]
    shown: tuple[tuple[str, str], ...] = ()  # the answer, and the call with the evidence

    def line(self) -> str:
        """The results in one line."""
        answers = Counter(answer for _, answer in self.counts.elements())
        return f"{self.subject}: {', '.join(f'{answers[answer]} {answer}' for answer in answers)}"


@dataclass(frozen=True, slots=True)
class SweepTable:
    """The results of all subjects. `subjects` is the number of subjects there are."""

    subjects: int
    swept: Sequence[Swept]

    def tables(self) -> list[Table]:
        """The answers by mode, notes on wrong calls and crashes, and refusals by reason."""
        counts: Counter[tuple[str, str]] = Counter()
        refused: Counter[tuple[str, str]] = Counter()
        for result in self.swept:
            counts.update(result.counts)
            refused.update(result.refused)
        rows = [
            (mode.name, *(str(counts[mode.name, answer]) for answer in SweepAnswer))
            for mode in MODES
        ]
        notes = [f"{len(self.swept)} of {self.subjects} operators and modules."]
        notes += [
            f"{answer}: {text}"
            for result in self.swept
            for answer, text in result.shown
            if answer in _BAD
        ]
        reasons = [(reason, mode, str(count)) for (mode, reason), count in refused.most_common()]
        return [
            Table(
                "sweep: the reference pass on op_db and module_db",
                ("mode", *SweepAnswer),
                rows,
                notes,
            ),
            Table("sweep: refusals", ("reason", "mode", "calls"), reasons),
        ]


def measure(
    *,
    samples: int = SAMPLES,
    seconds: float | None = None,
    resume: Path | None = None,
    names: Sequence[str] = (),
) -> SweepTable:
    """Sweep these subjects, or all of them, in random order.

    After `seconds`, no other subject is started. Results are read from and added to the file
    `resume`.
    """
    infos = subjects()
    if unknown := [name for name in names if name not in infos]:
        raise UserError(f"no operator or module '{unknown[0]}' in op_db or module_db")
    order = list(names) or random.Random(CHOICE).sample(sorted(infos), len(infos))
    settings = {"samples": samples, "seed": CHOICE, "torch": torch.__version__}
    known = {} if resume is None else _read(resume, settings)
    swept = [known[name] for name in order if name in known]
    deadline = time.monotonic() + (float("inf") if seconds is None else seconds)
    start_server([MODULE])
    begin = RemoteCall("", f"{start_worker.__module__}:{start_worker.__name__}")
    pool = Pool(begin, LIMITS, 1, renewal=_CALLS_PER_PROCESS)
    with pool.at_work():
        for name in [name for name in order if name not in known]:
            if time.monotonic() > deadline:
                break
            swept.append(_swept(name, samples, pool))
            if resume is not None:
                with resume.open("a", encoding="utf-8") as file:
                    line = {"settings": settings, **encoded(swept[-1])}
                    file.write(json.dumps(line) + "\n")
            print(f"{len(swept)} of {len(order)}: {swept[-1].line()}", flush=True)
    return SweepTable(len(order), swept)


def _swept(name: str, samples: int, pool: Pool) -> Swept:
    """All calls of one operator or module in all modes."""
    counts, refused = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    shown: list[tuple[str, str]] = []
    listed = pool.call(f"{MODULE}:listed_calls", name, samples)
    if not isinstance(listed, Returned):
        # Listing samples calls no pass, so an error is torch's, or of the sweep.
        text = f"{name}, its samples: {_failure_text(listed)}"
        return Swept(name, counts, refused, ((SweepAnswer.EAGER_RAISES, text),))
    for (dtype, index, called), layout, mode in itertools.product(listed.value, LAYOUTS, MODES):
        given = name, dtype, samples, index, layout, mode.name
        reply = pool.call(f"{MODULE}:call_outcome", *given)
        if isinstance(reply, Returned):
            outcome = reply.value
        else:  # an error belongs to the sweep, since one of the passes is part of their outcome
            in_eager = isinstance(reply, Death) and reply.step == EAGER_STEP
            answer = SweepAnswer.EAGER_RAISES if in_eager else SweepAnswer.CRASH
            outcome = Outcome(answer, _failure_text(reply))
        if outcome is None:  # the mode does not apply to the call
            continue
        counts[mode.name, outcome.answer] += 1
        if outcome.answer == SweepAnswer.REFUSED:
            refused[mode.name, outcome.detail] += 1
        elif outcome.answer not in (SweepAnswer.RIGHT, SweepAnswer.EAGER_RAISES):
            sample = f"{name} {str(dtype).removeprefix('torch.')} {called}"
            text = f"{sample}, {layout}, {mode.name}: {outcome.detail}"
            shown.append((outcome.answer, text))
    return Swept(name, counts, refused, tuple(shown))


# --- the process that runs calls ------------------------------------------------------------------


def _failure_text(failure: Death | Raised) -> str:
    if isinstance(failure, Raised):
        return " ".join(str(failure.error).split())[-400:]
    return f"{failure.step}: {failure.describe()} {' < '.join(map(str, failure.stack[:3]))}"


@functools.lru_cache(maxsize=8)
def _calls(subject: str, dtype: torch.dtype, samples: int) -> Sequence[SampleCall]:
    return list(calls_of(subjects()[subject], dtype, samples))


def listed_calls(subject: str, samples: int) -> list[tuple[torch.dtype, int, str]]:
    """The calls of a subject: dtype, index and name of each; runs in the isolated process."""
    return [
        (dtype, index, call.name)
        for dtype in dtypes_of(subjects()[subject])
        for index, call in enumerate(_calls(subject, dtype, samples))
    ]


def call_outcome(
    subject: str, dtype: torch.dtype, samples: int, index: int, layout: str, mode: str
) -> Outcome | None:
    """The outcome of one call in one mode; runs in the isolated process."""
    call = _calls(subject, dtype, samples)[index]
    chosen = next(candidate for candidate in MODES if candidate.name == mode)
    return outcome(call.in_layout(layout), chosen)


# --- the file of results --------------------------------------------------------------------------


def _read(path: Path, settings: Mapping[str, object]) -> dict[str, Swept]:
    """The results in a file that were found with the same settings, by subject."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        return {}
    lines = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    found = [decoded(Swept, line) for line in lines if line["settings"] == settings]
    return {swept.subject: swept for swept in found}
