"""The metrics: pure functions of rounds and of sums over rounds, named as vLLM names them where it has a name.

A rate whose denominator is 0 or was not recorded is None, never a guess. Times go in as nanoseconds and come out in the
unit that the name tells.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from engine.round import Cost, PhaseTimes, Round

PHASES = ("propose", "score", "accept", "rollback", "record", "round")
"""The clocks of a round; `round` is its wall time."""

NS_PER_MS = 1e6
WIDEST = 4096
"""Positions that per-position sums go to; a damaged file may claim billions."""


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over rounds: everything that the rates are made of. Totals of disjoint rounds add up (`+`)."""

    num_rounds: int = 0
    num_draft_tokens: int = 0
    """Candidates proposed."""
    num_judged_draft_tokens: int | None = 0
    """Candidates that the acceptance test looked at; None when some round does not say."""
    num_accepted_draft_tokens: int = 0
    num_output_tokens: int = 0
    proposed_at: tuple[int, ...] = ()
    """Rounds that proposed a candidate at position 1, 2, …"""
    judged_at: tuple[int, ...] = ()
    """Rounds that judged the candidate at position 1, 2, …"""
    accepted_at: tuple[int, ...] = ()
    """Rounds that accepted the candidate at position 1, 2, …"""
    overlap_sums: tuple[float, ...] = ()
    """Sum of the overlap Σ min(p, q) at position 1, 2, …"""
    overlap_counts: tuple[int, ...] = ()
    """How many overlaps are in each of those sums."""
    timed_rounds: int = 0
    """Rounds with a wall time."""
    propose_ns: int | None = None
    score_ns: int | None = None
    accept_ns: int | None = None
    rollback_ns: int | None = None
    record_ns: int | None = None
    round_ns: int | None = None
    target_calls: int | None = None
    """Target forwards of the rounds; prefill apart."""
    draft_calls: int | None = None
    scoring_ns: int | None = None
    """Score time of the rounds that proposed a candidate, for clause C14."""
    scoring_rounds: int = 0
    """How many rounds are in that sum."""

    def __add__(self, other: Totals) -> Totals:
        return Totals(
            num_rounds=self.num_rounds + other.num_rounds,
            num_draft_tokens=self.num_draft_tokens + other.num_draft_tokens,
            num_judged_draft_tokens=(
                None
                if self.num_judged_draft_tokens is None or other.num_judged_draft_tokens is None
                else self.num_judged_draft_tokens + other.num_judged_draft_tokens
            ),
            num_accepted_draft_tokens=self.num_accepted_draft_tokens + other.num_accepted_draft_tokens,
            num_output_tokens=self.num_output_tokens + other.num_output_tokens,
            proposed_at=_add(self.proposed_at, other.proposed_at),
            judged_at=_add(self.judged_at, other.judged_at),
            accepted_at=_add(self.accepted_at, other.accepted_at),
            # NaN alone differs from itself, and is not summed
            overlap_sums=tuple(a + b for a, b in zip_longest(self.overlap_sums, other.overlap_sums, fillvalue=0.0)),
            overlap_counts=_add(self.overlap_counts, other.overlap_counts),
            timed_rounds=self.timed_rounds + other.timed_rounds,
            propose_ns=_plus(self.propose_ns, other.propose_ns),
            score_ns=_plus(self.score_ns, other.score_ns),
            accept_ns=_plus(self.accept_ns, other.accept_ns),
            rollback_ns=_plus(self.rollback_ns, other.rollback_ns),
            record_ns=_plus(self.record_ns, other.record_ns),
            round_ns=_plus(self.round_ns, other.round_ns),
            target_calls=_plus(self.target_calls, other.target_calls),
            draft_calls=_plus(self.draft_calls, other.draft_calls),
            scoring_ns=_plus(self.scoring_ns, other.scoring_ns),
            scoring_rounds=self.scoring_rounds + other.scoring_rounds,
        )


def totals(rounds: Iterable[Round]) -> Totals:
    """The sums over these rounds."""
    total = Totals()
    for r in rounds:
        total = total + _one(r)
    return total


