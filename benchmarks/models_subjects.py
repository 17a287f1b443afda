"""The models and optimizers of `models`: built from configurations, with random weights.

`transformers` (extra `models`) has most of them. No weights are loaded: nothing is downloaded.
ResNet is that of transformers, since torchvision has no build for the CPU version of torch.
"""

from __future__ import annotations

import contextlib
import inspect
import itertools
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional

with contextlib.suppress(ImportError):  # `measure` says what to install
    import transformers

VOCABULARY, LENGTH, WIDTH = 256, 32, 64

Compile: TypeAlias = Callable[[Callable[..., Any]], Callable[..., Any]]
# Takes what compiles, and returns one call of what is measured.
Scene: TypeAlias = Callable[[Compile], Callable[[], Any]]

# --- scenes ---------------------------------------------------------------------------------------


def inference(build: Callable[[], tuple[nn.Module, dict[str, Any]]]) -> Scene:
    """A call without gradients; its results are the outputs."""

    def scene(compiled: Compile) -> Callable[[], Any]:
        model, inputs = build()
        forward = compiled(model.eval())

        def call() -> Any:
            torch.manual_seed(1)  # the same numbers for all backends
            with torch.no_grad():
                return _main_result(forward(**inputs))

        return call

    return scene


def training(build: Callable[[], tuple[nn.Module, dict[str, Any]]]) -> Scene:
    """A forward and a backward call; the results are the outputs and the gradients."""

    def scene(compiled: Compile) -> Callable[[], Any]:
        model, inputs = build()
        forward = compiled(model.train())

        def step() -> Any:
            torch.manual_seed(1)
            result = _main_result(forward(**inputs))
            result.square().mean().backward()
            gradients = [parameter.grad for parameter in model.parameters()]
            model.zero_grad()
            return [result.detach(), *gradients]

        return step

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
    """Llama that takes one token after another, with a static KV cache."""

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
    """Four calls of Llama, a token each; the results are the logits and the cache."""
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


def bert() -> tuple[nn.Module, dict[str, Any]]:
    config = transformers.BertConfig(
        vocab_size=VOCABULARY,
        hidden_size=WIDTH,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=2 * WIDTH,
        max_position_embeddings=LENGTH,
    )
    return transformers.BertForMaskedLM(config), {"input_ids": _tokens()}


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


def mixtral() -> tuple[nn.Module, dict[str, Any]]:
    config = transformers.MixtralConfig(
        vocab_size=VOCABULARY,
        hidden_size=WIDTH,
        intermediate_size=2 * WIDTH,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        num_local_experts=4,
        max_position_embeddings=LENGTH,
    )
    return transformers.MixtralForCausalLM(config), {"input_ids": _tokens(), "use_cache": False}


def mamba() -> tuple[nn.Module, dict[str, Any]]:
    config = transformers.MambaConfig(
        vocab_size=VOCABULARY, hidden_size=WIDTH // 2, state_size=8, num_hidden_layers=2
    )
    return transformers.MambaForCausalLM(config), {"input_ids": _tokens(8), "use_cache": False}


def resnet() -> tuple[nn.Module, dict[str, Any]]:
    config = transformers.ResNetConfig(
        embedding_size=16,
        hidden_sizes=[16, 32, 64, 128],
        depths=[2, 2, 2, 2],
        layer_type="basic",
    )
    model = transformers.ResNetForImageClassification(config)
    return model, {"pixel_values": torch.randn(4, 3, 64, 64)}


# --- models of torch alone ------------------------------------------------------------------------


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
    torch._dynamo.config.allow_rnn = True  # else, Dynamo breaks the graph there
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


def deep_linear() -> tuple[nn.Module, dict[str, Any]]:
    layers = [[nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.LayerNorm(WIDTH)] for _ in range(40)]
    return nn.Sequential(*itertools.chain(*layers)), {"input": torch.randn(LENGTH, WIDTH)}


def deep_convolutions() -> tuple[nn.Module, dict[str, Any]]:
    layers = [[nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU()] for _ in range(20)]
    return nn.Sequential(*itertools.chain(*layers)), {"input": torch.randn(2, 8, 16, 16)}


# --- windows of one data set, which share memory in another way at each batch ---------------------


def windows(compiled: Compile) -> Callable[[], Any]:
    """A language model's batches: each input, and what follows it, are windows of one source."""
    source, weight = torch.randn(300, 4), torch.randn(4, 4, requires_grad=True)

    @compiled
    def loss(data: Tensor, target: Tensor) -> Tensor:
        result: Tensor = ((data @ weight).reshape(-1) - target).square().mean()
        return result

    def call() -> Any:
        return [loss(source[i : i + 8], source[i + 1 : i + 9].reshape(-1)) for i in range(200)]

    return call


def table(compiled: Compile) -> Callable[[], Any]:
    """Batches of rows of a table, whose last column is the target."""
    rows, weight = torch.randn(800, 11), torch.randn(10, requires_grad=True)

    @compiled
    def loss(data: Tensor, target: Tensor) -> Tensor:
        result: Tensor = (data @ weight - target).square().mean()
        return result

    def call() -> Any:
        return [loss(batch[:, :10], batch[:, 10]) for batch in rows.split(8)]

    return call


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
        chosen.step()  # makes the state
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
    "BERT": bert,
    "T5": t5,
    "Mixtral": mixtral,
    "Mamba": mamba,
    "ResNet": resnet,
    "LSTM": lstm,
    "U-Net": unet,
    "Linear-ReLU-LayerNorm x 40": deep_linear,
    "Conv-BatchNorm-ReLU x 20": deep_convolutions,
}
WITHOUT_TRANSFORMERS = ("LSTM", "U-Net", "Linear-ReLU-LayerNorm x 40", "Conv-BatchNorm-ReLU x 20")


def subjects() -> dict[str, Scene]:
    """All scenes by name."""
    scenes: dict[str, Scene] = {}
    for name, build in _MODELS.items():
        scenes[f"{name}, inference"] = inference(build)
        scenes[f"{name}, training"] = training(build)
        if name == "Llama":
            scenes["Llama, static KV cache"] = decoding
    scenes |= {"Windows of a source": windows, "Columns of a table": table}
    scenes |= {name: optimizer(kind, options) for name, kind, options in _optimizers()}
    return scenes


def needs_transformers(name: str) -> bool:
    """True for a scene whose model is one of transformers."""
    model = name.partition(",")[0]
    return model in _MODELS and model not in WITHOUT_TRANSFORMERS
