"""The reference pass on every operator and module that PyTorch tests, in four modes.

For each sample of `op_db` and `module_db`: in the dtypes of `DTYPES`, contiguous and transposed,
and also the in-place form, if there is one. The modes are: only the passes; as the backend of
`torch.compile` without gradients, and with a backward pass; and symbolic sizes, at other sizes than
traced.

A sample becomes a `SampleCall`: a function of the tensors anywhere in its arguments; all other
arguments are constants. `check` judges it. How to read a row: how many calls in a mode were
*right*, *wrong*, a *crash* (an error that no clause of the contract covers, or the end of the
process), or differ as *documented*, which counts what the pass refuses. Of the others, a layer
before the pass is at fault (*inherited*), or nothing was compared (*not judged*): eager raises,
is undefined or differs from run to run, Dynamo compiles nothing, or a result is not dense. The
databases need the package expecttest, which torch does not depend on.

`--resume FILE` stores the results by operator, and continues where an earlier run stopped.
"""

from __future__ import annotations

import copy
import functools
import itertools
import json
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

import torch
from torch.nn.parameter import is_lazy
from torch.utils import _pytree as pytree

from aliasproof.campaigns.failure.codec import decoded, encoded
from aliasproof.checks.check import check
from aliasproof.ir.errors import UserError
from aliasproof.ir.values import clone_inputs
from aliasproof.judge.trial import start_worker
from aliasproof.oracles.check_result import TargetResult
from aliasproof.oracles.verdict import Verdict
from aliasproof.processes.isolation import Limits, start_server, step
from aliasproof.processes.outcome import Death, Raised, Returned
from aliasproof.processes.pool import Pool, RemoteCall
from aliasproof.reference_pass.backend import aliasproof
from aliasproof.targets import reference
from aliasproof.targets.registry import target as target_named
from aliasproof.targets.target import Build, Function, Target
from aliasproof.targets.user_targets import of_value
from benchmarks.tables import Table

DTYPES = (torch.float32, torch.int64, torch.complex64, torch.bool, torch.bfloat16)
LAYOUTS = ("contiguous", "transposed")
CHOICE = 0  # the seed by which samples and the order of subjects are chosen
_MOST_LISTED = 40  # samples considered per operator and dtype: some yield thousands
_MOST_ELEMENTS = 20_000  # per sample; larger ones test the kernel and not the passes


class SampleCall:
    """A function of the tensors in the arguments of a call. It returns a tensor, or a list.

    `name` is for people; `trained` are the indices of the tensors that require gradients.
    """

    def __init__(self, name: str, function: Callable[..., Any], arguments: Any) -> None:
        self.name, self.function = name, function
        self.leaves, self.spec = pytree.tree_flatten(arguments)
        tensors = [leaf for leaf in self.leaves if isinstance(leaf, torch.Tensor)]
        self.trained = [index for index, tensor in enumerate(tensors) if tensor.requires_grad]
        self.tensors = [tensor.detach() for tensor in tensors]

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
    for number, sample in enumerate(info.sample_inputs("cpu", dtype, requires_grad=trains)):
        arguments = ((sample.input, *sample.args), sample.kwargs)
        forms = [SampleCall(f"sample {number}", info.op, arguments)]
        if in_place is not None and not sample.broadcasts_input:
            written = functools.partial(_in_place, in_place)
            forms.append(SampleCall(f"sample {number} in place", written, arguments))
        if _is_for_the_sweep(forms[0].tensors):
            yield forms


