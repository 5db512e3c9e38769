"""KV caches that can be rolled back, and report their length.

transformers' `DynamicCache` concatenates: every forward copies the whole cache. Here each layer owns one buffer;
a forward writes its new positions behind the filled part and attention sees a view of what is filled, so appending
costs the new positions only and rolling back is one assignment of a length. Lengths are what the layers hold, never
what they ought to hold, so that the contract's clauses C9 and C10 can fail when the code is wrong.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin, DummyLayer, DynamicCache, get_layer_types_and_kwargs

_FULL = frozenset({"full_attention"})
_SLIDING = frozenset({"sliding_attention", "chunked_attention"})
_NONE = frozenset({"dummy"})


class BufferLayer(CacheLayerMixin):  # type: ignore[misc]
    """One layer's keys and values, (1, heads, capacity, head_dim), of which the first `length` positions are filled."""

    is_croppable = True
    is_sliding = False

    def __init__(self, capacity: int, blank: bool = False) -> None:
        """`blank`: what was never written is zero, for `put`, which hands it out."""
        super().__init__()
        self.capacity = capacity
        self.blank = blank
        self.length = 0

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        self.device = key_states.device
        self.dtype = key_states.dtype
        self.keys = self._buffer(key_states)
        self.values = self._buffer(value_states)
        self.is_initialized = True

    def _buffer(self, states: Tensor) -> Tensor:
        batch, heads, _, width = states.shape
        make = torch.zeros if self.blank else torch.empty
        return make(batch, heads, self.capacity, width, dtype=states.dtype, device=states.device)

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Write the new positions; returns views of everything that they may attend to."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        start, end = self.length, self.length + key_states.shape[-2]
        if end > self.capacity:
            self._grow(end)
        self.keys[:, :, start:end] = key_states
        self.values[:, :, start:end] = value_states
        self.length = end
        return self.keys[:, :, :end], self.values[:, :, :end]

    def put(self, positions: Tensor, extent: int, key_states: Tensor, value_states: Tensor) -> tuple[Tensor, Tensor]:
        """Write at (n,) positions of the device's choice; returns views of the first `extent`, filled or not.

        The length stays: a replayed graph repeats what the device did and nothing else. What is not filled is hidden
        from the queries, but must be finite: 0 · NaN would be seen.
        """
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        self.keys.index_copy_(2, positions, key_states)
        self.values.index_copy_(2, positions, value_states)
        return self.keys[:, :, :extent], self.values[:, :, :extent]

    def _grow(self, needed: int) -> None:
        self.capacity = max(needed, 2 * self.capacity)
        for name in ("keys", "values"):
            old = getattr(self, name)
            new = self._buffer(old)
            new[:, :, : self.length] = old[:, :, : self.length]
            setattr(self, name, new)

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.length + query_length, 0

    def get_seq_length(self) -> int:
        return self.length

    def get_max_length(self) -> int:
        return -1

    def crop(self, tokens_to_remove: int) -> None:
        """Forget the last positions; transformers 5 passes a count ≤ 0."""
        self.length = max(0, self.length - abs(tokens_to_remove))

    def reset(self) -> None:
        self.length = 0


class SlidingBufferLayer(BufferLayer):
    """A sliding-window layer that keeps every position, so that rolling back past the window's edge is exact.

    Attention gets the last window − 1 + n positions for n queries, which is what the model's own sliding mask expects.
    """

    is_sliding = True

    def __init__(self, capacity: int, sliding_window: int) -> None:
        super().__init__(capacity)
        self.sliding_window = sliding_window

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        keys, values = super().update(key_states, value_states)
        first = max(0, self.length - key_states.shape[-2] - self.sliding_window + 1)
        return keys[:, :, first:], values[:, :, first:]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        first = max(0, self.length - self.sliding_window + 1)
        return self.length - first + query_length, first

    def get_max_length(self) -> int:
        return self.sliding_window


class RollbackCache(Cache):  # type: ignore[misc]
    """A transformers `Cache` of preallocated buffers with O(1) rollback."""

    def filled(self) -> int:
        """Positions held, read from the layers.

        Raises:
            RuntimeError: the layers disagree, which means that a forward was interrupted half-way.
        """
        return _agreed({layer.length for layer in self.layers if isinstance(layer, BufferLayer)})

    def capacity(self) -> int:
        """Positions that there is room for without moving the buffers."""
        return min((layer.capacity for layer in self.layers if isinstance(layer, BufferLayer)), default=0)

    def advance(self, count: int) -> None:
        """Count `count` more positions as filled, which `BufferLayer.put` wrote."""
        for layer in self.layers:
            if isinstance(layer, BufferLayer):
                layer.length += count


def make_cache(config: Any, capacity: int, blank: bool = False) -> Cache:
    """A cache for a model's config with room for `capacity` positions (it grows when that was too little).

    Layer types other than full and sliding attention get the model's own dynamic cache; `probe_rollback` in
    `engine.model` then finds out whether it can be rolled back.
    """
    layer_types, kwargs = get_layer_types_and_kwargs(config.get_text_config(decoder=True))
    if not set(layer_types) <= _FULL | _SLIDING | _NONE:
        return DynamicCache(config=config)
    layers: list[BufferLayer | DummyLayer] = []
    for layer_type, options in zip(layer_types, kwargs, strict=True):
        if layer_type in _FULL:
            layers.append(BufferLayer(capacity, blank))
        elif layer_type in _SLIDING:
            layers.append(SlidingBufferLayer(capacity, options["sliding_window"]))
        else:
            layers.append(DummyLayer())  # reuses another layer's keys and values, or has no attention
    return RollbackCache(layers=layers)


def cache_length(cache: Cache) -> int:
    """Positions that the cache holds, read from its layers."""
    if isinstance(cache, RollbackCache):
        return cache.filled()
    return int(cache.get_seq_length())


def roll_back(cache: Cache, length: int) -> None:
    """Drop everything behind the first `length` positions."""
    surplus = cache_length(cache) - length
    if surplus > 0:
        cache.crop(-surplus)


def _agreed(lengths: set[int]) -> int:
    if len(lengths) > 1:
        raise RuntimeError(f"the cache's layers hold different lengths: {sorted(lengths)}")
    return lengths.pop() if lengths else 0
