"""Memory for what is computed over a whole vocabulary, kept from round to round.

A matrix of a round is a megabyte. Allocated anew, the system hands out its pages one by one, which takes several times
as long as filling them.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


class Scratch:
    """Named float32 buffers. What is in one lasts until its name is asked for again."""

    def __init__(self) -> None:
        self._kept: dict[str, Tensor] = {}

    def take(self, name: str, shape: tuple[int, ...], device: torch.device) -> Tensor:
        """An uninitialised float32 tensor."""
        size = math.prod(shape)
        kept = self._kept.get(name)
        if kept is None or kept.numel() < size or kept.device != device:
            kept = self._kept[name] = torch.empty(size, dtype=torch.float32, device=device)
        return kept[:size].view(shape)
