"""The facts of a round: measured on the device, moved to the host in one transfer, turned into `Position`s.

Probabilities, ids and counts travel as float32 in one flat tensor: a float32 holds every integer up to 2²⁴ exactly,
far above any vocabulary. What is stored is what the acceptance test compared.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.errors import NumericalError
from engine.judge import Ending, Judged
from engine.proposers import Proposal, Room
from engine.round import Alternatives, Fate, Position
from engine.rows import rank
from engine.rows import top as top_tokens
from engine.sampling import REMOVED


@dataclass(frozen=True, slots=True)
class Shape:
    """What is recorded of one side's distributions, one entry a row."""

    entropies: list[float]
    """Nats."""
    tops: list[Alternatives]


@dataclass(frozen=True, slots=True)
class Facts:
    """One round as the host knows it; lists hold one entry a candidate."""

    accepted: int
    token: int
    """The drawn correction or bonus."""
    token_prob: float
    """Under the distribution it was drawn from."""
    token_target_prob: float
    token_draft_prob: float
    residual_mass: float
    fallback: bool
    candidates: list[int]
    target_probs: list[float]
    draft_probs: list[float]
    uniforms: list[float] | None
    """None at temperature 0."""
    overlaps: list[float]
    ranks: list[float]
    target: Shape
    draft: Shape


def measure(
    judged: Judged, ending: Ending, proposal: Proposal, tests: Tensor, top: int, room: Room, greedy: bool
) -> Tensor:
    """Everything that a round records, packed into one flat float32 tensor on the device.

    Args:
        tests: (k,) float32, the u of the acceptance tests; not looked at at temperature 0.
        room: where the target's rows are, and the proposer's if it put them there.
    """
    k = proposal.tokens.shape[0]
    target_scores, p, best, accepted, candidate_p, candidate_q = judged
    token, weights, mass, fallback = ending
    row = accepted.reshape(1)
    p_token = p.index_select(0, row)[0, token]
    q_token = proposal.q.index_select(0, row.clamp(max=k - 1))[0, token] if k else torch.zeros_like(p_token)
    if greedy:
        drawn, tests = torch.ones_like(p_token), torch.zeros_like(candidate_p)
        overlap = proposal.tokens == best[:k]
    else:
        drawn = weights[0, token] / weights.sum()
        overlap = torch.minimum(p[:k], proposal.q).sum(-1)
    parts = [
        accepted,
        token,
        drawn,
        p_token,
        q_token,
        mass,
        fallback,
        proposal.tokens,
        candidate_p,
        candidate_q,
        tests,
        overlap,
        rank(target_scores[:k], proposal.tokens),
    ]
    if room.holds(proposal):  # both sides' rows are one block, and are measured as one
        parts += _shape_of(room.scores[: 2 * k + 1], room.probabilities[: 2 * k + 1], top)
    elif proposal.scores is not None:
        draft_shape = _shape_of(proposal.scores, proposal.q, top)
        parts += [torch.cat(both) for both in zip(draft_shape, _shape_of(target_scores, p, top), strict=True)]
    else:
        parts += _shape_of(target_scores, p, top)
    # cat promotes ids and flags to float32 by itself, without a kernel each.
    return torch.cat([part.reshape(-1) for part in parts])


def _shape_of(scores: Tensor, probabilities: Tensor, top: int) -> list[Tensor]:
    """Per row: best score, entropy in nats, and the `top` best ids with their probabilities."""
    width = max(1, min(top, scores.shape[-1]))
    values, ids = top_tokens(scores, width)
    best = probabilities.gather(1, ids)
    # Relative to the best score, so that a low temperature's large scores do not cancel.
    entropy = -best[:, 0].log() - torch.linalg.vecdot(probabilities, scores - values[:, :1])
    return [values[:, 0], entropy, ids, best]


class _Reader:
    def __init__(self, values: list[float]) -> None:
        self._values = values
        self._at = 0

    def take(self, count: int) -> list[float]:
        self._at += count
        return self._values[self._at - count : self._at]


