"""What became of the candidates, and which token ended the round, as far as `generate` lets it be known."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from engine.round import CorrectionKind, Cut, Fate, Origin
from specview.capturing.observation import Observation
from specview.capturing.passes import Floats
from specview.capturing.settings import Asked


@dataclass(frozen=True, slots=True)
class Context:
    """What holds for every round of a sequence."""

    asked: Asked | None
    """The settings asked for; None where they may not be applied again."""
    greedy: bool
    ensemble_weight: float | None = None
    """transformers' assistant_ensemble_weight w: candidates are judged by w·p + (1 − w)·q."""
    eos: frozenset[int] = frozenset()
    alternatives: int = 5


@dataclass(frozen=True, slots=True)
class Verdict:
    accepted: int
    """Before any cut; where a cut hides the rest (`judged` is None), those that are certain."""
    judged: int | None
    fates: tuple[Fate | None, ...]
    origins: tuple[Origin, ...]
    """Of the committed tokens."""
    cut: Cut | None
    kind: CorrectionKind | None
    """Of the token that ended the round; None when a cut came before it."""


def verdict(seen: Observation, context: Context, proposed: list[int], output: list[int]) -> Verdict:
    """The verdict on the candidates `proposed`, of which `output` was committed.

    A correction never equals the candidate that it replaces, so the last committed token tells whether end-of-text or
    the length limit cut the round inside its accepted candidates. How many more had matched is then known from the
    generation's own count, or from the greedy choice; sampled prompt lookup does not say.
    """
    n, kept = len(proposed), len(output)
    inside = kept <= n and output == proposed[:kept]
    matches: int | None = kept - 1
    cut: Cut | None = None
    if inside:
        cut = "eos" if output[-1] in context.eos else "length"
        matches = seen.matches if seen.matches is not None else _greedy_matches(seen, context, proposed)
        if matches is None and kept == n:
            matches = n
    accepted = kept if matches is None else matches
    fates: list[Fate | None] = ["accepted" if i < kept else "cut" for i in range(accepted)]
    if matches is None:
        fates += [None] * (n - accepted)
    elif accepted < n:
        fates += ["rejected", *["discarded"] * (n - accepted - 1)]  # type: ignore[list-item]
    kind: CorrectionKind | None = None
    if not inside:
        kind = "target" if n == 0 else "bonus" if accepted == n else "correction"
    origins: list[Origin] = ["accepted"] * (kept if kind is None else kept - 1)
    if kind is not None:
        origins.append(kind)
    judged = None if matches is None else accepted + (accepted < n)
    return Verdict(accepted, judged, tuple(fates), tuple(origins), cut, kind)


def _greedy_matches(seen: Observation, context: Context, proposed: list[int]) -> int | None:
    """Greedy decoding keeps its count to itself; the same argmax of the same scores tells it again."""
    if not context.greedy or context.ensemble_weight is not None:
        return None
    chosen = seen.target_scores.argmax(dim=-1).tolist()
    return next((i for i, token in enumerate(proposed) if token != chosen[i]), len(proposed))


@dataclass(frozen=True, slots=True)
class Ending:
    """The token that ended the round, and the distribution that it was drawn from."""

    token: int | None = None
    prob: float | None = None
    target_prob: float | None = None
    draft_prob: float | None = None
    residual_mass: float | None = None
    fallback: bool = False


def ending(
    seen: Observation,
    context: Context,
    found: Verdict,
    token: int,
    p: Floats,
    q: Floats | None,
    *,
    column: int,
    rejected: int | None,
    least: Floats | None,
) -> Ending:
    """Where the correction, bonus or target token came from (clauses C6 and C7).

    Args:
        token: the last one that was committed.
        p, q: (columns,) the two distributions of the position where the round ended.
        column, rejected: the columns of the token, and of the candidate of that position.
        least: (columns,) min(p, q), where there is a q and the settings are not greedy; it is lost.
    """
    if found.kind is None:
        return Ending()
    target_prob = float(p[column])
    if found.kind != "correction":
        return Ending(token, 1.0 if context.greedy else target_prob, target_prob)
    if q is not None:
        draft_prob: float | None = float(q[column])
    elif seen.point_mass:
        draft_prob = 0.0
    else:
        return Ending(token, 1.0 if context.greedy else None, target_prob, None, 1.0 if context.greedy else None)
    if context.greedy:
        # Of two point masses that differ, the residual is the target's, whole.
        return Ending(token, 1.0, target_prob, draft_prob, 1.0)
    if least is not None:
        residual = np.subtract(p, least, out=least)  # = max(0, p − q), to the bit
    else:
        residual = p.copy()
        residual[rejected] = 0.0
    mass = float(residual.sum())
    # Only the ensemble has a fallback; plain assisted generation fails on a residual of zero before it gets here.
    fallback = mass <= torch.finfo(torch.float32).tiny
    prob = target_prob if fallback else float(residual[column]) / mass
    return Ending(token, prob, target_prob, draft_prob, mass, fallback)
