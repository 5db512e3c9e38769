"""A model without some of its layers, sharing every weight with the original: the cheapest draft there is."""

from __future__ import annotations

import copy
import re
from collections.abc import Sequence
from typing import Any

from torch import nn

from engine.errors import PairError

_RANGE = re.compile(r"(\d+)(?:-(\d+))?")


def parse_layers(text: str, layers: int) -> tuple[int, ...]:
    """The layers named by `0-9,20-29`, in order.

    Raises:
        PairError: no such range, or a layer that the target does not have.
    """
    chosen: list[int] = []
    for part in text.split(","):
        match = _RANGE.fullmatch(part.strip())
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if match is None or last < first or last >= layers:
            raise PairError(
                f"--draft self:{text} must name layers 0 to {layers - 1} of the target, such as self:0-{layers // 2}."
            )
        chosen += range(first, last + 1)
    if len(set(chosen)) != len(chosen) or chosen != sorted(chosen):
        raise PairError(f"--draft self:{text} must name each layer once, in ascending order.")
    return tuple(chosen)


def without_middle(layers: int) -> tuple[int, ...]:
    """All layers but the four in the middle (all but one where there are fewer than six)."""
    dropped = 4 if layers >= 6 else min(1, layers - 1)
    first = (layers - dropped) // 2
    return tuple(i for i in range(layers) if not first <= i < first + dropped)


def skip_layers(module: Any, keep: Sequence[int]) -> Any:
    """A causal LM made of the kept layers of `module`; no weight is copied.

    Raises:
        PairError: the model's layers are not one list, so that some of them cannot be left out.
    """
    tensors = [*module.parameters(), *module.buffers()]
    shared = copy.deepcopy(module, {id(tensor): tensor for tensor in tensors})
    config = shared.config.get_text_config(decoder=True)
    holder, name = _layer_list(shared, int(config.num_hidden_layers))
    layers = getattr(holder, name)
    kept = nn.ModuleList([layers[i] for i in keep])
    for index, layer in enumerate(kept):
        part: Any
        for part in layer.modules():
            if hasattr(part, "layer_idx"):
                part.layer_idx = index
    setattr(holder, name, kept)
    for per_layer in ("layer_types", "no_rope_layers", "mlp_layer_types"):
        values = getattr(config, per_layer, None)
        if isinstance(values, list | tuple) and len(values) == len(layers):
            setattr(config, per_layer, [values[i] for i in keep])
    config.num_hidden_layers = len(kept)
    return shared.eval()


def _layer_list(module: Any, count: int) -> tuple[Any, str]:
    for holder in module.modules():
        for name, child in holder.named_children():
            if isinstance(child, nn.ModuleList) and len(child) == count and any(True for _ in child[0].parameters()):
                return holder, name
    raise PairError(f"The layers of {type(module).__name__} are not one list; choose another draft than self.")
