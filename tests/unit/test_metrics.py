"""The metrics against hand-counted rounds, vLLM's definitions and the paper's formulas; SQL sums against Python's."""

from __future__ import annotations

import random
import time
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.round import Cost, PhaseTimes, Position, Round
from specview import metrics
from specview.contract import check
from specview.metrics import Totals
from specview.summary import summarize
from specview.trace import distribution
from specview.trace.reader import TraceReader
from specview.trace.writer import TraceWriter
from tests import synthetic


def judged(index: int, proposed: int, accepted: int, ns: int = 1_000_000) -> Round:
    positions = tuple(Position(i, 5, overlap=0.5) for i in range(1, proposed + 1))
    return Round(
        index, 3, proposed, min(proposed, accepted + 1), accepted, 10, 11 + accepted, positions=positions,
        target_calls=1, draft_calls=proposed, times=PhaseTimes(0, ns, 2 * ns, ns, ns, ns, 10 * ns),
    )  # fmt: skip


# three rounds of 3 candidates that accepted 3, 1 and 0; one of 1 that accepted 1; one that proposed nothing
ROUNDS = [judged(0, 3, 3), judged(1, 3, 1), judged(2, 3, 0), judged(3, 1, 1), judged(4, 0, 0)]


def test_counts_and_rates_by_hand() -> None:
    t = metrics.totals(ROUNDS)
    assert (t.num_rounds, t.num_draft_tokens, t.num_judged_draft_tokens) == (5, 10, 7)
    assert (t.num_accepted_draft_tokens, t.num_output_tokens) == (5, 10)
    assert metrics.draft_acceptance_rate(t) == 0.5
    assert metrics.judged_acceptance_rate(t) == pytest.approx(5 / 7)
    assert metrics.mean_acceptance_length(t) == 2.0
    assert metrics.acceptance_rate_per_position(t) == (0.6, 0.2, 0.2)
    assert metrics.conditional_acceptance_per_position(t) == (0.75, 0.5, 1.0)
    assert metrics.acceptance_histogram(t) == (2, 2, 0, 1)
    assert metrics.overlap_per_position(t) == (0.5, 0.5, 0.5)
    assert metrics.mean_overlap(t) == 0.5
    assert metrics.target_calls_per_token(t) == 0.5
    assert metrics.tokens_per_second(t) == pytest.approx(200.0)
    assert metrics.ms_per_token(t) == pytest.approx(5.0)
    assert metrics.phase_ms(t, "score") == pytest.approx(2.0)
    assert metrics.measured_speedup(t, 20.0) == pytest.approx(4.0)


def test_vllm_counts_the_same() -> None:
    """The example of vLLM's documentation: 43 steps of 3, histogram 39, 1, 0, 3."""
    accepted = [0] * 39 + [1] + [3] * 3
    t = metrics.totals(judged(i, 3, k) for i, k in enumerate(accepted))
    assert metrics.acceptance_histogram(t) == (39, 1, 0, 3)
    assert metrics.mean_acceptance_length(t) == pytest.approx(1.2325581395348837)
    assert metrics.draft_acceptance_rate(t) == pytest.approx(0.07751937984496124)
    assert (t.num_rounds, t.num_accepted_draft_tokens, t.num_draft_tokens) == (43, 10, 129)


def test_a_missing_denominator_is_none_and_never_a_guess() -> None:
    empty = Totals()
    for rate in (
        metrics.draft_acceptance_rate, metrics.judged_acceptance_rate, metrics.mean_acceptance_length,
        metrics.mean_overlap, metrics.tokens_per_second, metrics.ms_per_token, metrics.target_calls_per_token,
    ):  # fmt: skip
        assert rate(empty) is None
    t = metrics.totals([*ROUNDS, Round(5, 3, 0, None, 0, 20, 21)])
    assert t.num_judged_draft_tokens is None
    assert metrics.judged_acceptance_rate(t) is None
    assert metrics.tokens_per_second(t) is None, "a round without a clock makes the wall time unknown"
    assert metrics.measured_speedup(metrics.totals(ROUNDS), None) is None
    uncounted = metrics.totals([Round(0, 3, 3, 2, 1, 10, 12)])
    assert metrics.target_calls_per_token(uncounted) is None, "rounds are no count of forwards"


def test_the_papers_formulas() -> None:
    assert metrics.expected_tokens_per_round(0.8, 4) == pytest.approx(3.3616)
    assert metrics.expected_tokens_per_round(1.0, 4) == 5
    assert metrics.expected_tokens_per_round(0.0, 4) == 1
    assert metrics.expected_speedup(0.8, 4, 0.05) == pytest.approx(3.3616 / 1.2)
    assert metrics.expected_speedup(0.8, 4, 0.05, score=1.3) == pytest.approx(3.3616 / 1.5)
    assert metrics.cost_ratio([Cost(5, 900, 90), Cost(1, 200, 20)]) == 0.1
    assert metrics.cost_ratio([Cost(1, None, 20)]) is None
    assert metrics.time_to_first_token_ms(2_000_000, 1_000_000, 500_000) == 3.5
    assert metrics.time_to_first_token_ms(2_000_000, None, 500_000) == 2.5
    assert metrics.time_to_first_token_ms(None, None, 500_000) is None
    assert metrics.short_scoring_ratio(60_000_000, 2, 20.0) == 1.5
    assert metrics.short_scoring_ratio(None, 0, 20.0) is None
    assert metrics.short_scoring_ratio(60_000_000, 2, float("nan")) is None


