"""A head in a folder: head.json (shapes, and how it was made) beside head.safetensors (bfloat16, with the id map)."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from engine.head.cache import HeadConfig
from engine.head.network import DraftHead

HEAD_FILE = "head.json"


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
    config = HeadConfig(**{**raw, "taps": tuple(raw["taps"])})
    with torch.device("meta"):
        head = DraftHead(config)
    with safe_open(folder / "head.safetensors", framework="pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no mapping)
    scored = tensors.pop("d2t").long()
    head.load_state_dict({name: value.to(dtype) for name, value in tensors.items()}, assign=True)
    return head.eval().requires_grad_(False), scored
