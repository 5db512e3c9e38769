"""What the statistics screen shows, gathered in a thread; bounded work whatever the length of the run."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from engine.round import Cost
from specview import metrics
from specview.summary import Summary, summarize
from specview.trace.reader import TraceReader
from specview.trace.records import RunRecord

BINS = 60
"""Columns of the charts along the run."""
SAMPLE = 256
"""Rounds of a bin whose overlaps are read; a longer bin is represented by its first ones."""


@dataclass(frozen=True, slots=True)
class Bin:
    """A stretch of rounds."""

    first: int
    last: int
    value: float | None


@dataclass(frozen=True, slots=True)
class WhatIf:
    """Expected speed-up at one γ. An estimate: it assumes that acceptances are independent and alike."""

    gamma: int
    by_theorem: float
    """Theorem 3.8 of Leviathan et al., where scoring γ+1 positions costs one target step."""
    by_cost_curve: float | None
    """The same with the measured time to score γ+1 positions; None where the curve was not measured."""


@dataclass(frozen=True, slots=True)
class Statistics:
    """One run, and along one of its sequences."""

    summary: Summary
    costs: tuple[Cost, ...]
    overlap: tuple[Bin, ...]
    ms_per_token: tuple[Bin, ...]
    sampled: bool
    """The overlap chart looks at a part of the rounds only."""

    @property
    def alpha(self) -> float | None:
        """Mean overlap where it is recorded, else accepted ÷ judged."""
        overlap = metrics.mean_overlap(self.summary.totals)
        return overlap if overlap is not None else metrics.judged_acceptance_rate(self.summary.totals)

    def what_if(self, most: int = 12) -> tuple[WhatIf, ...]:
        """The expected speed-up for γ = 1 … `most`; empty where α or c is unknown."""
        alpha, c = self.alpha, self.summary.cost_ratio
        if alpha is None or c is None:
            return ()
        return tuple(
            WhatIf(
                gamma,
                metrics.expected_speedup(alpha, gamma, c),
                metrics.expected_speedup(alpha, gamma, c, score) if (score := self._score(gamma + 1)) else None,
            )
            for gamma in range(1, most + 1)
        )

    def _score(self, positions: int) -> float | None:
        """Time to score so many positions ÷ one target step, between the measured sizes on a straight line."""
        known = [(cost.positions, cost.target_ns) for cost in self.costs if cost.target_ns]
        if not known or known[0][0] != 1 or positions > known[-1][0]:
            return None
        step = known[0][1]
        for (low, low_ns), (high, high_ns) in pairwise(known):
            if low <= positions <= high:
                share = (positions - low) / (high - low)
                return (low_ns + share * (high_ns - low_ns)) / step
        return 1.0


def best(estimates: tuple[WhatIf, ...]) -> WhatIf | None:
    """The γ with the highest expected speed-up, by the cost curve where there is one."""
    return max(estimates, key=lambda w: w.by_cost_curve or w.by_theorem, default=None)


def gather(reader: TraceReader, run: RunRecord, sequence_id: int) -> Statistics:
    """Read everything that the screen shows.

    Raises:
        TraceError: the trace cannot be read.
    """
    count = reader.round_count(sequence_id)
    edges = _edges(count)
    return Statistics(
        summary=summarize(reader, run),
        costs=tuple(reader.costs(run.id)),
        overlap=tuple(_overlap(reader, sequence_id, first, last) for first, last in edges),
        ms_per_token=tuple(_pace(reader, sequence_id, first, last) for first, last in edges),
        sampled=any(last - first + 1 > SAMPLE for first, last in edges),
    )


def _edges(count: int) -> list[tuple[int, int]]:
    bins = min(BINS, count)
    return [(i * count // bins, (i + 1) * count // bins - 1) for i in range(bins)]


def _overlap(reader: TraceReader, sequence_id: int, first: int, last: int) -> Bin:
    row = reader.connection.execute(
        "SELECT avg(p.overlap) FROM rounds r JOIN positions p ON p.round_id = r.id"
        " WHERE r.sequence_id = ? AND r.round_index BETWEEN ? AND ? AND p.overlap IS NOT NULL",
        (sequence_id, first, min(last, first + SAMPLE - 1)),
    ).fetchone()
    return Bin(first, last, row[0])


def _pace(reader: TraceReader, sequence_id: int, first: int, last: int) -> Bin:
    ns, tokens, timed, rounds = reader.connection.execute(
        "SELECT sum(round_ns), sum(committed_after - committed_before), count(round_ns), count(*) FROM rounds"
        " WHERE sequence_id = ? AND round_index BETWEEN ? AND ?",
        (sequence_id, first, last),
    ).fetchone()
    return Bin(first, last, ns / 1e6 / tokens if tokens and timed == rounds else None)
