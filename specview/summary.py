"""The summary of a run: every metric of a run by its name, for `stats`, exports and comparisons."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from engine.round import FINAL_STATUSES
from specview import metrics
from specview.metrics import Totals
from specview.plain import PlainComparison, run_against_plain
from specview.trace import encode
from specview.trace.distribution import Percentiles
from specview.trace.reader import TraceReader
from specview.trace.records import RunRecord

ROUNDS_FOR_A_SECOND_READER = 100_000
"""SQLite scans without Python's lock, so two scans in two threads take the time of one."""


FIXED_SCHEDULES = (None, "fixed", "constant")
"""Schedules under which one γ holds for the whole run, so that formulas may use it; transformers says constant."""


@dataclass(frozen=True, slots=True)
class Spread:
    """Mean, median and 95th percentile of a clock over the rounds, in ns."""

    mean: float
    median: int
    p95: int
    count: int


@dataclass(frozen=True, slots=True)
class Summary:
    """Everything that `stats` tells about one run. A metric that the trace has no data for is None."""

    run: RunRecord
    sequences: int
    totals: Totals
    clocks: dict[str, Spread | None]
    """Phase (`metrics.PHASES`) → its spread over the rounds, in ns."""
    time_to_first_token_ms: tuple[float, float, float] | None
    """Mean, median and 95th percentile over the sequences."""
    cost_ratio: float | None
    measured_speedup: float | None
    plain: PlainComparison | None
    """A greedy run against plain greedy decoding: the first sequence that leaves it, or the first compared."""

    @property
    def gamma(self) -> int | None:
        return self.run.info.gamma

    @property
    def prefill_note(self) -> str:
        """What stands beside a speed: transformers gives no clock of the prefill, and round 1 holds it."""
        inside = self.run.info.source == "transformers" and self.time_to_first_token_ms is None
        return "prefill in round 1 included" if inside else "prefill apart"

    def values(self) -> dict[str, Any]:
        """Metric name → value, JSON-ready: numbers, lists of numbers, or None."""
        t, run = self.totals, self.run
        parting = None if self.plain is None else self.plain.parting
        alpha = metrics.mean_overlap(t)
        if alpha is None:
            alpha = metrics.judged_acceptance_rate(t)
        gamma = self.gamma if run.info.gamma_schedule in FIXED_SCHEDULES else None
        return {
            "num_sequences": self.sequences,
            "num_rounds": t.num_rounds,
            "num_draft_tokens": t.num_draft_tokens,
            "num_judged_draft_tokens": t.num_judged_draft_tokens,
            "num_accepted_draft_tokens": t.num_accepted_draft_tokens,
            "num_output_tokens": t.num_output_tokens,
            "target_calls": t.target_calls,
            "draft_calls": t.draft_calls,
            "target_calls_per_token": metrics.target_calls_per_token(t),
            "draft_acceptance_rate": metrics.draft_acceptance_rate(t),
            "judged_acceptance_rate": metrics.judged_acceptance_rate(t),
            "mean_acceptance_length": metrics.mean_acceptance_length(t),
            "overlap": metrics.mean_overlap(t),
            "acceptance_rate_per_position": list(metrics.acceptance_rate_per_position(t)),
            "conditional_acceptance_per_position": list(metrics.conditional_acceptance_per_position(t)),
            "overlap_per_position": list(metrics.overlap_per_position(t)),
            "acceptance_histogram": list(metrics.acceptance_histogram(t)),
            **self._times(),
            "tokens_per_second": metrics.tokens_per_second(t),
            "ms_per_token": metrics.ms_per_token(t),
            "time_to_first_token_ms": _named(self.time_to_first_token_ms),
            "baseline_ms_per_token": run.baseline_ms_per_token,
            "baseline_tokens": run.baseline_tokens,
            "measured_speedup": self.measured_speedup,
            "plain_tokens_compared": None if self.plain is None else self.plain.compared,
            "plain_tokens_agreed": None if self.plain is None else self.plain.agreed,
            "plain_parting_margin": parting.margin if parting is not None else None,
            "cost_ratio": self.cost_ratio,
            "short_scoring_ratio": metrics.short_scoring_ratio(
                t.scoring_ns, t.scoring_rounds, run.baseline_ms_per_token
            ),
            "expected_tokens_per_round": (
                None if alpha is None or gamma is None else metrics.expected_tokens_per_round(alpha, gamma)
            ),
            "expected_speedup": (
                None
                if alpha is None or gamma is None or self.cost_ratio is None
                else metrics.expected_speedup(alpha, gamma, self.cost_ratio)
            ),
        }

    def _times(self) -> dict[str, Any]:
        return {
            f"{phase}_ms": (
                None
                if (spread := self.clocks[phase]) is None
                else _named(tuple(v / metrics.NS_PER_MS for v in (spread.mean, spread.median, spread.p95)))
            )
            for phase in metrics.PHASES
        }


