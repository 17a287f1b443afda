"""Small models of `transformers`, from configurations with random weights."""

from __future__ import annotations

from typing import Any

import torch
import transformers
from torch import Tensor, nn

torch.manual_seed(0)

llama_config = transformers.LlamaConfig(
    vocab_size=32,
    hidden_size=16,
    intermediate_size=24,
    num_hidden_layers=1,
    num_attention_heads=2,
    num_key_value_heads=1,
    max_position_embeddings=16,
)


class LlamaStep(nn.Module):
    """One step of a generation with a static cache, which is a part of the module."""

    def __init__(self) -> None:
        super().__init__()
        self.model = transformers.LlamaForCausalLM(llama_config).eval()
        self.cache = transformers.StaticCache(config=llama_config, max_cache_len=8)
        self.cache.early_initialization(1, 1, 8, torch.float32, torch.device("cpu"))

    def forward(self, ids: Tensor, positions: Tensor) -> Any:
        out = self.model(
            input_ids=ids,
            position_ids=positions,
            past_key_values=self.cache,
            cache_position=positions[0],
        )
        return out.logits


llama_step = LlamaStep()


def llama_step_inputs() -> tuple[Tensor, Tensor]:
    return torch.tensor([[3, 5]]), torch.tensor([[0, 1]])


gpt2 = transformers.GPT2LMHeadModel(
    transformers.GPT2Config(
        vocab_size=32, n_positions=8, n_embd=16, n_layer=1, n_head=2, use_cache=False
    )
).train()


def gpt2_loss(ids: Tensor) -> Tensor:
    """In training mode, with dropout, and with labels."""
    return gpt2(input_ids=ids, labels=ids).loss


def gpt2_loss_inputs() -> Tensor:
    return torch.tensor([[1, 4, 9, 2], [7, 7, 3, 0]])


bert = transformers.BertForSequenceClassification(
    transformers.BertConfig(
        vocab_size=32,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=24,
        max_position_embeddings=8,
    )
).eval()


def bert_with_padding(ids: Tensor, mask: Tensor) -> dict[str, Tensor]:
    out = bert(input_ids=ids, attention_mask=mask, output_hidden_states=True)
    return {"logits": out.logits, "last": out.hidden_states[-1]}


def bert_with_padding_inputs() -> tuple[Tensor, Tensor]:
    return torch.tensor([[1, 4, 9, 2], [7, 3, 0, 0]]), torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]])


mamba = transformers.MambaForCausalLM(
    transformers.MambaConfig(
        vocab_size=32, hidden_size=8, state_size=4, num_hidden_layers=1, use_cache=False
    )
).eval()


def mamba_logits(ids: Tensor) -> Tensor:
    return mamba(input_ids=ids).logits


def mamba_logits_inputs() -> Tensor:
    return torch.tensor([[1, 4, 9]])


T5_SIZES: dict[str, Any] = {
    "vocab_size": 32,
    "d_model": 16,
    "d_kv": 8,
    "d_ff": 24,
    "num_layers": 1,
    "num_heads": 2,
    "decoder_start_token_id": 0,
    "use_cache": False,
}
t5 = transformers.T5ForConditionalGeneration(transformers.T5Config(**T5_SIZES)).eval()


def t5_loss(ids: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    out = t5(input_ids=ids, labels=labels)
    return out.loss, out.logits.argmax(-1)


def t5_loss_inputs() -> tuple[Tensor, Tensor]:
    return torch.tensor([[1, 4, 9, 2]]), torch.tensor([[7, 3, 1]])


VIT_SIZES: dict[str, Any] = {
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "image_size": 8,
    "patch_size": 4,
    "num_labels": 3,
}
vit = transformers.ViTForImageClassification(transformers.ViTConfig(**VIT_SIZES)).eval()


def classify_in_place(images: Tensor, counts: Tensor) -> Tensor:
    """Normalize the images in place, classify them, and count the classes."""
    images.sub_(0.5).div_(0.25)
    chosen = vit(pixel_values=images).logits.argmax(-1)
    counts.scatter_add_(0, chosen, torch.ones_like(chosen))
    return chosen


def classify_in_place_inputs() -> tuple[Tensor, Tensor]:
    return torch.rand(2, 3, 8, 8), torch.zeros(3, dtype=torch.long)
