"""How many candidates to ask for: fixed, or the γ that this run's own numbers favour."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Protocol

from engine.round import Cost, Round


class GammaSchedule(Protocol):
    """Decides γ from past rounds only, so that the output's distribution does not depend on it."""

    largest: int

    def gamma(self) -> int:
        """Candidates to ask for in the next round."""

    def learn(self, finished: Round) -> None:
        """Take in a finished round."""


class FixedGamma:
    """Always the same γ."""

    def __init__(self, gamma: int) -> None:
        self.largest = gamma

    def gamma(self) -> int:
        return self.largest

    def learn(self, finished: Round) -> None:
        """A fixed γ learns nothing."""


class AutoGamma:
    """The γ with the most expected tokens per unit of time.

    Expected tokens of a round: (1 − α^(γ+1)) ÷ (1 − α) (Leviathan et al., equation 1), α the running mean of the
    overlaps Σ min(p, q) — of the verdicts, at temperature 0. Its cost in target steps: γ·c plus the measured time of
    scoring γ + 1 positions relative to one, c the running ratio of a draft step to a target step.

    Args:
        start: γ of the first rounds.
        largest: never more than this.
        costs: the run's cost curve; without one, scoring is taken to cost one step.
    """

    MEMORY = 0.9
    """Weight of the past in the running means: about the last ten rounds count."""
    EVERY = 4
    """Rounds between two decisions, so that γ does not flutter."""

    def __init__(self, start: int, largest: int = 8, costs: Sequence[Cost] = ()) -> None:
        self.largest = max(largest, start, 1)
        self._gamma = max(start, 1)
        self._alpha: float | None = None
        self._draft_ratio: float | None = None
        self._score = _curve([(c.positions, c.target_ns) for c in costs if c.target_ns])
        self._step_ns = next((c.target_ns for c in costs if c.positions == 1 and c.target_ns), None)
        self._rounds = 0

    def gamma(self) -> int:
        return self._gamma

    def learn(self, finished: Round) -> None:
        overlaps = [p.overlap for p in finished.positions[: finished.judged] if p.overlap is not None]
        if not overlaps:
            return
        self._alpha = self._mean(self._alpha, sum(overlaps) / len(overlaps))
        times = finished.times
        if times.propose_ns and times.score_ns:
            step = self._step_ns or times.score_ns
            self._draft_ratio = self._mean(self._draft_ratio, times.propose_ns / finished.proposed / step)
        self._rounds += 1
        if self._rounds % self.EVERY == 0 and self._draft_ratio is not None:
            self._gamma = self.best(self._alpha, self._draft_ratio)

    def best(self, alpha: float, draft_ratio: float) -> int:
        """The γ ≥ 1 that maximises expected tokens ÷ cost; γ ≥ 1 always, for a γ of 0 could never learn again."""

        def rate(gamma: int) -> float:
            tokens = gamma + 1 if alpha >= 1 else (1 - alpha ** (gamma + 1)) / (1 - alpha)
            return tokens / (gamma * draft_ratio + self._score(gamma + 1))

        return max(range(1, self.largest + 1), key=rate)

    def _mean(self, past: float | None, new: float) -> float:
        return new if past is None else self.MEMORY * past + (1 - self.MEMORY) * new


class _Curve:
    """Time of scoring n positions relative to one, linear between the measured sizes."""

    def __init__(self, points: list[tuple[int, float]]) -> None:
        self._sizes = [size for size, _ in points]
        self._times = [value for _, value in points]

    def __call__(self, positions: int) -> float:
        if not self._sizes:
            return 1.0
        right = min(max(bisect_left(self._sizes, positions), 1), len(self._sizes) - 1)
        if len(self._sizes) == 1:
            return self._times[0]
        x0, x1 = self._sizes[right - 1], self._sizes[right]
        y0, y1 = self._times[right - 1], self._times[right]
        return y0 + (y1 - y0) * (positions - x0) / (x1 - x0)


def _curve(points: list[tuple[int, int]]) -> _Curve:
    points = sorted(points)
    base = points[0][1] if points and points[0][0] == 1 else None
    return _Curve([(size, value / base) for size, value in points] if base else [])
