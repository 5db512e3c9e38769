"""How runs, models and settings are called, on one line and safe to show."""

from __future__ import annotations

from pathlib import PurePath

from engine.round import RunInfo
from specview.text import showable

_LONGEST_NAME = 40


def model_name(name: str | None) -> str:
    """The last part of a hub id or of a path, safe to show."""
    if not name:
        return ""
    return showable(PurePath(name).name or name, limit=_LONGEST_NAME)


def draft_name(info: RunInfo) -> str:
    """What proposes: the draft model's name, or the kind of proposer."""
    return model_name(info.draft) or showable(info.proposer or "draft", limit=_LONGEST_NAME)


def settings(info: RunInfo) -> list[str]:
    """The settings that matter at a glance."""
    parts = []
    if info.gamma is not None:
        auto = f" {showable(info.gamma_schedule)}" if info.gamma_schedule not in (None, "fixed") else ""
        parts.append(f"γ {info.gamma}{auto}")
    if info.sampling is not None:
        s = info.sampling
        parts.append("greedy" if s.greedy else f"T {s.temperature:g}")
        if s.top_k:
            parts.append(f"top-k {s.top_k}")
        if s.top_p < 1:
            parts.append(f"top-p {s.top_p:g}")
        if s.min_p > 0:
            parts.append(f"min-p {s.min_p:g}")
    if info.device:
        parts.append(" ".join(x for x in (showable(info.device), dtype(info.target_dtype)) if x))
    if info.seed is not None:
        parts.append(f"seed {info.seed}")
    if info.source != "engine":
        parts.append(f"from {showable(info.source)}")
    return parts


def dtype(name: str | None) -> str:
    """bfloat16 → bf16"""
    short = {"bfloat16": "bf16", "float16": "f16", "float32": "f32", "float64": "f64"}
    plain = (name or "").removeprefix("torch.")
    return short.get(plain, showable(plain))