def _one(r: Round) -> Totals:
    t: PhaseTimes = r.times
    overlaps = [p.overlap for p in r.positions[: r.proposed]]
    return Totals(
        num_rounds=1,
        num_draft_tokens=r.proposed,
        num_judged_draft_tokens=r.judged,
        num_accepted_draft_tokens=r.accepted,
        num_output_tokens=r.committed_after - r.committed_before,
        proposed_at=(1,) * min(WIDEST, r.proposed),
        judged_at=(1,) * min(WIDEST, r.judged or 0),
        accepted_at=(1,) * min(WIDEST, r.accepted),
        # NaN alone differs from itself, and is not summed
        overlap_sums=tuple(b if b is not None and b == b else 0.0 for b in overlaps),
        overlap_counts=tuple(int(b is not None and b == b) for b in overlaps),
        timed_rounds=int(t.round_ns is not None),
        propose_ns=t.propose_ns,
        score_ns=t.score_ns,
        accept_ns=t.accept_ns,
        rollback_ns=t.rollback_ns,
        record_ns=t.record_ns,
        round_ns=t.round_ns,
        target_calls=r.target_calls,
        draft_calls=r.draft_calls,
        scoring_ns=scoring_ns(r),
        scoring_rounds=int(scoring_ns(r) is not None),
    )


def draft_acceptance_rate(t: Totals) -> float | None:
    """Accepted ÷ proposed."""
    return _ratio(t.num_accepted_draft_tokens, t.num_draft_tokens)


def judged_acceptance_rate(t: Totals) -> float | None:
    """Accepted ÷ judged: an estimate of α."""
    return _ratio(t.num_accepted_draft_tokens, t.num_judged_draft_tokens)


def mean_acceptance_length(t: Totals) -> float | None:
    """Mean tokens a round, the correction or bonus included: 1 + accepted ÷ rounds."""
    accepted = _ratio(t.num_accepted_draft_tokens, t.num_rounds)
    return None if accepted is None else 1 + accepted


def acceptance_rate_per_position(t: Totals) -> tuple[float, ...]:
    """Rounds whose candidate i was accepted ÷ all rounds, for i = 1, 2, …"""
    return tuple(n / t.num_rounds for n in _padded(t.accepted_at, len(t.proposed_at)))


def conditional_acceptance_per_position(t: Totals) -> tuple[float | None, ...]:
    """Accepted at i ÷ judged at i, for i = 1, 2, …; None where nothing was judged."""
    width = len(t.proposed_at)
    pairs = zip(_padded(t.accepted_at, width), _padded(t.judged_at, width), strict=True)
    return tuple(_ratio(accepted, judged) for accepted, judged in pairs)


def acceptance_histogram(t: Totals) -> tuple[int, ...]:
    """Rounds that accepted exactly k candidates, for k = 0, 1, …"""
    at_least = (t.num_rounds, *_padded(t.accepted_at, len(t.proposed_at)), 0)
    return tuple(at_least[k] - at_least[k + 1] for k in range(len(at_least) - 1))


def overlap_per_position(t: Totals) -> tuple[float | None, ...]:
    """Mean β = Σ min(p, q) at position 1, 2, …: the exact chance that a draw from q is accepted there."""
    return tuple(_ratio(total, n) for total, n in zip(t.overlap_sums, t.overlap_counts, strict=True))


def mean_overlap(t: Totals) -> float | None:
    """β averaged over all scored candidates: α of Leviathan et al. (arXiv 2211.17192), definition 3.1."""
    return _ratio(sum(t.overlap_sums), sum(t.overlap_counts))


def target_calls_per_token(t: Totals) -> float | None:
    """Serial target forwards ÷ output tokens; plain decoding has 1. None where the forwards were not counted."""
    return _ratio(t.target_calls, t.num_output_tokens)


def ms_per_token(t: Totals) -> float | None:
    """Wall ms of the rounds ÷ output tokens, prefill apart; None unless every round has a clock."""
    if t.round_ns is None or t.timed_rounds != t.num_rounds:
        return None
    return _ratio(t.round_ns / NS_PER_MS, t.num_output_tokens)