@given(st.integers(0, 2**32), st.integers(1, 40), st.integers(0, 40))
def test_totals_of_parts_add_up(seed: int, count: int, split: int) -> None:
    rng = random.Random(seed)
    rounds = []
    for i in range(count):
        proposed = rng.randrange(5)
        rounds.append(judged(i, proposed, rng.randrange(proposed + 1), rng.randrange(10**9)))
    assert metrics.totals(rounds[:split]) + metrics.totals(rounds[split:]) == metrics.totals(rounds)
    t = metrics.totals(rounds)
    assert sum(metrics.acceptance_histogram(t)) == t.num_rounds
    assert sum(k * n for k, n in enumerate(metrics.acceptance_histogram(t))) == t.num_accepted_draft_tokens


@given(st.lists(st.integers(0, 10**10), min_size=1, max_size=60), st.sampled_from([0.05, 0.5, 0.95, 1.0]))
def test_percentile_is_the_nearest_rank(values: list[int], share: float) -> None:
    ordered = sorted(values)
    found = metrics.percentile(ordered, share)
    assert found is not None
    needed = Fraction(str(share)) * len(values)
    assert sum(v <= found for v in values) >= needed
    assert sum(v < found for v in values) < needed


def test_sums_and_percentiles_in_sql_are_those_of_python(tmp_path: Path) -> None:
    path = tmp_path / "trace.db"
    made = [list(synthetic.rounds(150, seed=s, pool=50)) for s in (1, 2, 3)]
    with TraceWriter(path) as writer:
        for run, sequences in enumerate((made[:2], made[2:])):
            writer.begin_run(synthetic.run_info(random.Random(run)))
            for index, rounds in enumerate(sequences):
                sequence = writer.begin_sequence(synthetic.prompt(index))
                for r in rounds:
                    writer.add_round(sequence, r)
    with TraceReader(path) as reader:
        for run, rounds, sequence_id, own in ((1, made[0] + made[1], 2, made[1]), (2, made[2], 3, made[2])):
            expected, counted = metrics.totals(rounds), reader.totals(run, overlap=True)
            assert counted.overlap_sums == pytest.approx(expected.overlap_sums)
            assert counted == _with_sums_of(counted, expected)
            assert reader.totals(run, sequence_id).num_output_tokens == metrics.totals(own).num_output_tokens
            summary = summarize(reader, reader.runs()[run - 1])
            times = sorted(r.times.score_ns or 0 for r in rounds)
            spread = summary.clocks["score"]
            assert spread is not None
            assert spread.median == metrics.percentile(times, 0.5)
            assert spread.p95 == metrics.percentile(times, 0.95)
            assert spread.mean == pytest.approx(sum(times) / len(times))


def test_check_and_stats_tell_the_same_short_scoring_ratio(tmp_path: Path) -> None:
    """A round that proposed nothing is a plain step, and no part of it."""
    path = tmp_path / "trace.db"
    with TraceWriter(path) as writer:
        writer.begin_run(synthetic.run_info(random.Random(1)))
        sequence = writer.begin_sequence(synthetic.prompt())
        writer.set_baseline(10.0, 8, (), None)
        for index, (proposed, ms) in enumerate(((3, 20), (0, 10), (3, 40))):
            times = PhaseTimes(score_ns=ms * 1_000_000, round_ns=50_000_000)
            writer.add_round(sequence, Round(index, 3, proposed, None, 0, 12 + index, 13 + index, times=times))
    with TraceReader(path) as reader:
        (run,) = reader.runs()
        assert summarize(reader, run).values()["short_scoring_ratio"] == 3.0
        (note,) = [c.note for c in check(reader)[0].clauses if c.id == "C14"]
        assert "scoring takes 3.00 × a plain step" in str(note)


@pytest.mark.parametrize(("schedule", "known"), [("fixed", True), ("constant", True), (None, True), ("auto", False)])
def test_formulas_for_one_gamma_are_left_out_where_it_changes(
    schedule: str | None, known: bool, tmp_path: Path
) -> None:
    path = tmp_path / "trace.db"
    with TraceWriter(path) as writer:
        writer.begin_run(replace(synthetic.run_info(random.Random(1)), gamma_schedule=schedule))
        writer.add_costs([Cost(1, 100, 10)])
        sequence = writer.begin_sequence(synthetic.prompt())
        for r in synthetic.rounds(20):
            writer.add_round(sequence, r)
    with TraceReader(path) as reader:
        values = summarize(reader, reader.runs()[0]).values()
    assert (values["expected_tokens_per_round"] is not None) == known
    assert (values["expected_speedup"] is not None) == known


def test_a_summary_is_of_one_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A round is committed between any two reads of the summary."""
    path = tmp_path / "trace.db"
    writer = TraceWriter(path)
    writer.begin_run(synthetic.run_info(random.Random(1)))
    sequence = writer.begin_sequence(synthetic.prompt())
    made = synthetic.rounds(200, pool=40)

    def commit(count: int) -> None:
        for _ in range(count):
            index = (r := next(made)).index
            writer.add_round(sequence, r)
        with TraceReader(path) as other:
            while other.round_count(sequence) <= index:
                time.sleep(0.005)

    commit(20)
    scan = distribution._batches

    def scan_and_commit(*arguments: Any) -> Any:
        yield from scan(*arguments)
        commit(20)

    monkeypatch.setattr(distribution, "_batches", scan_and_commit)
    with TraceReader(path) as reader:
        summary = summarize(reader, reader.runs()[0])
        score = summary.clocks["score"]
        assert score is not None
        assert summary.totals.num_rounds == score.count == 20
        assert reader.round_count(sequence) > 20, "the transaction ended with the summary"
    writer.close("finished")


def _with_sums_of(counted: Totals, expected: Totals) -> Totals:
    """The expected totals with the counted float sums, which depend on the order of addition."""
    return replace(expected, overlap_sums=counted.overlap_sums)
