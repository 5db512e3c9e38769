"""Steps 3 and 4 of a round, accept and correct, as functions of tensors: nothing here looks at the host."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from engine.proposers import Room
from engine.round import Sampling
from engine.rows import best as best_tokens
from engine.sampling import Penalties, draw, scores
from engine.verify import accept, accept_greedy, correction


class Judged(NamedTuple):
    """What the target makes of a round's k candidates."""

    scores: Tensor
    p: Tensor
    """Both (k+1, vocab) float32: the target's scores under the settings, and their softmax."""
    best: Tensor
    """(k+1,) int64: the argmax of each row."""
    accepted: Tensor
    """() int64: length of the longest accepted prefix."""
    candidate_p: Tensor
    candidate_q: Tensor
    """Both (k,) float32: p and q of each candidate."""


class Ending(NamedTuple):
    """The token that ends a round, and what it was drawn from."""

    token: Tensor
    """(1,) int64."""
    weights: Tensor
    """(1, vocab) float32, not normalised; at temperature 0, where nothing is drawn, p."""
    mass: Tensor
    """() float32: the residual's mass; 1 for a bonus."""
    fallback: Tensor
    """() bool: the residual was numerically zero and the weights are p."""


def judge(
    logits: Tensor,
    tokens: Tensor,
    tests: Tensor,
    q: Tensor,
    sampling: Sampling,
    penalties: Penalties | None,
    room: Room,
) -> Judged:
    """Accept the longest prefix of the candidates that passes the test.

    Args:
        logits: (k+1, vocab), the target's at every position of the round; tokens: (k,) int64 candidates.
        tests: (k,) float32, the u of the acceptance tests; q: (k, vocab) float32.
        penalties: the target's k+1 rows; None when no penalty is set.
        room: the target's rows come to stand in it, behind the proposer's.
    """
    k = tokens.shape[0]
    target_scores = scores(logits, sampling, penalties, into=room.scores[k : 2 * k + 1])
    p = torch.softmax(target_scores, dim=-1, out=room.probabilities[k : 2 * k + 1])
    best = best_tokens(target_scores)
    if sampling.greedy:
        return Judged(target_scores, p, best, *accept_greedy(best, p, q, tokens))
    return Judged(target_scores, p, best, *accept(p, q, tokens, tests))


def end(judged: Judged, q: Tensor, uniform: Tensor, greedy: bool) -> Ending:
    """Draw one token more: from the residual, or the bonus from p when everything was accepted. Greedy: the argmax.

    Args:
        q: (k, vocab) float32; uniform: (1,) float64.
    """
    if greedy:
        at = judged.accepted.reshape(1)
        mass = torch.zeros((), device=judged.p.device)
        return Ending(judged.best.index_select(0, at), judged.p.index_select(0, at), mass, mass > 0)
    final = correction(judged.p, q, judged.accepted)
    return Ending(draw(final.weights, uniform), *final)
