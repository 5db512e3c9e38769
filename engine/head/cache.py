"""The shapes of a head, its rotary positions, and the keys and values that it holds while it drafts."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention


@dataclass(frozen=True)
class HeadConfig:
    """Shapes of a head; those of the target's layers, whose last one it starts from."""

    hidden_size: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate_size: int
    rope_theta: float
    norm_eps: float
    vocab_size: int
    """Of the target."""
    scored_tokens: int
    """Of the trimmed vocabulary."""
    layers: int = 1
    taps: tuple[int, ...] = ()
    """After how many of the target's decoder layers its states are read, besides the final ones."""

    @property
    def feature_size(self) -> int:
        """Width of what the head reads of the target at one position."""
        return (len(self.taps) + 1) * self.hidden_size


class HeadCache:
    """Keys and values of one layer for one sequence, in a buffer that grows by doubling."""

    def __init__(self, config: HeadConfig, dtype: torch.dtype, device: torch.device, room: int = 256) -> None:
        self.config, self.dtype, self.device = config, dtype, device
        self.length = 0
        self.keys = self.values = torch.empty(1, config.kv_heads, 0, config.head_dim, dtype=dtype, device=device)
        self._allocate(room)

    def _allocate(self, room: int) -> None:
        self.keys, self.values = (
            torch.cat([old[:, :, : self.length], old.new_empty(1, old.shape[1], room - self.length, old.shape[3])], 2)
            for old in (self.keys, self.values)
        )
        self._rotation = rotation_table(torch.arange(room, device=self.device), self.config, self.dtype)

    def rotation(self, start: int, end: int) -> tuple[Tensor, Tensor]:
        """The rotary table of positions start … end − 1; makes room for them."""
        if end > self.keys.shape[2]:
            self._allocate(max(end, 2 * self.keys.shape[2]))
        cos, sin = self._rotation
        return cos[start:end], sin[start:end]

    def attend(self, query: Tensor, key: Tensor, value: Tensor, start: int) -> Tensor:
        """Store the new keys and values from `start` on, and attend causally to everything up to them."""
        if start > self.length:
            raise ValueError(f"the draft cache holds {self.length} positions, so position {start} cannot follow")
        _, heads, length, width = query.shape
        end = start + length
        if end > self.keys.shape[2]:
            self._allocate(max(end, 2 * self.keys.shape[2]))
        self.keys[:, :, start:end] = key
        self.values[:, :, start:end] = value
        self.length = end
        keys, values = self.keys[:, :, :end], self.values[:, :, :end]
        kv_heads = self.config.kv_heads
        # The query heads that share a key/value head become rows of one matrix: no copy of the cache is made.
        grouped = query.reshape(1, kv_heads, heads // kv_heads * length, width)
        mask = None
        if length > 1:
            visible = torch.arange(end, device=query.device) <= torch.arange(start, end, device=query.device)[:, None]
            mask = visible.repeat(heads // kv_heads, 1)
        return scaled_dot_product_attention(grouped, keys, values, attn_mask=mask).reshape(1, heads, length, width)

    def crop(self, length: int) -> None:
        """Forget everything from position `length` on."""
        self.length = min(self.length, length)


def rotation_table(positions: Tensor, config: HeadConfig, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Cosines and sines (positions, head_dim) of rotary position embedding (arXiv 2104.09864), halves rotated."""
    half = config.head_dim // 2
    frequency = config.rope_theta ** (-torch.arange(half, dtype=torch.float32, device=positions.device) / half)
    angle = positions.float()[:, None] * frequency
    angle = torch.cat([angle, angle], dim=-1)
    return angle.cos().to(dtype), angle.sin().to(dtype)


def rotate(x: Tensor, rotation: tuple[Tensor, Tensor]) -> Tensor:
    """Apply the rotary table to (batch, heads, length, head_dim)."""
    cos, sin = rotation
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat([-second, first], dim=-1) * sin