def _in_place(function: Callable[..., Any], first: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    """The call of an operator that writes its first argument, which may not be a leaf."""
    return function(first.clone() if first.requires_grad else first, *args, **kwargs)


def _modules(info: Any, dtype: torch.dtype) -> Iterator[list[SampleCall]]:
    trains = dtype.is_floating_point or dtype.is_complex
    options = {"device": "cpu", "dtype": dtype, "requires_grad": trains}
    for training in (True, False):
        inputs = info.module_inputs_func(info, training=training, **options)
        for number, sample in enumerate(inputs):
            built, given = sample.constructor_input, sample.forward_input
            if given is None:
                continue
            module = info.module_cls(*built.args, **built.kwargs).to(dtype).train(training)
            if any(map(is_lazy, module.parameters())):
                module(*given.args, **given.kwargs)  # the module gets its parameters in a call
            state = {**dict(module.named_parameters()), **dict(module.named_buffers())}
            call = SampleCall(
                f"sample {number} in {'training' if training else 'eval'}",
                functools.partial(torch.func.functional_call, module),
                ((state, given.args, given.kwargs), {}),
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


# --- one call -------------------------------------------------------------------------------------

EAGER_STEP = "eager"  # a death in this step is not the fault of the passes
_COMPILED: list[torch.fx.GraphModule] = []


def backend(graph_module: torch.fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
    """The backend of the pass. It notes that Dynamo calls it."""
    _COMPILED.append(graph_module)
    return aliasproof(graph_module, inputs)


# It refuses what the passes refuse; of a user's backend, nothing is documented.
BACKEND = replace(of_value(backend), contract=reference.CONTRACT)


class SweepAnswer(StrEnum):
    """The result of one call in one mode."""

    RIGHT = "right"
    WRONG = "wrong"
    CRASH = "crash"
    DOCUMENTED = "documented"
    INHERITED = "inherited"
    NOT_JUDGED = "not judged"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The answer for one call; `detail` is a reason or the evidence."""

    answer: SweepAnswer
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Mode:
    """A way to compile. `trains`: a backward pass follows the call.

    `resizes`: the graph runs on inputs of other sizes than it was traced for. What the layer that
    the target builds on does wrong in the same way is not the fault of the pass.
    """

    name: str
    target: Target
    trains: bool = False
    resizes: bool = False


MODES = (
    Mode("direct", target_named("reference")),
    Mode("inference", BACKEND),
    Mode("training", BACKEND, trains=True),
    Mode(
        "symbolic sizes",
        replace(target_named("reference:symbolic"), after=target_named("functionalize:symbolic")),
        resizes=True,
    ),
)


def outcome(call: SampleCall, mode: Mode) -> Outcome | None:
    """The outcome of a call in a mode; None if the mode does not apply to it."""
    if mode.trains and not call.trained:
        return None
    result = Outcome(SweepAnswer.NOT_JUDGED)
    others = at_other_sizes(call.tensors) if mode.resizes else ()
    for tensors in itertools.chain(others, [call.tensors]):
        result = _outcome_on(call, tensors, mode)
        # Some sizes are invalid for the operator, and others break the guards of the graph.
        if result.answer not in (SweepAnswer.NOT_JUDGED, SweepAnswer.DOCUMENTED):
            break
    return result


def _outcome_on(call: SampleCall, tensors: Sequence[torch.Tensor], mode: Mode) -> Outcome:
    """The outcome on these tensors; with `resizes`, the graph is traced for `call.tensors`."""
    step(EAGER_STEP)
    target = mode.target
    if mode.resizes:
        target = replace(target, build=functools.partial(_traced_for, call.tensors, target))
    inputs = clone_inputs(tensors)
    if mode.trains:
        for index in call.trained:
            inputs[index].requires_grad_()
    _COMPILED.clear()
    targets = [*filter(None, (target.after if mode.resizes else None, target))]
    found = check(call, tuple(inputs), targets, grad=mode.trains)
    if found.eager.unjudged or found.eager.raised:
        return Outcome(SweepAnswer.NOT_JUDGED, found.eager.unjudged or found.eager.raised or "")
    if target is BACKEND and not _COMPILED:
        return Outcome(SweepAnswer.NOT_JUDGED, "Dynamo compiles nothing")
    # A backend has rows for later calls, too.
    of_target = [row for row in found.results.values() if row.target.startswith(target.name)]
    result = next((row for row in of_target if row.violations), of_target[0])
    return Outcome(SweepAnswer.INHERITED) if found.wrong_like(result) else _answer(result)


def _traced_for(
    sample: Sequence[torch.Tensor],
    target: Target,
    function: Function,
    inputs: Sequence[torch.Tensor],
) -> Build:
    """The build for the sample, in the dtypes of the inputs: `check` also runs it in float64."""
    traced = zip(clone_inputs(sample), inputs, strict=True)
    return target.build(function, [tensor.to(given.dtype) for tensor, given in traced])


def _answer(result: TargetResult) -> Outcome:
    if result.violations:
        first = result.violations[0]
        evidence = ", ".join(f"{key} {value}" for key, value in first.evidence.items())
        text = " ".join(f"{first.oracle}: {first.describe()}; {evidence}".split())[:400]
        return Outcome(SweepAnswer.WRONG if first.silent else SweepAnswer.CRASH, text)
    if result.inherits:
        return Outcome(SweepAnswer.INHERITED)
    if result.documented:
        documented = result.documented[0]
        return Outcome(SweepAnswer.DOCUMENTED, documented.limitation.name)
    if result.verdict is Verdict.HOLDS and not result.untested:
        return Outcome(SweepAnswer.RIGHT)
    reasons = [result.untested, *(report.reason for report in result.reports.values())]
    return Outcome(SweepAnswer.NOT_JUDGED, next(filter(None, reasons), ""))


SAMPLES = 2  # per operator and dtype
LIMITS = Limits(seconds=120.0, nbytes=6 * 2**30)
_CALLS_PER_PROCESS = 2000  # then a new process: Dynamo and the caches of fakes leak memory
MODULE = "benchmarks.sweep"
_BAD = (SweepAnswer.WRONG, SweepAnswer.CRASH)


@dataclass(frozen=True, slots=True)
class Swept:
    """The results of one operator or module.

    `counts` is by mode and answer, `documented` by mode and clause. `shown` has one line per call
    that was wrong, crashed or could not be compared.
    """

    subject: str
    counts: Counter[tuple[str, str]]
    documented: Counter[tuple[str, str]]
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
        """The answers by mode, notes on wrong calls and crashes, and documented ones by clause."""
        counts: Counter[tuple[str, str]] = Counter()
        documented: Counter[tuple[str, str]] = Counter()
        for result in self.swept:
            counts.update(result.counts)
            documented.update(result.documented)
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
        reasons = [(reason, mode, str(count)) for (mode, reason), count in documented.most_common()]
        return [
            Table(
                "sweep: the reference pass on op_db and module_db",
                ("mode", *SweepAnswer),
                rows,
                notes,
            ),
            Table("sweep: documented", ("clause", "mode", "calls"), reasons),
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
    counts, documented = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    shown: list[tuple[str, str]] = []
    listed = pool.call(f"{MODULE}:listed_calls", name, samples)
    if not isinstance(listed, Returned):
        # Listing samples calls no pass, so an error is torch's, or of the sweep.
        text = f"{name}, its samples: {_failure_text(listed)}"
        return Swept(name, counts, documented, ((SweepAnswer.NOT_JUDGED, text),))
    for (dtype, index, called), layout, mode in itertools.product(listed.value, LAYOUTS, MODES):
        given = name, dtype, samples, index, layout, mode.name
        reply = pool.call(f"{MODULE}:call_outcome", *given)
        if isinstance(reply, Returned):
            outcome = reply.value
        else:  # an error belongs to the sweep, since one of the passes is part of their outcome
            in_eager = isinstance(reply, Death) and EAGER_STEP in reply.step
            answer = SweepAnswer.NOT_JUDGED if in_eager else SweepAnswer.CRASH
            outcome = Outcome(answer, _failure_text(reply))
        if outcome is None:  # the mode does not apply to the call
            continue
        counts[mode.name, outcome.answer] += 1
        if outcome.answer == SweepAnswer.DOCUMENTED:
            documented[mode.name, outcome.detail] += 1
        elif outcome.answer != SweepAnswer.RIGHT:
            sample = f"{name} {str(dtype).removeprefix('torch.')} {called}"
            text = f"{sample}, {layout}, {mode.name}: {outcome.detail}"
            shown.append((outcome.answer, text))
    return Swept(name, counts, documented, tuple(shown))


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
