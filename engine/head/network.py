"""A draft that reads the target's hidden states: one or two decoder layers over the target's own features.

After EAGLE (Li et al., arXiv 2401.15077, 2503.01840). At token i the head sees the embedding of xᵢ and the target's
hidden states after xᵢ₋₁, the final one and those of some layers below, and gives the distribution of xᵢ₊₁. Further
ahead the target's states do not exist yet, and the head's own output stands in for them. It borrows the target's
embedding, and scores only the most frequent tokens: rows of the target's output matrix, found through an id map, so
that nothing of either is stored with it.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, pad, rms_norm, scaled_dot_product_attention, silu

from engine.head.cache import HeadCache, HeadConfig, rotate, rotation_table
from engine.linear import Projection, project

KeysValues = tuple[Tensor, Tensor]


class Arranged(nn.Module):
    """A module whose matrices may be laid out once for fast multiplication (see `engine.linear`), to draft with."""

    matrices: tuple[str, ...] = ()

    def __init__(self) -> None:
        super().__init__()
        self._arranged: dict[str, Projection] = {}

    def arrange(self) -> None:
        """Lay the matrices out; from then on changes of the weights are not seen."""
        self._arranged = {name: project([getattr(self, name)]) for name in self.matrices}

    def times(self, name: str, x: Tensor) -> Tensor:
        """x · Wᵀ for the matrix of this name."""
        arranged = self._arranged.get(name)
        return linear(x, getattr(self, name)) if arranged is None else arranged(x)


class DecoderLayer(Arranged):
    """A Llama decoder layer with fused projections, whose attention is split off so that training can unroll it."""

    matrices = ("qkv", "out", "gate_up", "down")

    def __init__(self, config: HeadConfig) -> None:
        super().__init__()
        self.config = config
        width, inner = config.hidden_size, config.intermediate_size
        attention, kv = config.heads * config.head_dim, config.kv_heads * config.head_dim
        self.split = [attention, kv, kv]
        self.input_norm = nn.Parameter(torch.ones(width))
        self.qkv = nn.Parameter(torch.empty(attention + 2 * kv, width))
        self.out = nn.Parameter(torch.empty(width, attention))
        self.mlp_norm = nn.Parameter(torch.ones(width))
        self.gate_up = nn.Parameter(torch.empty(2 * inner, width))
        self.down = nn.Parameter(torch.empty(width, inner))
        for weight in (self.qkv, self.out, self.gate_up, self.down):
            nn.init.normal_(weight, std=0.02)

    def project(self, x: Tensor, rotation: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """Queries (batch, heads, length, head_dim), keys and values (batch, kv_heads, length, head_dim)."""
        batch, length, width = x.shape
        fused = self.times("qkv", rms_norm(x, (width,), self.input_norm, self.config.norm_eps))
        parts = (
            p.view(batch, length, -1, self.config.head_dim).transpose(1, 2) for p in torch.split(fused, self.split, -1)
        )
        query, key, value = parts
        return rotate(query, rotation), rotate(key, rotation), value

    def finish(self, x: Tensor, attended: Tensor) -> Tensor:
        """The rest of the layer: output projection and MLP, each added to the residual stream `x`."""
        batch, length, width = x.shape
        x = x + self.times("out", attended.transpose(1, 2).reshape(batch, length, -1))
        gate, up = self.times("gate_up", rms_norm(x, (width,), self.mlp_norm, self.config.norm_eps)).chunk(2, -1)
        return x + self.times("down", silu(gate) * up)


class DraftHead(Arranged):
    """The trained part: fusion of features and embedding, the layers, the final norm."""

    matrices = ("fuse", "fuse_own")

    def __init__(self, config: HeadConfig) -> None:
        super().__init__()
        self.config = config
        width = config.hidden_size
        sources = len(config.taps) + 1
        self.feature_norm = nn.Parameter(torch.ones(sources, width))
        self.own_norm = nn.Parameter(torch.ones(width))
        self.token_norm = nn.Parameter(torch.ones(width))
        eye = torch.eye(width)
        self.fuse = nn.Parameter(torch.cat([*[eye / sources] * sources, eye], dim=1))
        self.fuse_own = nn.Parameter(torch.cat([eye, eye], dim=1))
        self.layers = nn.ModuleList(DecoderLayer(config) for _ in range(config.layers))
        self.norm = nn.Parameter(torch.ones(width))

    @property
    def stack(self) -> list[DecoderLayer]:
        """The decoder layers, first one first."""
        return [layer for layer in self.layers if isinstance(layer, DecoderLayer)]

    def arrange(self) -> None:
        super().arrange()
        for layer in self.stack:
            layer.arrange()

    def enter(self, features: Tensor, embedded: Tensor) -> Tensor:
        """The input of the first layer, from the target's features after xᵢ₋₁ and the embedding of xᵢ."""
        width, eps = self.config.hidden_size, self.config.norm_eps
        sources = features.view(*features.shape[:-1], -1, width)
        normed = rms_norm(sources, (width,), None, eps) * self.feature_norm
        token = rms_norm(embedded, (width,), self.token_norm, eps)
        return self.times("fuse", torch.cat([normed.flatten(-2), token], dim=-1))

    def enter_own(self, states: Tensor, embedded: Tensor) -> Tensor:
        """The input of the first layer where the head's own state after xᵢ₋₁ stands in for the target's features."""
        width, eps = self.config.hidden_size, self.config.norm_eps
        own = rms_norm(states, (width,), self.own_norm, eps)
        token = rms_norm(embedded, (width,), self.token_norm, eps)
        return self.times("fuse_own", torch.cat([own, token], dim=-1))

    def leave(self, x: Tensor) -> Tensor:
        """The output state: what the output rows score, and the stand-in for the target's next feature."""
        return rms_norm(x, (self.config.hidden_size,), self.norm, self.config.norm_eps)

    def forward(self, features: Tensor, embedded: Tensor, steps: int) -> list[Tensor]:
        """The states of `steps` draft steps at every position at once (training-time test of EAGLE-3).

        `features[:, i]` (batch, length, feature_size) are the target's states after xᵢ₋₁ (zeros at i = 0),
        `embedded[:, i]` (batch, length, width) is the embedding of xᵢ. Result s (from 0), at i: the state with which
        the head predicts xᵢ₊₁ when the target's features end at xᵢ₋₁₋ₛ and the head's own stand in for the rest. Keys
        at true features are seen up to i − s, own ones after.
        """
        rotation = rotation_table(torch.arange(embedded.shape[1]), self.config, embedded.dtype)
        seen: list[list[KeysValues]] = [[] for _ in self.stack]
        states: list[Tensor] = []
        for step in range(steps):
            if step == 0:
                x = self.enter(features, embedded)
            else:
                x = self.enter_own(pad(states[-1][:, :-1], (0, 0, 1, 0)), embedded)
            for layer, past in zip(self.stack, seen, strict=True):
                query, key, value = layer.project(x, rotation)
                groups = self.config.heads // self.config.kv_heads
                past.append((key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)))
                x = layer.finish(x, _unrolled_attention(query, past))
            states.append(self.leave(x))
        return states

    def step(self, entered: Tensor, caches: Sequence[HeadCache], start: int) -> Tensor:
        """One draft forward: `length` tokens from position `start` on, into the caches. Returns states (length, width).

        `entered` is (length, width), from `enter` or `enter_own`. The caches must hold `start` positions at least; what
        they held from `start` on is overwritten.
        """
        length, x = entered.shape[0], entered[None]
        rotation = caches[0].rotation(start, start + length)
        for layer, cache in zip(self.stack, caches, strict=True):
            query, key, value = layer.project(x, rotation)
            x = layer.finish(x, cache.attend(query, key, value, start))
        return self.leave(x[0])


