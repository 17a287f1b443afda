"""What `torch.compile(backend="aliasproof")` computes and costs on models and optimizers.

`python -m benchmarks models` needs the extra `models` (`pip install '.[models]'`). Models are built
from configurations with random weights, so nothing is downloaded. Eager, `aot_eager` and
`aliasproof` run side by side and take turns, each in a process of its own, so that no side finds
the caches that another one filled. ResNet comes from transformers, since torchvision has no build
for the CPU version of torch.

How to read a row: *bits* says whether outputs, gradients and, for an optimizer, parameters of two
calls are bit for bit those of *eager*, or of *aot_eager*; else the largest difference from eager.
The figures are ratios of `aliasproof` to `aot_eager`: CPU seconds of the first call, compilation
included (the fastest of three); CPU seconds of a later call (the fastest of many); and the bytes of
tensors at the peak of a call, counted by the allocator. Parameters, inputs and allocations before
the call do not count.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib.util
import inspect
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn
from torch._C._profiler import _ExtraFields_Allocation
from torch.nn import functional
from torch.profiler import ProfilerActivity, profile
from torch.profiler._memory_profiler import OpTree

from aliasproof.ir.errors import UserError
from aliasproof.judge.trial import start_worker
from aliasproof.processes.isolation import Isolated, Limits, memory_available, start_server
from aliasproof.processes.outcome import Death, Raised
from aliasproof.reference_pass.backend import aliasproof
from aliasproof.reference_pass.calls.nested import tensors_in
from benchmarks.tables import Table

with contextlib.suppress(ImportError):  # `measure` says what to install
    import transformers

VOCABULARY, LENGTH, WIDTH = 256, 32, 64

Compile: TypeAlias = Callable[[Callable[..., Any]], Callable[..., Any]]
# Takes a compiler, and returns a function for one measured call.
Scene: TypeAlias = Callable[[Compile], Callable[[], Any]]

# --- scenes ---------------------------------------------------------------------------------------


def of_model(build: Callable[[], tuple[nn.Module, dict[str, Any]]], *, trains: bool) -> Scene:
    """A forward call, and a backward call if it trains; the results are outputs and gradients."""

    def scene(compiled: Compile) -> Callable[[], Any]:
        model, inputs = build()
        forward = compiled(model.train(trains))

        def call() -> Any:
            torch.manual_seed(1)  # equal random numbers for all backends
            with torch.set_grad_enabled(trains):
                result = _main_result(forward(**inputs))
            if not trains:
                return result
            result.square().mean().backward()
            gradients = [parameter.grad for parameter in model.parameters()]
            model.zero_grad()
            return [result.detach(), *gradients]

        return call

    return scene


def _main_result(result: Any) -> Any:
    return result if isinstance(result, Tensor) else result.logits


# --- models of transformers -----------------------------------------------------------------------


def _tokens(length: int = LENGTH) -> Tensor:
    return torch.randint(VOCABULARY, (2, length))


def gpt2() -> tuple[nn.Module, dict[str, Any]]:
    config = transformers.GPT2Config(
        vocab_size=VOCABULARY,
        n_positions=LENGTH,
        n_embd=WIDTH,
        n_layer=3,
        n_head=4,
        bos_token_id=0,
        eos_token_id=0,
    )
    return transformers.GPT2LMHeadModel(config), {"input_ids": _tokens(), "use_cache": False}


def _llama_config() -> Any:
    return transformers.LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=WIDTH,
        intermediate_size=2 * WIDTH,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=LENGTH,
    )


def llama() -> tuple[nn.Module, dict[str, Any]]:
    model = transformers.LlamaForCausalLM(_llama_config())
    return model, {"input_ids": _tokens(), "use_cache": False}


class Decoding(nn.Module):
    """Llama that decodes one token at a time, with a static KV cache."""

    def __init__(self) -> None:
        super().__init__()
        config = _llama_config()
        self.model = transformers.LlamaForCausalLM(config)
        self.cache = transformers.StaticCache(config=config, max_cache_len=LENGTH)
        heads, width = config.num_key_value_heads, config.head_dim
        self.cache.early_initialization(2, heads, width, torch.float32, torch.device("cpu"))

    def forward(self, input_ids: Tensor, position_ids: Tensor) -> Any:
        """The logits of the next token."""
        return self.model(
            input_ids=input_ids,
            position_ids=position_ids,
            past_key_values=self.cache,
            cache_position=position_ids[0],
        )


def decoding(compiled: Compile) -> Callable[[], Any]:
    """Four calls of Llama, one token each; the results are the logits and the cache."""
    model = Decoding().eval()
    forward, tokens = compiled(model), _tokens(4)

    def call() -> Any:
        model.cache.reset()
        with torch.no_grad():
            logits = [
                _main_result(forward(tokens[:, at : at + 1], torch.full((1, 1), at)))
                for at in range(4)
            ]
        caches = [part for layer in model.cache.layers for part in (layer.keys, layer.values)]
        return [*logits, *(part.clone() for part in caches)]

    return call


def t5() -> tuple[nn.Module, dict[str, Any]]:
    config = transformers.T5Config(
        vocab_size=VOCABULARY,
        d_model=WIDTH,
        d_kv=16,
        d_ff=2 * WIDTH,
        num_layers=2,
        num_heads=4,
        decoder_start_token_id=0,
    )
    inputs = {"input_ids": _tokens(), "decoder_input_ids": _tokens(LENGTH // 2)}
    return transformers.T5ForConditionalGeneration(config), {**inputs, "use_cache": False}


def mamba() -> tuple[nn.Module, dict[str, Any]]:
    config = transformers.MambaConfig(
        vocab_size=VOCABULARY, hidden_size=WIDTH // 2, state_size=8, num_hidden_layers=2
    )
    return transformers.MambaForCausalLM(config), {"input_ids": _tokens(8), "use_cache": False}


def resnet() -> tuple[nn.Module, dict[str, Any]]:
    config = transformers.ResNetConfig(
        embedding_size=16, hidden_sizes=[16, 32, 64, 128], depths=[2, 2, 2, 2], layer_type="basic"
    )
    model = transformers.ResNetForImageClassification(config)
    return model, {"pixel_values": torch.randn(4, 3, 64, 64)}


# --- models of torch itself -----------------------------------------------------------------------


class Recurrent(nn.Module):
    """Two layers of LSTM, and a linear one."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.LSTM(WIDTH // 2, WIDTH, num_layers=2, batch_first=True)
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, x: Tensor) -> Tensor:
        """The logits at all positions."""
        result: Tensor = self.head(self.layers(x)[0])
        return result


