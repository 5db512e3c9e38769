"""How a head starts: with its target's last layers, and the map that gives them nearly the input they are used to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import rms_norm

from engine.distill.sampler import Sampled
from engine.head.cache import HeadConfig
from engine.head.network import DraftHead


def config_for(target: Any, scored_tokens: int, layers: int, taps: tuple[int, ...]) -> HeadConfig:
    """Shapes taken from a Llama-like target's config."""
    config = target.config
    return HeadConfig(
        hidden_size=config.hidden_size,
        heads=config.num_attention_heads,
        kv_heads=getattr(config, "num_key_value_heads", None) or config.num_attention_heads,
        head_dim=getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads,
        intermediate_size=config.intermediate_size,
        rope_theta=float(config.rope_parameters["rope_theta"]),
        norm_eps=float(config.rms_norm_eps),
        vocab_size=target.get_output_embeddings().weight.shape[0],
        scored_tokens=scored_tokens,
        layers=layers,
        taps=taps,
    )


def start_from_target(head: DraftHead, target: Any) -> None:
    """Copy the target's last layers and final norm into the head."""
    with torch.no_grad():
        sources = target.model.layers[-len(head.layers) :]
        for layer, source in zip(head.stack, sources, strict=True):
            attention, mlp = source.self_attn, source.mlp
            layer.qkv.copy_(torch.cat([attention.q_proj.weight, attention.k_proj.weight, attention.v_proj.weight]))
            layer.out.copy_(attention.o_proj.weight)
            layer.gate_up.copy_(torch.cat([mlp.gate_proj.weight, mlp.up_proj.weight]))
            layer.down.copy_(mlp.down_proj.weight)
            layer.input_norm.copy_(source.input_layernorm.weight)
            layer.mlp_norm.copy_(source.post_attention_layernorm.weight)
        head.norm.copy_(target.model.norm.weight)


@torch.inference_mode()
def fit_fusion(head: DraftHead, target: Any, sequences: Sequence[Sampled], tokens: int = 40960) -> None:
    """Set both fusions to the least-squares map from (states after xᵢ₋₁, embedding of xᵢ) to the copied layers' input.

    The target's last layers then start from nearly what they are used to, and the head predicts before it has trained:
    a start from an identity spends its first hundreds of steps on getting there.
    """
    caught: list[Tensor] = []
    handle = target.model.layers[-len(head.stack)].register_forward_pre_hook(
        lambda _module, args, kwargs: caught.append(args[0] if args else kwargs["hidden_states"]), with_kwargs=True
    )
    width, features = head.config.hidden_size, head.config.feature_size
    covariance = torch.zeros(features + width, features + width)
    product = torch.zeros(features + width, width)
    seen = 0
    try:
        for sequence in sequences:
            ids = sequence.ids[None, :-1]
            caught.clear()
            target.model(ids, use_cache=False)
            before = sequence.states[:-1].float()
            embedded = target.get_input_embeddings()(ids)[0, 1:].float()
            inputs = torch.cat([before, embedded], dim=-1).view(len(before), -1, width)
            inputs = rms_norm(inputs, (width,), None, head.config.norm_eps).flatten(-2)
            covariance += inputs.T @ inputs
            product += inputs.T @ caught[0][0, 1:].float()
            seen += len(inputs)
            if seen >= tokens:
                break
    finally:
        handle.remove()
    covariance += 1e-3 * covariance.diagonal().mean() * torch.eye(features + width)
    head.fuse.copy_(torch.linalg.solve(covariance, product).T)
    # The head's own state resembles the target's final one, which comes last of the features.
    own = slice(features - width, None)
    head.fuse_own.copy_(torch.linalg.solve(covariance[own, own], product[own]).T)
