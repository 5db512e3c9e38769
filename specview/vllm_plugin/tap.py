"""Gathers what one step's sampling used, by reference, and hands it to `measure` when the step's draw is done."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from specview.vllm_plugin.capture import Matrix, StepCapture
from specview.vllm_plugin.clock import StepClock
from specview.vllm_plugin.measure import pack
from specview.vllm_plugin.scored import Scored, Scratch

COPY_LIMIT_BYTES = 256 << 20
"""Raw logits that vLLM is about to change are copied up to this size; above it their deviation is not recorded."""

PHASES = {
    "propose": ("propose begins", "propose ends"),
    "score": ("forward begins", "sampling begins"),
    "accept": ("sampling begins", "sampling ends"),
    "record": ("sampling ends", "recorded"),
}


class StepTap:
    """One step, while the sampler works. All tensors are vLLM's own; none is changed."""

    def __init__(self, request_ids: Sequence[str], chosen: Sequence[int], widest_k: int) -> None:
        self.request_ids = request_ids
        self.chosen = chosen
        """Rows of the batch that are recorded."""
        self.widest_k = widest_k
        self.copy_last = False
        """Whether the last position's logits must be copied before vLLM changes them."""
        self.draft_probs: Tensor | None = None
        """(candidates, vocab)"""
        self.raw_last: Tensor | None = None
        """(batch, vocab) logits of the last position before any processing, where they had to be copied."""
        self.last_scores: Tensor | None = None
        self.last_top: tuple[Tensor | None, Tensor | None] = (None, None)
        self.last_tokens: Tensor | None = None
        self.processed: Tensor | None = None
        """(candidates, vocab) logits after penalties and the like, before the temperature, where those are in use."""
        self.target_scores: Tensor | None = None
        self.target_probs: Tensor | None = None
        self.uniform: Tensor | None = None
        self.output: Tensor | None = None
        """(batch, γ+1) token ids put out; −1 after the end of the round."""
        self.draft_deviation: Tensor | None = None
        """(candidates,)"""
        self.draft_entropy: Tensor | None = None


class Instrument:
    """What the worker keeps between steps."""

    def __init__(self, device: torch.device, top: int) -> None:
        self.device = device
        self.top = top
        self.scratch = Scratch()
        self.clock = StepClock(device)
        self.proposed_by = StepClock(device)
        """The clock of the step that proposed this step's candidates."""
        self.capture: StepCapture | None = None
        self.draft_facts: list[tuple[Tensor, Tensor]] = []
        """(deviation, entropy) of the candidates proposed last: (batch,) each, one pair a draft step."""
        self._stream: Any = None

    def begin_step(self) -> None:
        """A forward begins."""
        if self.clock.has("sampling begins"):  # vLLM also calls for steps that hold no work
            self.proposed_by = self.clock
        self.clock = StepClock(self.device)
        self.clock.mark("forward begins")

    def finish(
        self, tap: StepTap, metadata: Any, sampling: Any, logits: Tensor, draft_probs: Tensor | None
    ) -> StepCapture:
        """Measure the step and start the copy to the host."""
        drafted: list[int] = [0] * len(tap.request_ids) if metadata is None else list(metadata.num_draft_tokens)
        parts = []
        candidates = None
        count = sum(drafted)
        if count:
            candidates = self._candidates(tap, metadata, sampling, logits, draft_probs, drafted)
            parts.append(candidates)
        last = self._last(tap, metadata, sampling, logits, drafted)
        parts.append(last)
        top = min(self.top, logits.shape[-1])
        packed = pack(parts, top, self.scratch)
        self.clock.mark("recorded")
        return StepCapture(
            request_ids=tuple(tap.request_ids[i] for i in tap.chosen),
            drafted=tuple(drafted[i] for i in tap.chosen),
            top=top,
            one_hot=draft_probs is None,
            drew_uniforms=tap.uniform is not None,
            deviation_of_candidates=candidates is not None and candidates.raw is not None,
            deviation_of_last=last.raw is not None,
            draft_deviation=candidates is not None and candidates.draft_deviation is not None,
            fetch=_Fetch(packed, self.clock, self.proposed_by, self._copy_stream()),
            start_ns=self.clock.start_ns,
        )

    def _candidates(
        self, tap: StepTap, metadata: Any, sampling: Any, logits: Tensor, draft_probs: Tensor | None, drafted: list[int]
    ) -> Scored:
        assert tap.target_scores is not None
        assert tap.output is not None
        count = sum(drafted)
        device = logits.device
        batch_row = _index([row for row, drafts in enumerate(drafted) for _ in range(drafts)], device)
        place = _index([place for drafts in drafted for place in range(drafts)], device)
        raw, raw_rows = tap.processed, None
        if not processed(sampling):
            raw, raw_rows = logits, metadata.target_logits_indices
        scored = Scored(
            scores=tap.target_scores,
            candidate=metadata.draft_token_ids,
            token=tap.output[batch_row, place],
            probs=tap.target_probs,
            uniform=tap.uniform,
            raw=raw,
            raw_rows=raw_rows,
            temperature=_rows(sampling.temperature, batch_row, sampling),
            top_k=_rows(sampling.top_k, batch_row, sampling),
            top_p=_rows(sampling.top_p, batch_row, sampling),
            widest_k=tap.widest_k,
            judged=count,
            draft=draft_probs,
            draft_entropy=tap.draft_entropy,
            draft_deviation=tap.draft_deviation,
        )
        if len(tap.chosen) == len(drafted):
            return scored
        wanted = set(tap.chosen)
        rows = [i for i, owner in enumerate(o for o, n in enumerate(drafted) for _ in range(n)) if owner in wanted]
        return scored.select(_index(rows, device))

    def _last(self, tap: StepTap, metadata: Any, sampling: Any, logits: Tensor, drafted: list[int]) -> Scored:
        assert tap.last_scores is not None
        assert tap.last_tokens is not None
        batch = len(drafted)
        raw, raw_rows = tap.raw_last, None
        if not tap.copy_last:
            raw, raw_rows = logits, None if metadata is None else metadata.bonus_logits_indices
        token = tap.last_tokens.reshape(-1)[:batch]
        out = token
        if tap.output is not None and metadata is not None:
            out = tap.output.gather(1, _index(drafted, logits.device)[:, None])[:, 0]
        k, p = tap.last_top
        scored = Scored(
            scores=tap.last_scores,
            candidate=token,
            token=out,
            raw=raw,
            raw_rows=raw_rows,
            temperature=None if sampling.all_greedy else sampling.temperature,
            top_k=k,
            top_p=p,
            widest_k=tap.widest_k,
        )
        return scored if len(tap.chosen) == batch else scored.select(_index(tap.chosen, logits.device))

    def _copy_stream(self) -> Any:
        if self.device.type == "cuda" and self._stream is None:
            self._stream = torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]
        return self._stream


