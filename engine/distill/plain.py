"""The plain form of a draft: a few of the target's layers as a causal LM of their own, in a standard model folder.

It reads tokens only, so anything that takes a draft model takes it (`--draft DIR`, transformers' `assistant_model`).
Its embedding and output matrix are the target's, frozen; training scores the trimmed vocabulary, because the rest of
the output matrix would cost most of the time and moves nothing.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from engine.layer_skip import skip_layers


class PlainDraft(nn.Module):
    """Wraps a causal LM of few layers so that it trains as a head does; the target's states are not read."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model.requires_grad_(True)
        for matrix in (model.get_input_embeddings(), model.get_output_embeddings()):
            matrix.weight.requires_grad_(False)

    def forward(self, features: Tensor, embedded: Tensor, steps: int) -> list[Tensor]:
        """One state a position, (batch, length, width), whatever `steps` says: a plain draft has no second view."""
        body = self.model.base_model(inputs_embeds=embedded, use_cache=False)
        return [body.last_hidden_state]


def plain_from_target(target: Any, layers: int) -> PlainDraft:
    """The target's first and last layers, `layers` in all, copied to float32."""
    total = int(target.config.num_hidden_layers)
    first = (layers + 1) // 2
    keep = [*range(first), *range(total - (layers - first), total)]
    return PlainDraft(copy.deepcopy(skip_layers(target, keep)).float())


def save_plain(folder: Path, draft: PlainDraft, tokenizer: Any) -> None:
    """Write config.json, model.safetensors (bf16) and the tokenizer."""
    copy.deepcopy(draft.model).to(torch.bfloat16).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