def unpack(values: list[float], k: int, top: int, vocab_size: int, greedy: bool, one_hot: bool) -> Facts:
    """Read what `measure` packed for a round of k candidates.

    Raises:
        NumericalError: a model's logits held NaN, or nothing that is above −inf.
    """
    width = max(1, min(top, vocab_size))
    reader = _Reader(values)
    accepted, token, drawn, p_token, q_token, mass, fallback = reader.take(7)
    candidates = [int(candidate) for candidate in reader.take(k)]
    target_probs, draft_probs, uniforms, overlaps, ranks = (reader.take(k) for _ in range(5))
    if one_hot:
        target = _read_shape(reader, 0, k + 1, width, top)
        draft = Shape([0.0] * k, [((candidate, 1.0),) if top else () for candidate in candidates])
    else:
        both = _read_shape(reader, k, k + 1, width, top)
        draft, target = Shape(both.entropies[:k], both.tops[:k]), Shape(both.entropies[k:], both.tops[k:])
    return Facts(
        accepted=int(accepted),
        token=int(token),
        token_prob=drawn,
        token_target_prob=p_token,
        token_draft_prob=q_token,
        residual_mass=mass,
        fallback=bool(fallback),
        candidates=candidates,
        target_probs=target_probs,
        draft_probs=draft_probs,
        uniforms=None if greedy else uniforms,
        overlaps=overlaps,
        ranks=ranks,
        target=target,
        draft=draft,
    )


def _read_shape(reader: _Reader, draft_rows: int, target_rows: int, width: int, top: int) -> Shape:
    """The rows of both sides, the draft's first."""
    rows = draft_rows + target_rows
    best_scores = reader.take(rows)
    entropies = reader.take(rows)
    ids = reader.take(rows * width)
    probabilities = reader.take(rows * width)
    for i, (score, entropy) in enumerate(zip(best_scores, entropies, strict=True)):
        if not REMOVED / 2 < score < math.inf or math.isnan(entropy):
            side, position = ("draft", i + 1) if i < draft_rows else ("target", i + 1 - draft_rows)
            raise NumericalError(
                f"The {side}'s logits at position {position} of the round are no distribution (NaN or infinite); "
                "try another --dtype."
            )
    tops: list[Alternatives] = []
    for i in range(rows):
        row = slice(i * width, i * width + top)
        pairs = [(int(t), p) for t, p in zip(ids[row], probabilities[row], strict=True) if p > 0]
        tops.append(tuple(sorted(pairs, key=lambda pair: (-pair[1], pair[0]))))
    # Rounding may leave the entropy of a point mass a hair below zero.
    return Shape([max(0.0, entropy) for entropy in entropies], tops)


def positions(facts: Facts, kept: int) -> tuple[Position, ...]:
    """The γ+1 positions of a round; `kept` ≤ accepted is where a cut fell.

    A candidate behind the first rejection was never judged: it has no u (clause C5).
    """
    out = []
    for i, candidate in enumerate(facts.candidates):
        if i < facts.accepted:
            fate: Fate = "accepted" if i < kept else "cut"
        else:
            fate = "rejected" if i == facts.accepted else "discarded"
        out.append(
            Position(
                position=i + 1,
                candidate=candidate,
                draft_prob=facts.draft_probs[i],
                target_prob=facts.target_probs[i],
                u=facts.uniforms[i] if facts.uniforms is not None and fate != "discarded" else None,
                fate=fate,
                overlap=facts.overlaps[i],
                draft_entropy=facts.draft.entropies[i],
                target_entropy=facts.target.entropies[i],
                rank=int(facts.ranks[i]),
                draft_top=facts.draft.tops[i],
                target_top=facts.target.tops[i],
            )
        )
    last = len(facts.candidates)
    out.append(Position(last + 1, target_entropy=facts.target.entropies[last], target_top=facts.target.tops[last]))
    return tuple(out)
