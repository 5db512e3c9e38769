"""What the scheduler's thread hands to the recorder's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from engine.round import Sampling, StopReason
from specview.vllm_plugin.capture import StepCapture


@dataclass(frozen=True, slots=True)
class Begin:
    """A request as it was asked for."""

    prompt_ids: tuple[int, ...]
    temperature: float
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    logit_bias: Mapping[int, float] | None = None
    stop: tuple[str, ...] = ()

    def sampling(self) -> Sampling:
        return Sampling(
            self.temperature, self.top_k, self.top_p, self.min_p, self.repetition_penalty, self.frequency_penalty,
            self.presence_penalty, dict(self.logit_bias or {}),
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class RequestStep:
    """What the scheduler did with one request in one step."""

    request_id: str
    committed_before: int
    generated: int
    """Tokens that the sampler put out; 0 while the prompt is still being read."""
    committed: tuple[int, ...]
    """Those that the scheduler kept."""
    scheduled_candidates: int = 0
    target_kv_before: int | None = None
    target_kv_written: int | None = None
    target_kv_after: int | None = None
    ended: StopReason | None = None
    begin: Begin | None = None
    """With the first step of a request."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step of the batch. All its requests share its times."""

    capture: StepCapture | None
    requests: tuple[RequestStep, ...]
    start_ns: int = 0
    """On the machine's monotonic clock."""
    wall_ns: int = 0
    aborted: tuple[tuple[str, StopReason], ...] = ()
    """Requests that ended outside of a step."""
