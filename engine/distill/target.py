"""The target of a distillation: loaded, and checked for what the recipe rests on."""

from __future__ import annotations

from typing import Any

import torch

from engine import default_pair
from engine.distill.sampler import PACKED_ATTENTION
from engine.errors import PairError
from engine.loading import Loaded, load


def load_target(name: str | None, progress: default_pair.Progress) -> Loaded:
    """Load a target (None: the embedded default one) in bfloat16 on the CPU, with the attention that sampling wants.

    Raises:
        PairError: there is no such model, or it is not of a form that can be distilled.
    """
    path = default_pair.default_target(progress) if name is None else name
    progress(f"Loading the target {name or default_pair.NAME}", None)
    loaded = load(path, torch.device("cpu"), torch.bfloat16)
    check_target(loaded.module, name or default_pair.NAME)
    if loaded.tokenizer is None:
        raise PairError(f"{name} has no tokenizer beside it; save the model's tokenizer into the same folder.")
    loaded.module.set_attn_implementation(PACKED_ATTENTION)
    loaded.module.requires_grad_(False)
    return loaded


def check_target(module: Any, name: str) -> None:
    """Refuse a target that is not Llama-like: decoder layers in `model.layers`, rotary positions, logits = states · W.

    Raises:
        PairError: says what is missing.
    """
    config = module.config
    layers = getattr(getattr(module, "model", None), "layers", None)
    if not layers or not hasattr(getattr(layers[-1], "self_attn", None), "q_proj"):
        raise PairError(
            f"{name} ({config.model_type}) has no Llama-like decoder layers, so it cannot be distilled here."
        )
    rope = getattr(config, "rope_parameters", None)
    if not isinstance(rope, dict) or "rope_theta" not in rope or getattr(config, "sliding_window", None):
        raise PairError(
            f"{name} ({config.model_type}) has not one plain rotary position scheme; choose another target."
        )
    ids = torch.arange(5)[None] % module.get_input_embeddings().weight.shape[0]
    with torch.inference_mode():
        states = module.model(ids, use_cache=False).last_hidden_state
        logits = module(ids, use_cache=False).logits.float()
        expected = (states @ module.get_output_embeddings().weight.T).float()
    if not torch.allclose(logits, expected, atol=0.05 * float(expected.abs().max()) + 1e-3):
        raise PairError(f"{name} ({config.model_type}) scales or caps its logits, which distillation does not support.")
