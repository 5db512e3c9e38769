"""A model's short forwards as CUDA graphs: one a block size and extent of the cache, captured before it is needed."""

from __future__ import annotations

from collections.abc import Hashable
from functools import partial

import torch
from torch import Tensor

from engine.cache import RollbackCache
from engine.fused import PACKED_QUERIES, FusedForward
from engine.graphs import Graphs, Step

SMALLEST_EXTENT = 256
"""A graph attends to a fixed number of positions: a power of two from here on, at most twice what the cache holds."""


def extent_for(positions: int) -> int:
    """The extent of the graphs that serve a cache of so many positions, the new ones included."""
    return max(SMALLEST_EXTENT, 1 << (positions - 1).bit_length())


class ReplayedForward:
    """`FusedForward` with its short blocks replayed, on a cache that is blank where nothing was written."""

    def __init__(self, fused: FusedForward, graphs: Graphs) -> None:
        self._fused = fused
        self._graphs = graphs

    def forward(
        self, ids: Tensor, cache: RollbackCache, keep: int, taps: tuple[int, ...] | None
    ) -> tuple[Tensor, Tensor]:
        """As `FusedForward.forward`, but the results are overwritten by the next forward of the same size."""
        n, start = ids.shape[0], cache.filled()
        if n > PACKED_QUERIES or start + n > cache.capacity():
            return self._fused.forward(ids, cache, keep, taps)
        positions = torch.arange(start, start + n, device=ids.device)
        key, step = self._step(start + n, cache, keep, taps)
        logits, hidden = self._graphs.run(key, step, ids, positions)
        cache.advance(n)
        return logits, hidden

    def prepare(self, sizes: tuple[int, ...], cache: RollbackCache, keep: int, taps: tuple[int, ...] | None) -> None:
        """Capture what the next forwards will replay, so that no round's time holds a capture.

        What this writes lies behind the filled part of the cache.

        Args:
            sizes: the blocks' numbers of positions, in an order in which they may come one after the other.
            keep: logits to return, at most; a smaller block returns all of its own.
        """
        start = cache.filled()
        for n in sizes:
            if self._graphs.failure is not None or start + n > cache.capacity() or n > PACKED_QUERIES:
                return
            key, step = self._step(start + n, cache, min(keep, n), taps)
            if not self._graphs.holds(key, (n,), (n,)):
                positions = torch.arange(start, start + n, device=self._fused.device)
                self._graphs.run(key, step, torch.zeros_like(positions), positions)
            start += n

    def _step(self, end: int, cache: RollbackCache, keep: int, taps: tuple[int, ...] | None) -> tuple[Hashable, Step]:
        capacity = cache.capacity()  # in the key: buffers that grew are other memory
        extent = min(extent_for(end), capacity)
        step = partial(self._fused.forward_at, cache=cache, extent=extent, keep=keep, taps=taps)
        return ("forward", id(cache), capacity, extent, keep, taps), step
