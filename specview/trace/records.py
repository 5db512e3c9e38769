"""What the reader hands out beside the engine's vocabulary: rows with their database ids."""

from __future__ import annotations

from dataclasses import dataclass

from engine.round import Origin, RunInfo, Status, StopReason


@dataclass(frozen=True, slots=True)
class RunRecord:
    id: int
    info: RunInfo
    status: Status
    """`interrupted` as well when the process that wrote the run is gone without having ended it."""
    message: str | None
    created: str
    """UTC, ISO 8601."""
    finished: str | None
    baseline_ms_per_token: float | None
    baseline_tokens: int | None


@dataclass(frozen=True, slots=True)
class SequenceRecord:
    id: int
    run_id: int
    index: int
    request_id: str | None
    prompt: str | None
    prompt_tokens: int
    target_prefill_ns: int | None
    draft_prefill_ns: int | None
    target_prefill_calls: int | None
    baseline_ids: tuple[int, ...]
    """The target's own greedy or sampled continuation, measured as the baseline; empty when there was none."""
    stop_reason: StopReason | None
    """None while the sequence grows."""


@dataclass(frozen=True, slots=True)
class TokenRecord:
    position: int
    """0, 1, … in the sequence, prompt included."""
    token: int
    origin: Origin
    round_index: int | None
    """None for the prompt."""
