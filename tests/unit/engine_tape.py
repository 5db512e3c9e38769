"""A capture for machines without a GPU, that forgives as little as a CUDA graph does.

It writes down every operation of a step with the very tensors and host values that it was called with, and repeats
exactly those: what was not written into the captured memory is not seen, and reading a value on the host is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

Call = tuple[Any, tuple[Any, ...], dict[str, Any], Any]


class _Tape(TorchDispatchMode):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Call] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten._local_scalar_dense.default:
            raise RuntimeError("operation not permitted when stream is capturing: a value is read on the host")
        out = func(*args, **(kwargs or {}))
        self.calls.append((func, args, kwargs or {}, out))
        return out


def on_tape(step: Callable[[], tuple[Tensor, ...]]) -> tuple[Callable[[], None], tuple[Tensor, ...]]:
    """As `engine.graphs.on_cuda`."""
    tape = _Tape()
    with tape:
        outputs = step()
    for output in outputs:
        if output.is_floating_point():
            output.fill_(torch.nan)  # a capture computes nothing

    def replay() -> None:
        for func, args, kwargs, out in tape.calls:
            again = func(*args, **kwargs)
            for place, value in zip(tree_leaves(out), tree_leaves(again), strict=True):
                if isinstance(place, Tensor) and place.data_ptr() != value.data_ptr():
                    place.copy_(value)

    return replay, outputs