class _Fetch:
    """The copy to the host, under way."""

    def __init__(self, packed: Tensor, clock: StepClock, proposed_by: StepClock, stream: Any) -> None:
        self._device_matrix = packed  # kept until the copy is done
        self._clocks = (clock, proposed_by)
        self._done: Any = None
        self._matrix = packed
        if stream is not None:
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                self._matrix = packed.to("cpu", non_blocking=True)
                self._done = torch.cuda.Event()  # type: ignore[no-untyped-call]
                self._done.record(stream)

    def __call__(self) -> tuple[Matrix, dict[str, int]]:
        if self._done is not None:
            self._done.synchronize()
        clock, proposed_by = self._clocks
        times = clock.durations({name: PHASES[name] for name in ("score", "accept", "record")})
        times |= proposed_by.durations({"propose": PHASES["propose"]})
        return self._matrix.tolist(), times


def processed(sampling: Any) -> bool:
    """Whether penalties, banned words or other processors change the logits before the temperature does."""
    holder = sampling.thinking_budget_state_holder
    return (
        not sampling.no_penalties
        or sampling.allowed_token_ids_mask is not None
        or bool(sampling.bad_words_token_ids)
        or any(_active(processor) for processor in sampling.logitsprocs.all)
        or (holder is not None and holder.has_tracked_requests())
    )


def _active(processor: Any) -> bool:
    """vLLM always loads its own processors; their state tells whether a request of the batch uses them."""
    for state in ("min_toks", "biases", "min_p_count"):
        if hasattr(processor, state):
            return bool(getattr(processor, state))
    return True


def small_enough(logits: Tensor) -> bool:
    return logits.numel() * 4 <= COPY_LIMIT_BYTES


def _rows(setting: Tensor | None, batch_row: Tensor, sampling: Any) -> Tensor | None:
    return None if setting is None or sampling.all_greedy else setting.index_select(0, batch_row)


def _index(rows: Sequence[int], device: torch.device) -> Tensor:
    host = torch.tensor(rows, dtype=torch.int64, pin_memory=device.type == "cuda")
    return host.to(device, non_blocking=True)
