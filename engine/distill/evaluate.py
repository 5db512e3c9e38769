"""Step three: how often the target would accept the draft, on prompts that were not trained on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from engine.distill.data import collate
from engine.distill.loss import target_probabilities
from engine.distill.sampler import Sampled


@dataclass(frozen=True)
class Agreement:
    """Draft against target by draft position (first entry: position 1), along the target's own held-out answers."""

    alpha: tuple[float, ...]
    """Mean Σ min(p, q) at temperature 1: the chance that a draw from q is accepted, those before it being accepted."""
    greedy: tuple[float, ...]
    """Share of positions where draft and target have the same most probable token."""
    positions: int

    def expected_length(self, rates: Sequence[float], gamma: int) -> float:
        """Tokens a round when position i is accepted at rates[i] given those before it: 1 + Σ Π."""
        total, chain = 1.0, 1.0
        for rate in rates[:gamma]:
            chain *= rate
            total += chain
        return total

    def __str__(self) -> str:
        def row(values: Sequence[float]) -> str:
            return " ".join(f"{v:.3f}" for v in values)

        lengths = row([self.expected_length(self.alpha, g) for g in range(1, len(self.alpha) + 1)])
        greedy_lengths = row([self.expected_length(self.greedy, g) for g in range(1, len(self.greedy) + 1)])
        return (
            f"α {row(self.alpha)} → tokens a round {lengths}; "
            f"greedy {row(self.greedy)} → {greedy_lengths} ({self.positions} positions)"
        )


def agreement(
    head: nn.Module, target: Any, scored: Tensor, sequences: Sequence[Sampled], steps: int = 5, batch: int = 8
) -> Agreement:
    """Measure a draft (in the target's dtype) at every answer position of `sequences`, `steps` draft steps deep.

    A plain draft looks the same at every depth, since the prefix here is the target's own answer.
    """
    embedding: Tensor = target.get_input_embeddings().weight
    output: Tensor = target.get_output_embeddings().weight
    rows = output[scored]
    overlaps, agreed, count = [0.0] * steps, [0.0] * steps, 0
    with torch.inference_mode():
        for start in range(0, len(sequences), batch):
            data = collate(sequences[start : start + batch])
            learned = data.learned
            states = data.learned_states(rows.shape[1])
            p = target_probabilities(states, data.log_normalizer[learned], rows)
            best = (states @ output.T).argmax(-1)
            count += len(best)
            states_by_step = head(data.before, embedding[data.ids], steps)
            for step, state in enumerate(states_by_step * (steps // len(states_by_step))):
                q = (state[learned] @ rows.T).float().softmax(-1)
                overlaps[step] += float(torch.minimum(p, q).sum())
                agreed[step] += int((scored[q.argmax(-1)] == best).sum())
    return Agreement(tuple(o / count for o in overlaps), tuple(a / count for a in agreed), count)
