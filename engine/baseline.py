"""What the speculative run is compared with: plain decoding with the target, and the time of short scorings (C14)."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from engine.model import Model
from engine.round import Cost, Sampling
from engine.rows import best
from engine.sampling import Penalties, draw, has_penalties, scores, uniform_draws

REPEATS = 3
"""Forwards a size; the median is taken."""


class Forwards(Protocol):
    """What can be timed: a `Model`, or a proposer with a network of its own."""

    vocab_size: int
    embedding_rows: int
    context_length: int | None

    @property
    def device(self) -> torch.device: ...

    @property
    def output_device(self) -> torch.device: ...

    def forward(self, ids: Tensor, keep: int) -> Tensor: ...

    def length(self) -> int: ...

    def roll_back(self, length: int) -> None: ...


@dataclass(frozen=True, slots=True)
class Baseline:
    """Plain decoding of the same prompt on the same cache, without drafts and without records."""

    ms_per_token: float
    """Median step."""
    ids: tuple[int, ...]


def synchronise(device: torch.device) -> None:
    """Wait for an accelerator's queue; nothing to wait for on the CPU."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()


@torch.inference_mode()
def plain_decode(
    target: Model, ids: Tensor, tokens: int, sampling: Sampling, eos: frozenset[int], generator: torch.Generator
) -> Baseline:
    """Decode up to `tokens` tokens one by one, and roll back to where the cache was.

    Args:
        ids: (t,) int64, of which the cache holds all but the last.
    """
    start = target.length()
    penalties = None
    if has_penalties(sampling):
        penalties = Penalties.of_prompt(ids.to(target.output_device), target.vocab_size)
    feed = ids[-1:]
    out: list[int] = []
    steps: list[int] = []
    for _ in range(tokens):
        begin = time.perf_counter_ns()
        row = scores(target.forward(feed, 1), sampling, penalties)
        if sampling.greedy:
            feed = best(row)
        else:
            feed = draw(torch.softmax(row, dim=-1).to(generator.device), uniform_draws(1, generator))
        token = int(feed)  # the step's only synchronisation, as in the speculative loop
        steps.append(time.perf_counter_ns() - begin)
        out.append(token)
        if penalties is not None:
            penalties.extend(feed.to(target.output_device))
        feed = feed.to(target.device)
        if token in eos or _at_context_end(target):
            break
    target.roll_back(start)
    # The first step warms kernels and buffers up; it speaks for nothing but itself.
    return Baseline(statistics.median(steps[1:] or steps) / 1e6, tuple(out))


def _at_context_end(target: Model) -> bool:
    return target.context_length is not None and target.length() + 1 >= target.context_length


@torch.inference_mode()
def cost_curve(target: Model, draft: Forwards | None, sizes: Sequence[int]) -> tuple[Cost, ...]:
    """Median time of one forward over n positions behind what the caches hold, for each n of `sizes` that fits."""
    context = target.length()
    curve = []
    for size in sizes:
        if not all(_has_room(model, size) for model in (target, draft) if model is not None):
            break
        curve.append(
            Cost(
                positions=size,
                target_ns=_median_forward(target, size),
                draft_ns=None if draft is None else _median_forward(draft, size),
                context=context,
            )
        )
    return tuple(curve)


def _has_room(model: Forwards, size: int) -> bool:
    return model.context_length is None or model.length() + size <= model.context_length


def _median_forward(model: Forwards, size: int) -> int:
    start = model.length()
    ids = torch.arange(size, device=model.device) % min(model.embedding_rows, model.vocab_size)

    def forward() -> None:
        model.forward(ids, size)

    timed = []
    for _ in range(REPEATS + 1):
        timed.append(_timed(forward, model.device))
        model.roll_back(start)
    return int(statistics.median(timed[1:]))


def _timed(call: Callable[[], None], device: torch.device) -> int:
    synchronise(device)
    begin = time.perf_counter_ns()
    call()
    synchronise(device)
    return time.perf_counter_ns() - begin
