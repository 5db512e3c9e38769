"""Step two: fit a draft to the target's distribution; a head is unrolled over several draft steps."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from engine.distill.data import Batch, epochs
from engine.distill.loss import DistributionLoss, target_probabilities
from engine.distill.sampler import Sampled
from engine.head.cache import HeadConfig
from engine.head.network import DraftHead


@dataclass(frozen=True)
class TrainSettings:
    """How to train."""

    steps: int = 1500
    """Optimizer steps."""
    batch_tokens: int = 2048
    unroll: int = 3
    """Draft steps trained; step s (from 0) weighs `decay` to the s."""
    unroll_every: int = 4
    """Only every so many batches are unrolled, the others train the first step: most of it carries over to the later
    ones, at a third of the cost."""
    decay: float = 0.8
    overlap_weight: float = 1.0
    """λ of the loss; it is phased in over the first half."""
    learning_rate: float = 2e-3
    optimizer: str = "muon"
    """muon (matrices; AdamW for the norms) or adamw."""
    warmup: int = 20
    seed: int = 1
    checkpoint_every: int = 10


def train(
    head: nn.Module,
    target: Any,
    scored: Tensor,
    sequences: Sequence[Sampled],
    settings: TrainSettings,
    checkpoint: Path | None,
    report: Callable[[str], None],
    pause: Callable[[], None] = lambda: None,
) -> None:
    """Train `head` (float32 weights) in place; the forward runs in the target's dtype.

    With a `checkpoint` file a killed run goes on where it last saved, with the same batches.
    """
    embedding: Tensor = target.get_input_embeddings().weight.detach()
    rows = target.get_output_embeddings().weight.detach()[scored].contiguous()
    optimizers = _optimizers(head, settings)
    first = 0
    if checkpoint is not None and checkpoint.exists():
        saved = torch.load(checkpoint, weights_only=True)
        if saved["made_with"] == _made_with(settings, sequences):
            head.load_state_dict(saved["head"])
            for optimizer, state in zip(optimizers, saved["optimizers"], strict=True):
                optimizer.load_state_dict(state)
            first = saved["step"]
            report(f"training: going on at step {first}")
    started, window = time.monotonic(), _Window(settings.unroll)
    batches = epochs(sequences, settings.batch_tokens, settings.seed, skip=first)
    for step, batch in zip(range(first, settings.steps), batches, strict=False):
        pause()
        factor = _schedule(step, settings)
        phase_in = min(1.0, 2 * step / settings.steps)
        weights = {name: value.to(embedding.dtype) for name, value in head.named_parameters() if value.requires_grad}
        loss, overlaps, learned = unrolled_loss(
            head,
            weights,
            batch,
            embedding,
            rows,
            settings,
            settings.overlap_weight * phase_in,
            settings.unroll if step % settings.unroll_every == 0 else 1,
        )
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(head.parameters(), 1.0)
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                group["lr"] = group["peak"] * factor
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        window.add(overlaps, learned, batch.ids.numel())
        if (step + 1) % settings.checkpoint_every == 0 or step + 1 == settings.steps:
            rate = window.seen / (time.monotonic() - started)
            report(f"training: step {step + 1} of {settings.steps}, α {window.take()}, {rate:.0f} tokens/s")
            if checkpoint is not None:
                _save(checkpoint, head, optimizers, step + 1, _made_with(settings, sequences))


def unrolled_loss(
    head: nn.Module,
    weights: dict[str, Tensor],
    batch: Batch,
    embedding: Tensor,
    rows: Tensor,
    settings: TrainSettings,
    overlap_weight: float,
    unroll: int,
) -> tuple[Tensor, list[float], int]:
    """Mean loss over learned positions and steps, each step's summed overlap, and the number of positions."""
    learned = batch.learned
    p = target_probabilities(batch.learned_states(rows.shape[1]), batch.log_normalizer[learned], rows)
    states = functional_call(head, weights, (batch.before, embedding[batch.ids], unroll))
    total = torch.zeros(())
    overlaps = []
    for step, state in enumerate(states):
        loss, overlap = DistributionLoss.apply(  # type: ignore[no-untyped-call]
            state[learned] @ rows.T, p, overlap_weight
        )
        total = total + settings.decay**step * loss
        overlaps.append(float(overlap))
    count = int(learned.sum())
    return total / (count * sum(settings.decay**s for s in range(len(states)))), overlaps, count


class _Window:
    """Mean overlap by draft step since it was last taken."""

    def __init__(self, steps: int) -> None:
        self.sums, self.counts, self.seen = [0.0] * steps, [0] * steps, 0

    def add(self, overlaps: Sequence[float], count: int, tokens: int) -> None:
        for step, overlap in enumerate(overlaps):
            self.sums[step] += overlap
            self.counts[step] += count
        self.seen += tokens

    def take(self) -> str:
        text = " ".join(f"{s / max(n, 1):.3f}" for s, n in zip(self.sums, self.counts, strict=True))
        self.sums, self.counts = [0.0] * len(self.sums), [0] * len(self.sums)
        return text


def _optimizers(head: nn.Module, settings: TrainSettings) -> list[torch.optim.Optimizer]:
    matrices = [p for p in head.parameters() if p.ndim == 2 and p.requires_grad]
    others = [p for p in head.parameters() if p.ndim != 2 and p.requires_grad]
    rate = settings.learning_rate
    found: list[torch.optim.Optimizer]
    if settings.optimizer == "muon":
        found = [
            torch.optim.Muon(matrices, lr=rate, weight_decay=0.01, adjust_lr_fn="match_rms_adamw"),
            torch.optim.AdamW(others, lr=rate, weight_decay=0.0, betas=(0.9, 0.95)),
        ]
    else:
        found = [torch.optim.AdamW([*matrices, *others], lr=rate, weight_decay=0.01, betas=(0.9, 0.95))]
    for optimizer in found:
        for group in optimizer.param_groups:
            group["peak"] = group["lr"]
    return found


def _schedule(step: int, settings: TrainSettings) -> float:
    """Linear warm-up, then half a cosine down to 2 % of the peak."""
    if step < settings.warmup:
        return (step + 1) / settings.warmup
    progress = (step - settings.warmup) / max(settings.steps - settings.warmup, 1)
    return 0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * progress))


def _made_with(settings: TrainSettings, sequences: Sequence[Sampled]) -> dict[str, Any]:
    """What a checkpoint must have in common with a run that goes on from it."""
    return {**asdict(settings), "sequences": len(sequences), "tokens": sum(len(s.ids) for s in sequences)}


def _save(
    path: Path, head: nn.Module, optimizers: Sequence[torch.optim.Optimizer], step: int, made_with: dict[str, Any]
) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    state = {
        "head": head.state_dict(),
        "optimizers": [o.state_dict() for o in optimizers],
        "step": step,
        "made_with": made_with,
    }
    torch.save(state, partial)
    partial.replace(path)


def new_head(config: HeadConfig, seed: int) -> DraftHead:
    """A head in float32, its weights drawn from `seed`."""
    torch.manual_seed(seed)
    return DraftHead(config).float()
