"""Memory for what is computed over a whole vocabulary, kept from round to round.

A matrix of a round is a megabyte. Allocated anew, the system hands out its pages one by one, which takes several times
as long as filling them.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


class Scratch:
    """Named buffers. What is in one lasts until its name is asked for again."""

    def __init__(self) -> None:
        self._kept: dict[str, Tensor] = {}
        self._flags: dict[str, NDArray[np.bool_]] = {}

    def take(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """An uninitialised float32 tensor."""
        size = math.prod(shape)
        kept = self._kept.get(name)
        if kept is None or kept.numel() < size:
            kept = self._kept[name] = torch.empty(size, dtype=torch.float32)
        return kept[:size].view(shape)

    def flags(self, name: str, shape: tuple[int, ...]) -> NDArray[np.bool_]:
        """Uninitialised truth values."""
        size = math.prod(shape)
        kept = self._flags.get(name)
        if kept is None or kept.size < size:
            kept = self._flags[name] = np.empty(size, dtype=np.bool_)
        return kept[:size].reshape(shape)