def lstm() -> tuple[nn.Module, dict[str, Any]]:
    torch._dynamo.config.allow_rnn = True  # otherwise, Dynamo breaks the graph there
    return Recurrent(), {"x": torch.randn(2, LENGTH, WIDTH // 2)}


def _convolutions(inner: int, outer: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inner, outer, 3, padding=1), nn.BatchNorm2d(outer), nn.ReLU(inplace=True)
    )


class UNet(nn.Module):
    """Three levels down and up, with skip connections."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        widths = [width, 2 * width, 4 * width]
        self.down = nn.ModuleList(map(_convolutions, [3, *widths], widths))
        self.bottom = _convolutions(widths[-1], 2 * widths[-1])
        self.wider = nn.ModuleList(nn.ConvTranspose2d(2 * n, n, 2, 2) for n in widths[::-1])
        self.up = nn.ModuleList(_convolutions(2 * n, n) for n in widths[::-1])
        self.head = nn.Conv2d(width, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        """A score per pixel and class."""
        skipped = []
        for layer in self.down:
            skipped.append(layer(x))
            x = functional.max_pool2d(skipped[-1], 2)
        x = self.bottom(x)
        for wider, layer in zip(self.wider, self.up, strict=True):
            x = layer(torch.cat([skipped.pop(), wider(x)], dim=1))
        result: Tensor = self.head(x)
        return result


def unet() -> tuple[nn.Module, dict[str, Any]]:
    return UNet(), {"x": torch.randn(2, 3, 32, 32)}


# --- optimizers -----------------------------------------------------------------------------------


def _optimizers() -> Iterator[tuple[str, type[torch.optim.Optimizer], dict[str, Any]]]:
    """All optimizers of `torch.optim` whose steps can be compiled, with and without foreach."""
    for name, kind in sorted(vars(torch.optim).items()):
        # The others need sparse gradients, or call the model again.
        is_one = inspect.isclass(kind) and issubclass(kind, torch.optim.Optimizer)
        if not is_one or name in ("Optimizer", "SparseAdam", "LBFGS"):
            continue
        options = {"momentum": 0.9} if name == "SGD" else {}
        if "foreach" not in inspect.signature(kind).parameters:
            yield name, kind, options
            continue
        for foreach in (False, True):
            title = f"{name}, foreach" if foreach else name
            yield title, kind, {**options, "foreach": foreach}


def optimizer(kind: type[torch.optim.Optimizer], options: dict[str, Any]) -> Scene:
    """A step; the results are the parameters after it."""

    def scene(compiled: Compile) -> Callable[[], Any]:
        parameters = [nn.Parameter(torch.randn(64, 64)) for _ in range(10)]
        for parameter in parameters:
            parameter.grad = torch.randn(64, 64)
        chosen = kind(parameters, **options)
        chosen.step()  # creates the state
        step = compiled(chosen.step)

        def call() -> Any:
            step()
            return [parameter.detach() for parameter in parameters]

        return call

    return scene


# --- all ------------------------------------------------------------------------------------------

_MODELS = {
    "GPT-2": gpt2,
    "Llama": llama,
    "T5": t5,
    "Mamba": mamba,
    "ResNet": resnet,
    "LSTM": lstm,
    "U-Net": unet,
}


def subjects() -> dict[str, Scene]:
    """All scenes by name."""
    scenes: dict[str, Scene] = {}
    for name, build in _MODELS.items():
        scenes[f"{name}, inference"] = of_model(build, trains=False)
        scenes[f"{name}, training"] = of_model(build, trains=True)
        if name == "Llama":
            scenes["Llama, static KV cache"] = decoding
    scenes |= {name: optimizer(kind, options) for name, kind, options in _optimizers()}
    return scenes


# --- one side: a scene under a backend, in a process of its own -----------------------------------

STEP_SECONDS = 0.2  # of calls per answer

Call: TypeAlias = Callable[[], Any]
Array: TypeAlias = np.ndarray[Any, Any]


def answer(name: str, backend: str, asked: str) -> Any:
    """What a method of `_Side` says, in a process that runs one scene under one backend."""
    return getattr(_side(name, backend), asked)()


@functools.cache
def _side(name: str, backend: str) -> _Side:
    start_worker()
    return _Side(name, backend)


class _Side:
    """A scene under one backend. `first` is to be called before all others."""

    def __init__(self, name: str, backend: str) -> None:
        self.scene = subjects()[name]
        self.compiled = compiled_by(backend)
        linear = nn.Linear(2, 2)  # compiled now, so that imports do not count
        self.compiled(linear)(torch.ones(2)).sum().backward()
        with torch.no_grad():
            self.compiled(linear)(torch.ones(2))
        self.call: Call
        self.first_results: list[Array] = []

    def first(self) -> float:
        """CPU seconds of a first call, compilation included."""
        torch._dynamo.reset()
        torch.manual_seed(0)  # equal weights and inputs for all backends
        self.call = self.scene(self.compiled)
        start = time.process_time()
        result = self.call()
        seconds = time.process_time() - start
        self.first_results = _values(result)
        return seconds

    def results(self) -> list[Array]:
        """The results of the first call and of another call."""
        return [*self.first_results, *_values(self.call())]

    def step(self) -> float:
        """CPU seconds of the fastest of several calls."""
        best, end = float("inf"), time.process_time() + STEP_SECONDS
        while time.process_time() < end or best == float("inf"):
            start = time.process_time()
            self.call()
            best = min(best, time.process_time() - start)
        return best

    def peak(self) -> float:
        """The bytes of tensors at the peak of a call."""
        return bytes_of(self.call)[0]


def compiled_by(backend: str) -> Compile:
    """A function that compiles with a backend, or leaves the function in eager."""
    if backend == "eager":
        return lambda function: function
    chosen = aliasproof if backend == "aliasproof" else backend
    return lambda function: torch.compile(function, backend=chosen)


def bytes_of(call: Call) -> tuple[int, int]:
    """The peak of allocated bytes in a call, and the bytes of its result afterwards."""
    gc.collect()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        result = call()
        gc.collect()
    allocated: set[int] = set()
    live = most = 0
    for event in OpTree(profiled.profiler.kineto_results).sorted_nodes:
        allocation = event.typed[1]
        if isinstance(allocation, _ExtraFields_Allocation):
            if allocation.alloc_size > 0:
                allocated.add(allocation.ptr)
            if allocation.ptr in allocated:  # torch reports others, too, with a stale size
                live += allocation.alloc_size
                most = max(most, live)
    del result
    return most, live


def _values(result: Any) -> list[Array]:
    # Copies: the next call of an optimizer writes the same parameters.
    return [tensor.detach().numpy().copy() for tensor in tensors_in(result)]


# --- all sides ------------------------------------------------------------------------------------

SIDES = ("eager", "aot_eager", "aliasproof")
FIRST_CALLS = 3  # compilations from nothing
ROUNDS = 10  # of steps
ALLOWED = 1.1  # maximum ratio to `aot_eager`
SECONDS = 600.0  # limit for an answer


@dataclass(frozen=True, slots=True)
class ModelCost:
    """The figures of one scene: CPU seconds and bytes by side. `error` is the reason for none."""

    scene: str
    bits: str = ""
    first: Mapping[str, float] = field(default_factory=dict)
    step: Mapping[str, float] = field(default_factory=dict)
    peak: Mapping[str, float] = field(default_factory=dict)
    error: str = ""

    def ratios(self) -> tuple[float, float, float]:
        """First call, step and peak of `aliasproof`, as ratios to `aot_eager`."""
        return _ratio(self.first), _ratio(self.step), _ratio(self.peak)


@dataclass(frozen=True, slots=True)
class Models:
    """The figures of all scenes."""

    costs: Sequence[ModelCost]

    def tables(self) -> list[Table]:
        """One row per scene, medians, and the scenes above the limit."""
        measured = [cost for cost in self.costs if not cost.error]
        rows = [(cost.scene, cost.bits, *map(_times, cost.ratios())) for cost in measured]
        notes = [f"fails: {cost.scene}: {cost.error}" for cost in self.costs if cost.error]
        for index, name in enumerate(("first call", "step", "peak")):
            ratios = [cost.ratios()[index] for cost in measured]
            above = sum(ratio > ALLOWED for ratio in ratios)
            if ratios:
                notes.append(
                    f"{name}: median {_times(statistics.median(ratios))}, largest"
                    f" {_times(max(ratios))}, {above} of {len(ratios)} above {ALLOWED}"
                )
        columns = ("scene", "bits as", "first call", "step", "peak")
        return [Table("models: aliasproof / aot_eager", columns, rows, notes)]


def measure(names: Sequence[str] = ()) -> Models:
    """Measure the scenes with these names; all of them, if none is given.

    Raises `UserError` for an unknown name, or if a model needs transformers and it is missing.
    """
    known = subjects()
    for name in names:
        if name not in known:
            raise UserError(f"unknown scene '{name}'; scenes: {'; '.join(known)}")
    names = names or list(known)
    of_transformers = _MODELS.keys() - {"LSTM", "U-Net"}
    needed = any(name.partition(",")[0] in of_transformers for name in names)
    if needed and importlib.util.find_spec("transformers") is None:
        raise UserError("transformers is not installed; pip install '.[models]'")
    # Sides are forked from a server that has imported torch, and has compiled nothing.
    start_server(["benchmarks.models"])
    return Models([measure_scene(name) for name in names])


def measure_scene(name: str) -> ModelCost:
    """Measure one scene on all sides, which take turns."""
    limits = Limits(SECONDS, memory_available())
    sides = {backend: Isolated(limits) for backend in SIDES}

    def fastest(asked: str, rounds: int) -> dict[str, float]:
        answers = [_answers(name, sides, asked) for _ in range(rounds)]
        return {backend: min(seconds[backend] for seconds in answers) for backend in SIDES}

    try:
        first = fastest("first", FIRST_CALLS)
        bits = same_bits(_answers(name, sides, "results"))
        return ModelCost(name, bits, first, fastest("step", ROUNDS), _answers(name, sides, "peak"))
    except _SideFailedError as error:
        return ModelCost(name, error=str(error))
    finally:
        for side in sides.values():
            side.stop()


class _SideFailedError(Exception):
    """A side has no answer; the message says which one, and why."""


def _answers(name: str, sides: Mapping[str, Isolated], asked: str) -> dict[str, Any]:
    answers = {}
    for backend, side in sides.items():
        outcome = side.outcome_of("benchmarks.models:answer", name, backend, asked)
        if isinstance(outcome, Death):
            raise _SideFailedError(f"{backend}: {outcome.describe()}")
        if isinstance(outcome, Raised):
            reason = str(outcome.error).partition("\n")[0]  # its stack is in the next lines
            raise _SideFailedError(f"{backend}: {reason[:300]}")
        answers[backend] = outcome.value
    return answers


def same_bits(results: Mapping[str, Sequence[Array]]) -> str:
    """The side whose results equal those of `aliasproof` bit for bit; else the difference."""
    ours = [(array.dtype, array.shape, array.tobytes()) for array in results["aliasproof"]]
    for other in ("eager", "aot_eager"):
        if ours == [(array.dtype, array.shape, array.tobytes()) for array in results[other]]:
            return other
    pairs = zip(results["aliasproof"], results["aot_eager"], strict=False)
    return f"differs by {max(float(np.abs(one - other).max()) for one, other in pairs):.0e}"


def _ratio(figures: Mapping[str, float]) -> float:
    ours, theirs = figures["aliasproof"], figures["aot_eager"]
    return ours / theirs if theirs else float(ours == theirs)


def _times(ratio: float) -> str:
    return f"{ratio:.2f}"
