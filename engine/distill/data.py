"""Padded batches of sampled sequences: ids, features, and the target's own distribution to learn from.

The target's distribution over the trimmed vocabulary needs no storage: it is the stored final state times the rows of
the output matrix, less the stored log normalizer. That is exact over the whole trimmed vocabulary.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from engine.distill.sampler import Sampled


@dataclass(frozen=True)
class Batch:
    """`n` is the longest sequence of the batch, less its last token."""

    ids: Tensor
    """(batch, n) tokens read."""
    states: Tensor
    """(batch, n, feature size) the target's states after reading them, the final one last."""
    log_normalizer: Tensor
    """(batch, n); NaN where nothing is learned: the prompt and the padding."""

    @property
    def learned(self) -> Tensor:
        """(batch, n) bool: the positions whose next token the target drew."""
        return ~self.log_normalizer.isnan()

    def learned_states(self, width: int) -> Tensor:
        """(learned positions, width) the target's final states there."""
        return self.states[..., -width:][self.learned]

    @property
    def before(self) -> Tensor:
        """The states after the token before: zeros at the first position."""
        return torch.nn.functional.pad(self.states[:, :-1], (0, 0, 1, 0))


def collate(sequences: Sequence[Sampled]) -> Batch:
    """Pad on the right; attention is causal, so padding changes nothing before it."""
    length = max(len(s.ids) for s in sequences) - 1
    ids = torch.zeros(len(sequences), length, dtype=torch.long)
    states = sequences[0].states.new_zeros(len(sequences), length, sequences[0].states.shape[1])
    log_normalizer = torch.full((len(sequences), length), torch.nan)
    for row, sequence in enumerate(sequences):
        n = len(sequence.ids) - 1
        ids[row, :n] = sequence.ids[:-1]
        states[row, :n] = sequence.states
        log_normalizer[row, :n] = sequence.log_normalizer
    return Batch(ids, states, log_normalizer)


def epochs(sequences: Sequence[Sampled], batch_tokens: int, seed: int, skip: int = 0) -> Iterator[Batch]:
    """Batches of about `batch_tokens` tokens for ever, each epoch in its own order; `skip` of them are passed over."""
    epoch = 0
    while True:
        rng = random.Random(seed * 7919 + epoch)
        # Similar lengths together, so that little of a batch is padding; the jitter mixes neighbours anew each epoch.
        order = sorted(range(len(sequences)), key=lambda i: len(sequences[i].ids) + rng.uniform(0, 24))
        groups: list[list[int]] = [[]]
        longest = 0
        for index in order:
            longest = max(longest, len(sequences[index].ids))
            if groups[-1] and longest * (len(groups[-1]) + 1) > batch_tokens:
                groups.append([])
                longest = len(sequences[index].ids)
            groups[-1].append(index)
        rng.shuffle(groups)
        for group in groups:
            if skip:
                skip -= 1
                continue
            yield collate([sequences[i] for i in group])
        epoch += 1


def frequent_tokens(
    target: Any, sequences: Sequence[Sampled], count: int, positions: int = 16384
) -> tuple[Tensor, float]:
    """The `count` most probable tokens under the target, by ascending id, and the share of probability that they hold.

    Measured over `positions` answer positions spread over the sequences; every token that was drawn counts as well.
    """
    output: Tensor = target.get_output_embeddings().weight
    known = [(s.states[:, -output.shape[1] :], s.log_normalizer) for s in sequences]
    states = torch.cat([state[~norm.isnan()] for state, norm in known])
    norms = torch.cat([norm[~norm.isnan()] for _, norm in known])
    chosen = torch.linspace(0, len(states) - 1, min(positions, len(states))).long()
    mass = torch.zeros(output.shape[0])
    with torch.inference_mode():
        for part in torch.split(chosen, 512):
            mass += ((states[part].to(output.dtype) @ output.T).float() - norms[part, None]).exp().sum(0)
    drawn = torch.cat([s.ids[s.prompt_length :] for s in sequences]).bincount(minlength=output.shape[0])
    mass = mass / mass.sum()
    ranking = 0.5 * mass + 0.5 * drawn / drawn.sum()
    best = ranking.topk(min(count, len(ranking))).indices.sort().values
    return best, float(mass[best].sum())