def _named(spread: tuple[float, ...] | None) -> dict[str, float] | None:
    return None if spread is None else dict(zip(("mean", "median", "p95"), spread, strict=True))


def summarize(reader: TraceReader, run: RunRecord) -> Summary:
    """Scan one run and summarise it; memory does not depend on its length.

    Raises:
        TraceError: the trace cannot be read.
    """
    with reader.snapshot():  # several scans, and the trace may grow between them
        totals, clocks = _scan(reader, run)
        return Summary(
            run=run,
            sequences=reader.sequence_count(run.id),
            totals=totals,
            clocks={phase: _spread(getattr(totals, f"{phase}_ns"), clocks[f"{phase}_ns"]) for phase in metrics.PHASES},
            time_to_first_token_ms=_first_token(reader, run),
            cost_ratio=metrics.cost_ratio(reader.costs(run.id)),
            measured_speedup=metrics.measured_speedup(totals, run.baseline_ms_per_token),
            plain=run_against_plain(reader, run),
        )


def _scan(reader: TraceReader, run: RunRecord) -> tuple[Totals, dict[str, Percentiles | None]]:
    """Rounds and positions; side by side where there are many and nobody adds to them."""
    columns = tuple(f"{phase}_ns" for phase in metrics.PHASES)
    if run.status not in FINAL_STATUSES or reader.run_round_count(run.id) < ROUNDS_FOR_A_SECOND_READER:
        return reader.totals(run.id, overlap=True), reader.percentiles(run.id, columns)
    with TraceReader(reader.path) as second, ThreadPoolExecutor(1) as thread:
        totals = thread.submit(second.totals, run.id, overlap=True)
        clocks = reader.percentiles(run.id, columns)
        return totals.result(), clocks


def _spread(total: int | None, found: Percentiles | None) -> Spread | None:
    return None if total is None or found is None else Spread(total / found.count, found.median, found.p95, found.count)


def _first_token(reader: TraceReader, run: RunRecord) -> tuple[float, float, float] | None:
    times = sorted(
        time
        for prefill_target, prefill_draft, first in reader.first_rounds(run.id)
        if (time := metrics.time_to_first_token_ms(prefill_target, prefill_draft, first)) is not None
    )
    if not times:
        return None
    median, p95 = metrics.percentile(times, 0.5), metrics.percentile(times, 0.95)
    assert median is not None
    assert p95 is not None
    return sum(times) / len(times), median, p95


def settings(run: RunRecord) -> dict[str, Any]:
    """Who ran with what, JSON-ready."""
    info = run.info
    s = info.sampling
    return {
        "run_id": run.id,
        "uuid": info.uuid,
        "source": info.source,
        "status": run.status,
        "message": run.message,
        "created": run.created,
        "finished": run.finished,
        "draft": info.draft,
        "target": info.target,
        "proposer": info.proposer,
        "vocab_size": info.vocab_size,
        "device": info.device,
        "device_name": info.device_name,
        "target_dtype": info.target_dtype,
        "draft_dtype": info.draft_dtype,
        "gamma": info.gamma,
        "gamma_schedule": info.gamma_schedule,
        "temperature": None if s is None else s.temperature,
        "top_k": None if s is None else s.top_k,
        "top_p": None if s is None else s.top_p,
        "min_p": None if s is None else s.min_p,
        "repetition_penalty": None if s is None else s.repetition_penalty,
        "frequency_penalty": None if s is None else s.frequency_penalty,
        "presence_penalty": None if s is None else s.presence_penalty,
        "logit_bias": None if s is None else encode.logit_bias(s.logit_bias),
        "stop": list(info.stop),
        "max_new_tokens": info.max_new_tokens,
        "seed": info.seed,
        "chat": info.chat,
        "versions": dict(info.versions),
    }


def document(summary: Summary) -> str:
    """The summary of one run as one JSON object in ASCII; a metric that is no finite number is null."""
    return json.dumps({**settings(summary.run), **finite(summary.values())})


def finite(value: Any) -> Any:
    """The same structure with NaN and infinities, which JSON does not have, as None."""
    if isinstance(value, float):
        return value if value - value == 0 else None
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [finite(item) for item in value]
    return value
