"""The forward of Llama-shaped models without the modules around it: the same weights, a third of the calls.

A transformers forward makes some forty Python calls a layer, which on a small model takes as long as reading the
weights. Llama, Mistral, Qwen2 and Qwen3 share one shape, written out here on plain tensors: projections that read the
same input are one (see `engine.linear`), and the queries that share a key head are packed side by side, so that
attention reads the cache as it lies, instead of a copy in which every key head is repeated. All other models run
through their own module.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from engine.cache import BufferLayer, RollbackCache
from engine.linear import Projection, project
from engine.memory import room_for

SHAPES = frozenset({"LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM"})
STATIC_ROPES = frozenset({"default", "linear", "llama3", "yarn"})
"""Rotary embeddings whose angles do not depend on how long the text is."""
PACKED_QUERIES = 64
"""Up to this many positions their queries are packed; longer blocks (a prompt) use the causal kernel."""


@dataclass(frozen=True, slots=True)
class _Layer:
    norm: Tensor
    qkv: Projection
    head_norm: Tensor | None
    out: Projection
    mlp_norm: Tensor
    gate_up: Projection
    down: Projection


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a block of positions stands in the text and in the cache."""

    cos: Tensor
    sin: Tensor
    mask: Tensor | None
    store: Callable[[BufferLayer, Tensor, Tensor], tuple[Tensor, Tensor]]
    """Puts a layer's new keys and values into its cache → all those that the block may attend to."""