def tokens_per_second(t: Totals) -> float | None:
    """Output tokens ÷ wall seconds of the rounds, prefill apart."""
    if t.round_ns is None or t.timed_rounds != t.num_rounds:
        return None
    return _ratio(t.num_output_tokens, t.round_ns / 1e9)


def phase_ms(t: Totals, phase: str) -> float | None:
    """Mean ms a round of one of `PHASES`."""
    total: int | None = getattr(t, f"{phase}_ns")
    return None if total is None else _ratio(total / NS_PER_MS, t.timed_rounds or t.num_rounds)


def measured_speedup(t: Totals, baseline_ms_per_token: float | None) -> float | None:
    """Baseline ms per token ÷ speculative ms per token, both measured in this run; None when either is missing."""
    speculative = ms_per_token(t)
    if baseline_ms_per_token is None or speculative is None:
        return None
    return _ratio(baseline_ms_per_token, speculative)


def time_to_first_token_ms(
    target_prefill_ns: int | None, draft_prefill_ns: int | None, first_round_ns: int | None
) -> float | None:
    """Prefill of both models plus the first round; None when a clock is missing. A proposer without a model has no
    prefill, and leaves None in its place, which counts as 0."""
    if target_prefill_ns is None or first_round_ns is None:
        return None
    return (target_prefill_ns + (draft_prefill_ns or 0) + first_round_ns) / NS_PER_MS


def cost_ratio(costs: Iterable[Cost]) -> float | None:
    """c = draft step ÷ target step, both measured in this run on one position."""
    for cost in costs:
        if cost.positions == 1 and cost.draft_ns is not None and cost.target_ns:
            return cost.draft_ns / cost.target_ns
    return None


def scoring_ns(r: Round) -> int | None:
    """The time in which a round scored candidates; None for a round without any: it is a plain step itself."""
    return r.times.score_ns if r.proposed else None


def short_scoring_ratio(total_ns: int | None, rounds: int, baseline_ms_per_token: float | None) -> float | None:
    """Clause C14: the time that scores γ+1 positions ÷ one plain decoding step.

    Args:
        total_ns: sum of `scoring_ns` over the `rounds` that have one.
    """
    if total_ns is None or not rounds or baseline_ms_per_token is None or not math.isfinite(baseline_ms_per_token):
        return None
    return _ratio(total_ns / rounds / NS_PER_MS, baseline_ms_per_token)


def expected_tokens_per_round(alpha: float, gamma: int) -> float:
    """(1 − α^(γ+1)) ÷ (1 − α), Leviathan et al. equation 1. An estimate: it assumes i.i.d. acceptance."""
    return float(gamma + 1) if alpha >= 1 else (1 - alpha ** (gamma + 1)) / (1 - alpha)


def expected_speedup(alpha: float, gamma: int, c: float, score: float = 1.0) -> float:
    """(1 − α^(γ+1)) ÷ ((1 − α)(γc + 1)), Leviathan et al. theorem 3.8. An estimate, as above.

    Args:
        score: the measured time to score γ+1 positions ÷ one target step, in place of the theorem's 1.
    """
    return expected_tokens_per_round(alpha, gamma) / (gamma * c + score)


def percentile(ordered: Sequence[float], share: float) -> float | None:
    """The smallest value that at least `share` of the `ordered` ones do not exceed (nearest rank)."""
    if not ordered:
        return None
    return ordered[nearest_rank(len(ordered), share)]


def nearest_rank(count: int, share: float) -> int:
    """Index of the nearest-rank percentile among `count` ordered values."""
    return min(count - 1, max(0, -int(-(share * count) // 1) - 1))


def _ratio(numerator: float | None, denominator: float | None) -> float | None:
    return None if numerator is None or not denominator else numerator / denominator


def _padded(counts: tuple[int, ...], width: int) -> tuple[int, ...]:
    return counts + (0,) * (width - len(counts))


def _add(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(x + y for x, y in zip_longest(a, b, fillvalue=0))


def _plus(a: int | None, b: int | None) -> int | None:
    return b if a is None else a if b is None else a + b