def _unrolled_attention(query: Tensor, past: Sequence[KeysValues]) -> Tensor:
    """Attention of unroll step s = len(past) − 1: true keys up to i − s, then one own key of each later step."""
    late = len(past) - 1
    keys, values = past[0]
    if late == 0:
        return scaled_dot_product_attention(query, keys, values, is_causal=True)
    length, scale = query.shape[2], query.shape[3] ** -0.5
    hidden = torch.ones(length, length, dtype=torch.bool, device=query.device).triu(1 - late)
    scores = [(query @ keys.transpose(-1, -2) * scale).float().masked_fill(hidden, -torch.inf)]
    own_values = []
    for step, (own_keys, own) in enumerate(past[1:], start=1):
        shift = late - step
        moved_keys, moved = (pad(x[:, :, : length - shift], (0, 0, shift, 0)) for x in (own_keys, own))
        score = ((query * moved_keys).sum(-1, keepdim=True) * scale).float()
        if shift:
            early = torch.arange(length, device=query.device)[:, None] < shift
            score = score.masked_fill(early, -torch.inf)
        scores.append(score)
        own_values.append(moved)
    weights = torch.cat(scores, dim=-1).softmax(-1).to(query.dtype)
    attended = weights[..., :length] @ values
    for column, moved in enumerate(own_values):
        attended = attended + weights[..., length + column, None] * moved
    return attended