class FusedForward:
    """Runs a Llama-shaped module on a `RollbackCache`.

    Build it with `fuse`, which says None for a module of another shape.
    """

    def __init__(self, module: Any) -> None:
        body, config = module.model, module.config
        attention = body.layers[0].self_attn
        self._embedding: Tensor = body.embed_tokens.weight
        self._norm: Tensor = body.norm.weight
        size = sum(p.numel() * p.element_size() for p in module.parameters())
        rearrange = room_for(size)
        self._head = project([module.lm_head.weight], None, rearrange)
        self._rotary = body.rotary_emb
        self._eps = float(config.rms_norm_eps)
        self._width = int(config.hidden_size)
        self._inner = int(config.intermediate_size)
        self._head_dim = int(attention.head_dim)
        self._heads = int(config.num_attention_heads)
        self._kv_heads = int(config.num_key_value_heads)
        self._groups = self._heads // self._kv_heads
        self._scale = float(attention.scaling)
        self._layers = [_read_layer(layer, self._heads, self._kv_heads, rearrange) for layer in body.layers]
        self._cos = self._sin = torch.empty(0)
        self._outgrown: list[tuple[Tensor, Tensor]] = []

    @property
    def device(self) -> torch.device:
        """Where all of it runs."""
        return self._embedding.device

    def forward(
        self, ids: Tensor, cache: RollbackCache, keep: int, taps: tuple[int, ...] | None
    ) -> tuple[Tensor, Tensor]:
        """Score `ids` behind what the cache holds.

        Returns:
            (keep, vocab) logits and, unless `taps` is None, the (n, (taps + 1) · hidden) states: the residual stream
            after so many layers each, then the one after the final norm.
        """
        n, start = ids.shape[0], cache.filled()
        cos, sin = self._angles(start + n)
        place = _Place(cos[start : start + n], sin[start : start + n], self._mask(start, n), BufferLayer.update)
        return self._through(ids, cache, place, keep, taps)

    def forward_at(
        self, ids: Tensor, positions: Tensor, cache: RollbackCache, extent: int, keep: int, taps: tuple[int, ...] | None
    ) -> tuple[Tensor, Tensor]:
        """`forward` in the form that a CUDA graph can hold: the same kernels whatever the cache holds.

        Attention goes over the first `extent` positions and hides those behind each query. The cache's lengths stay.

        Args:
            ids, positions: (n,) int64, n ≤ PACKED_QUERIES; the positions below `extent`.
        """
        cos, sin = self._angles(extent)
        hidden = torch.arange(extent, device=positions.device)[None] > positions[:, None]
        mask = torch.zeros(hidden.shape, dtype=self._embedding.dtype, device=positions.device)
        mask.masked_fill_(hidden, float("-inf"))

        def store(slot: BufferLayer, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
            return slot.put(positions, extent, keys, values)

        place = _Place(cos[positions], sin[positions], mask.repeat(self._groups, 1), store)
        return self._through(ids, cache, place, keep, taps)

    def _through(
        self, ids: Tensor, cache: RollbackCache, place: _Place, keep: int, taps: tuple[int, ...] | None
    ) -> tuple[Tensor, Tensor]:
        n = ids.shape[0]
        x = functional.embedding(ids, self._embedding)
        tapped = []
        for depth, (layer, slot) in enumerate(zip(self._layers, cache.layers, strict=True), start=1):
            x = self._attend(layer, x, slot, place)
            h = functional.rms_norm(x, (self._width,), layer.mlp_norm, self._eps)
            h = layer.gate_up(h)
            h = functional.silu(h[:, : self._inner]).mul_(h[:, self._inner :])
            x = x + layer.down(h)
            if taps and depth in taps:
                tapped.append(x)
        if taps is None:
            x = x[n - keep :]
        x = functional.rms_norm(x, (self._width,), self._norm, self._eps)
        return self._head(x[x.shape[0] - keep :]), torch.cat([*tapped, x], dim=-1) if tapped else x

    def _attend(self, layer: _Layer, x: Tensor, slot: BufferLayer, place: _Place) -> Tensor:
        n, width = x.shape[0], self._head_dim
        h = functional.rms_norm(x, (self._width,), layer.norm, self._eps)
        qkv = layer.qkv(h).view(n, self._heads + 2 * self._kv_heads, width)
        qk = qkv[:, : self._heads + self._kv_heads]
        if layer.head_norm is not None:
            qk = functional.rms_norm(qk, (width,), None, self._eps) * layer.head_norm
        # Rotary embedding: the sign of the rotated half is folded into `sin`.
        qk = torch.addcmul(qk * place.cos, qk.roll(width // 2, -1), place.sin)
        new_keys = qk[:, self._heads :].transpose(0, 1)[None]
        new_values = qkv[:, self._heads + self._kv_heads :].transpose(0, 1)[None]
        keys, values = place.store(slot, new_keys, new_values)
        if n <= PACKED_QUERIES:
            queries = qk[:, : self._heads].view(n, self._kv_heads, self._groups, width)
            queries = queries.permute(1, 2, 0, 3).reshape(1, self._kv_heads, self._groups * n, width)
            out = functional.scaled_dot_product_attention(
                queries, keys, values, attn_mask=place.mask, scale=self._scale
            )
            out = out.view(self._kv_heads, self._groups, n, width).permute(2, 0, 1, 3)
        else:
            queries = qk[:, : self._heads].transpose(0, 1)[None]
            causal = place.mask is None
            out = functional.scaled_dot_product_attention(
                queries, keys, values, attn_mask=place.mask, is_causal=causal, scale=self._scale, enable_gqa=True
            )[0].transpose(0, 1)
        return x + layer.out(out.reshape(n, self._heads * width))

    def _angles(self, end: int) -> tuple[Tensor, Tensor]:
        """((≥ end, 1, head_dim) cos, the same of sin with the first half negated) of positions 0, 1, 2, …"""
        if end > self._cos.shape[0]:
            size = max(end, 2 * self._cos.shape[0], 256)
            positions = torch.arange(size, device=self._embedding.device)[None]
            cos, sin = self._rotary(self._embedding[:1], position_ids=positions)
            half = self._head_dim // 2
            self._outgrown.append((self._cos, self._sin))  # captured graphs go on reading them
            self._cos = cos[0][:, None].contiguous()
            self._sin = torch.cat((-sin[0, :, :half], sin[0, :, half:]), dim=-1)[:, None].contiguous()
        return self._cos, self._sin

    def _mask(self, start: int, n: int) -> Tensor | None:
        """Which of the start + n cached positions each query sees; None where the kernel's own causality is enough."""
        if n == 1 or (start == 0 and n > PACKED_QUERIES):
            return None
        device = self._embedding.device
        rows = torch.arange(start, start + n, device=device)[:, None]
        hidden = torch.arange(start + n, device=device)[None] > rows
        mask = torch.zeros(n, start + n, dtype=self._embedding.dtype, device=device)
        mask.masked_fill_(hidden, float("-inf"))
        return mask.repeat(self._groups, 1) if n <= PACKED_QUERIES else mask


def fuse(module: Any) -> FusedForward | None:
    """The fused forward of a module, or None where its own forward must be used.

    Only plain modules qualify: exactly one of `SHAPES`, on one device, in one dtype, with nothing hooked into them.
    """
    if type(module).__name__ not in SHAPES or getattr(module, "hf_device_map", None) is not None:
        return None
    config = module.config
    rope = getattr(config, "rope_parameters", None) or {}
    parameters = list(module.parameters())
    plain = (
        config.hidden_act == "silu"
        and not any(isinstance(value, dict) for value in rope.values())  # another rope for every kind of layer
        and rope.get("rope_type", "default") in STATIC_ROPES
        and rope.get("partial_rotary_factor", 1.0) == 1.0
        and set(getattr(config, "layer_types", None) or {"full_attention"}) == {"full_attention"}
        and getattr(config, "sliding_window", None) is None
        and module.lm_head.bias is None
        and len({(p.device, p.dtype) for p in parameters}) == 1
        and all(type(p) is nn.Parameter for p in parameters)
        and not any(m._forward_hooks or m._forward_pre_hooks or hasattr(m, "_hf_hook") for m in module.modules())
        and all(type(m) is nn.Linear for m in _projections(module))
    )
    return FusedForward(module) if plain else None


def _projections(module: Any) -> list[Any]:
    found = [module.lm_head]
    for layer in module.model.layers:
        attention, mlp = layer.self_attn, layer.mlp
        found += [attention.q_proj, attention.k_proj, attention.v_proj, attention.o_proj]
        found += [mlp.gate_proj, mlp.up_proj, mlp.down_proj]
    return found


def _read_layer(layer: Any, heads: int, kv_heads: int, rearrange: bool) -> _Layer:
    attention, mlp = layer.self_attn, layer.mlp
    head_norm = None
    if getattr(attention, "q_norm", None) is not None:
        weights = [attention.q_norm.weight.expand(heads, -1), attention.k_norm.weight.expand(kv_heads, -1)]
        head_norm = torch.cat(weights).detach()
    return _Layer(
        norm=layer.input_layernorm.weight,
        qkv=_projection(rearrange, attention.q_proj, attention.k_proj, attention.v_proj),
        head_norm=head_norm,
        out=_projection(rearrange, attention.o_proj),
        mlp_norm=layer.post_attention_layernorm.weight,
        gate_up=_projection(rearrange, mlp.gate_proj, mlp.up_proj),
        down=_projection(rearrange, mlp.down_proj),
    )


def _projection(rearrange: bool, *linears: Any) -> Projection:
    biases = None if linears[0].bias is None else [linear.bias for linear in linears]
    return project([linear.weight for linear in linears], biases, rearrange)
