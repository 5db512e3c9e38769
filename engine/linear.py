"""Projections in the layout that the machine multiplies fastest.

On the CPU oneDNN wants a weight in blocks, and PyTorch's `linear` rearranges it at every call. Rearranged once, a
short block (γ + 1 positions) is multiplied in half the time, with the same result; a second copy of the weights is the
price. On other devices projections that read the same input are one matrix, of which the modules' parameters become
views, so that nothing is held twice.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import WeakValueDictionary

import torch
from torch import Tensor
from torch.nn import functional

BLOCK_ROWS = 5
"""The number of positions that oneDNN arranges the blocks for: γ + 1 of the default γ. Others lose little."""


_BLOCK_TYPES = (torch.float32, torch.bfloat16)


class Projection:
    """x ↦ x·Wᵀ + b for the stacked weights and biases of several linear layers.

    Projections of the same weights are the same object, so that a draft which shares the target's layers shares their
    rearranged copies too; see `project`.
    """

    def __init__(self, weights: list[Tensor], biases: list[Tensor] | None, rearrange: bool = True) -> None:
        # Kept so that the memory, by whose address projections are shared, cannot be handed to other weights.
        self._weights = weights
        self._bias = None if biases is None else torch.cat([bias.detach() for bias in biases])
        self._multiply: Callable[..., Tensor] | None = None
        self._matrix = self._arranged(rearrange)

    def __call__(self, x: Tensor) -> Tensor:
        """(n, in) → (n, out)."""
        if self._multiply is None:
            return functional.linear(x, self._matrix, self._bias)
        return self._multiply(x, self._matrix, self._bias, "none", [], "")

    def _arranged(self, rearrange: bool) -> Tensor:
        first = self._weights[0].detach()
        if rearrange and first.device.type == "cpu" and first.dtype in _BLOCK_TYPES and _blocks_help(first.dtype):
            whole = first if len(self._weights) == 1 else torch.cat([weight.detach() for weight in self._weights])
            blocks: Tensor = torch.ops.mkldnn._reorder_linear_weight(whole, BLOCK_ROWS)
            self._multiply = torch.ops.mkldnn._linear_pointwise.default
            return blocks
        return first if len(self._weights) == 1 else joined(self._weights)


_projections: WeakValueDictionary[tuple[Any, ...], Projection] = WeakValueDictionary()


def project(weights: list[Tensor], biases: list[Tensor] | None = None, rearrange: bool = True) -> Projection:
    """The projection of these weights, made once as long as somebody holds it.

    Args:
        rearrange: whether there is memory for a second copy of the weights.
    """
    found = _projections.get(_key(weights, biases))
    if found is None:
        found = Projection(weights, biases, rearrange)
        _projections[_key(weights, biases)] = found  # only now: joining moves the weights
    return found


def _key(weights: list[Tensor], biases: list[Tensor] | None) -> tuple[Any, ...]:
    return (*((w.data_ptr(), w.device, w.dtype, tuple(w.shape)) for w in weights), biases is None)


def joined(parts: list[Tensor]) -> Tensor:
    """The parameters stacked into one tensor, of which they become views; a second call finds them stacked."""
    first = parts[0].detach()
    offsets = [first.storage_offset()]
    for part in parts[:-1]:
        offsets.append(offsets[-1] + part.numel())
    storage = first.untyped_storage().data_ptr()
    together = all(
        part.untyped_storage().data_ptr() == storage and part.storage_offset() == offset and part.is_contiguous()
        for part, offset in zip(parts, offsets, strict=True)
    )
    if together:
        rows = sum(part.shape[0] for part in parts)
        return first.as_strided((rows, *first.shape[1:]), first.stride(), offsets[0])
    whole = torch.cat([part.detach() for part in parts])
    at = 0
    for part in parts:
        part.data = whole[at : at + part.shape[0]]
        at += part.shape[0]
    return whole


def _blocks_help(dtype: torch.dtype) -> bool:
    """Whether this PyTorch rearranges weights for oneDNN, and the result is right: tried once a dtype."""
    if dtype not in _tried:
        _tried[dtype] = _try_blocks(dtype)
    return _tried[dtype]


_tried: dict[torch.dtype, bool] = {}


def _try_blocks(dtype: torch.dtype) -> bool:
    operators = torch.ops.mkldnn
    there: bool = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    if not there or not hasattr(operators, "_reorder_linear_weight"):
        return False
    if dtype == torch.bfloat16 and not operators._is_mkldnn_bf16_supported():
        return False
    weight = torch.linspace(-1, 1, 48 * 32).view(48, 32).to(dtype)
    x = torch.linspace(-1, 1, 3 * 32).view(3, 32).to(dtype)
    try:
        blocks = operators._reorder_linear_weight(weight, BLOCK_ROWS)
        ours = operators._linear_pointwise(x, blocks, None, "none", [], "")
    except RuntimeError:  # built without these kernels: the plain path is always there
        return False
    return bool(torch.allclose(ours.float(), functional.linear(x, weight).float(), atol=0.05))
