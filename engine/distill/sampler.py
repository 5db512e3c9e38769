"""Sampling many continuations at once from a causal LM, keeping the hidden states it computes on the way.

No padding and no mask: all rows start at position 0, and a row with a longer prompt is fed its own tokens while the
shorter ones already sample. Rows that end are dropped, and the batch is packed when enough of them are gone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface
from transformers.cache_utils import Cache, DynamicLayer
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

PACKED_ATTENTION = "packed_gqa"


def packed_gqa(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """Attention in which the query heads of one key/value head form the rows of a single small matrix.

    For one query position this needs no copy of the cache; SDPA's own `enable_gqa` takes five times as long on a CPU.
    """
    batch, heads, length, width = query.shape
    kv_heads = key.shape[1]
    if length == 1 and attention_mask is None:
        grouped = query.reshape(batch, kv_heads, heads // kv_heads, width)
        out = scaled_dot_product_attention(grouped, key, value, scale=scaling).reshape(batch, heads, 1, width)
    else:
        key, value = (x.repeat_interleave(heads // kv_heads, dim=1) for x in (key, value))
        causal = attention_mask is None and length > 1
        out = scaled_dot_product_attention(query, key, value, attn_mask=attention_mask, scale=scaling, is_causal=causal)
    return out.transpose(1, 2).contiguous(), None


AttentionInterface.register(PACKED_ATTENTION, packed_gqa)
AttentionMaskInterface.register(PACKED_ATTENTION, sdpa_mask)


class RoomyLayer(DynamicLayer):  # type: ignore[misc]
    """A layer's keys and values in a buffer allocated once: `update` writes in place and returns views."""

    def __init__(self, room: int) -> None:
        super().__init__()
        self.room, self.length = room, 0

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
            self.buffers = [x.new_empty(*x.shape[:2], self.room, x.shape[3]) for x in (key_states, value_states)]
        end = self.length + key_states.shape[2]
        for buffer, new in zip(self.buffers, (key_states, value_states), strict=True):
            buffer[:, :, self.length : end] = new
        self.length = end
        self.keys, self.values = (buffer[:, :, :end] for buffer in self.buffers)
        return self.keys, self.values

    def get_seq_length(self) -> int:
        return self.length

    def keep_rows(self, rows: Tensor) -> None:
        self.buffers = [buffer[rows] for buffer in self.buffers]


@dataclass(frozen=True)
class Sampled:
    """One sampled sequence: the prompt and what followed.

    `states` is (len(ids) − 1, (taps + 1) · width) in the model's dtype: row i holds the hidden states after reading
    ids[i], those between the tapped layers first and last the one after the final norm, which the output matrix turns
    into the distribution of ids[i + 1]. `log_normalizer[i]` is the log Σ exp of that distribution's logits over the
    whole vocabulary at temperature 1 (NaN where the next token was given, not sampled).
    """

    ids: Tensor
    prompt_length: int
    states: Tensor
    log_normalizer: Tensor
    ended: bool
    """The end-of-text token was drawn, rather than the length limit reached."""


def sample(
    model: Any,
    prompts: Sequence[Sequence[int]],
    *,
    taps: Sequence[int],
    max_new_tokens: int,
    temperatures: Sequence[float],
    end_tokens: frozenset[int],
    generator: torch.Generator,
    each_step: Callable[[int], None] = lambda rows: None,
) -> list[Sampled]:
    """Continue every prompt by up to `max_new_tokens`, each at its own temperature (0 is greedy).

    A tap t keeps the residual stream after t decoder layers as well as the final states. `each_step` is called once a
    forward with the number of rows alive. Results come in the order of `prompts`.
    """
    shortest = min(len(p) for p in prompts)
    room = max(len(p) for p in prompts) + max_new_tokens
    alive = torch.arange(len(prompts))
    ids = torch.full((len(prompts), room), -1, dtype=torch.long)
    for row, prompt in enumerate(prompts):
        ids[row, : len(prompt)] = torch.tensor(prompt)
    given = torch.tensor([len(p) for p in prompts])
    temperature = torch.tensor(temperatures).view(-1, 1)
    norms = torch.full((len(prompts), room), torch.nan)
    ends = torch.zeros(len(prompts), dtype=torch.long)
    states: Tensor | None = None
    cache = Cache(layers=[RoomyLayer(room) for _ in range(model.config.num_hidden_layers)])
    end_ids = torch.tensor(sorted(end_tokens))
    fed, upto = 0, shortest
    with torch.inference_mode():
        while not bool((ends[alive] > 0).all()):
            output = model.model(ids[alive, fed:upto], cache=cache, use_cache=True, output_hidden_states=bool(taps))
            final = output.last_hidden_state
            hidden = torch.cat([*(output.hidden_states[tap] for tap in taps), final], dim=-1)
            if states is None:
                states = hidden.new_empty(len(prompts), room, hidden.shape[-1])
            states[alive, fed:upto] = hidden
            logits = model.lm_head(final[:, -1]).float()
            log_z = logits.logsumexp(-1)
            free = given[alive] <= upto
            norms[alive[free], upto - 1] = log_z[free]
            drawn = _draw(logits, temperature[alive], generator)
            ids[alive, upto] = torch.where(free, drawn, ids[alive, upto])
            each_step(len(alive))
            fed, upto = upto, upto + 1
            over = torch.isin(ids[alive, fed], end_ids) | (upto - given[alive] >= max_new_tokens)
            ends[alive[free & over & (ends[alive] == 0)]] = upto
            # Rows are dropped only in bulk: packing copies the caches. A finished row that stays is fed its own draws.
            finished = ends[alive] > 0
            if int(finished.sum()) * 5 >= len(alive):
                keep = (~finished).nonzero().squeeze(1)
                for layer in cache.layers:
                    layer.keep_rows(keep)
                alive = alive[keep]
    assert states is not None  # `prompts` is not empty, so the loop ran
    return [
        Sampled(
            ids=ids[row, :end].clone(),
            prompt_length=len(prompts[row]),
            states=states[row, : end - 1].clone(),
            log_normalizer=norms[row, : end - 1].clone(),
            ended=int(ids[row, end - 1]) in end_tokens,
        )
        for row, end in enumerate(ends.tolist())
    ]


def _draw(logits: Tensor, temperature: Tensor, generator: torch.Generator) -> Tensor:
    """One token a row, by inverting the cumulative distribution; the argmax where the temperature is 0."""
    cumulative = (logits / temperature.clamp(min=1e-3)).softmax(-1).cumsum(-1)
    u = torch.rand(len(logits), 1, generator=generator) * cumulative[:, -1:]
    drawn = torch.searchsorted(cumulative, u, right=True).squeeze(1).clamp(max=logits.shape[1] - 1)
    return torch.where(temperature.squeeze(1) == 0, logits.argmax(-1), drawn)
