"""A head in a folder: how it starts from a target, and how it is written and read."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor
from torch.nn.functional import rms_norm

from engine.distill.head import DraftHead
from engine.distill.head_cache import HeadConfig
from engine.distill.sampler import Sampled

HEAD_FILE = "head.json"


def config_for(target: Any, scored_tokens: int, layers: int) -> HeadConfig:
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
def fit_fusion(head: DraftHead, target: Any, sequences: Sequence[Sampled], tokens: int = 12288) -> None:
    """Set the fusion to the least-squares map from (state after xᵢ₋₁, embedding of xᵢ) to the copied layers' own input.

    The target's last layers then start from nearly what they are used to, and the head predicts before it has trained:
    a start from an identity spends its first hundreds of steps on getting there.
    """
    caught: list[Tensor] = []
    handle = target.model.layers[-len(head.stack)].register_forward_pre_hook(
        lambda _module, args, kwargs: caught.append(args[0] if args else kwargs["hidden_states"]), with_kwargs=True
    )
    width, eps = head.config.hidden_size, head.config.norm_eps
    covariance = torch.zeros(2 * width, 2 * width)
    product = torch.zeros(2 * width, width)
    seen = 0
    try:
        for sequence in sequences:
            ids = sequence.ids[None, :-1]
            caught.clear()
            target.model(ids, use_cache=False)
            before = sequence.states[:-1].float()
            embedded = target.get_input_embeddings()(ids)[0, 1:].float()
            inputs = torch.cat(
                [
                    rms_norm(before, (width,), head.feature_norm.float(), eps),
                    rms_norm(embedded, (width,), head.token_norm.float(), eps),
                ],
                dim=-1,
            )
            covariance += inputs.T @ inputs
            product += inputs.T @ caught[0][0, 1:].float()
            seen += len(inputs)
            if seen >= tokens:
                break
    finally:
        handle.remove()
    ridge = 1e-3 * covariance.diagonal().mean() * torch.eye(2 * width)
    head.fuse.copy_(torch.linalg.solve(covariance + ridge, product).T)


def save_head(folder: Path, head: DraftHead, scored: Tensor, notes: dict[str, Any]) -> None:
    """Write head.json and head.safetensors (bf16 weights and the id map `d2t`: trimmed id → target id)."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {name: value.detach().to(torch.bfloat16).contiguous() for name, value in head.state_dict().items()}
    tensors["d2t"] = scored.to(torch.int32)
    partial = folder / "head.partial"
    save_file(tensors, partial)
    partial.replace(folder / "head.safetensors")
    text = json.dumps({"kind": "feature-head", **asdict(head.config), "notes": notes}, indent=2)
    (folder / HEAD_FILE).write_text(text + "\n", encoding="utf-8")


def load_head(folder: Path, dtype: torch.dtype = torch.bfloat16) -> tuple[DraftHead, Tensor]:
    """The head and its id map (scored_tokens,), as `save_head` wrote them."""
    raw = json.loads((folder / HEAD_FILE).read_text(encoding="utf-8"))
    raw = {name: value for name, value in raw.items() if name not in ("kind", "notes")}
    config = HeadConfig(**raw)
    with torch.device("meta"):
        head = DraftHead(config)
    with safe_open(folder / "head.safetensors", framework="pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no mapping)
    scored = tensors.pop("d2t").long()
    head.load_state_dict({name: value.to(dtype) for name, value in tensors.items()}, assign=True)
    return head.eval().requires_grad_(False), scored
