"""For every clause of the contract: a valid trace holds, and a trace in which this clause alone is broken is caught."""

from __future__ import annotations

import random
import shutil
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from engine.round import Position, Round, RunInfo, Sampling
from specview.contract import PER_ROUND, RunReport, check
from specview.contract.report import Context, f32
from specview.trace.reader import TraceReader
from specview.trace.records import SequenceRecord
from specview.trace.writer import TraceWriter
from tests import synthetic

ROUNDS = 80


def checked(path: Path) -> RunReport:
    with TraceReader(path) as reader:
        (report,) = check(reader)
    return report


def broken(report: RunReport) -> set[str]:
    return {clause.id for clause in report.clauses if clause.broken}


def corrupt(path: Path, sql: str) -> None:
    with sqlite3.connect(path) as connection:
        assert connection.execute(sql).rowcount > 0, "the corruption must change something"
    connection.close()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one sampled and one greedy trace, made once."""
    folder = tmp_path_factory.mktemp("traces")
    synthetic.write(folder / "sampled.db", ROUNDS)
    write_greedy(folder / "greedy.db")
    return folder


@pytest.fixture
def trace(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(made / "sampled.db", tmp_path))


@pytest.fixture
def greedy_trace(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(made / "greedy.db", tmp_path))


def write_greedy(path: Path) -> None:
    """A greedy float32 run whose baseline is its own output."""
    rounds = [synthetic.greedy(r) for r in synthetic.rounds(ROUNDS)]
    output = [token for r in rounds for token, _ in r.committed]
    with TraceWriter(path) as writer:
        info = synthetic.run_info(random.Random(1))
        writer.begin_run(replace(info, sampling=Sampling(temperature=0)))
        sequence = writer.begin_sequence(synthetic.prompt())
        writer.set_baseline(20.0, 16, tuple(output[:16]), sequence)
        for r in rounds:
            writer.add_round(sequence, r)
        writer.end_sequence(sequence, "length")


def test_every_clause_holds_on_a_valid_trace(trace: Path) -> None:
    report = checked(trace)
    assert broken(report) == set()
    assert [c.verdict for c in report.clauses] == ["ok"] * 14
    assert report.rounds == ROUNDS


def test_every_clause_holds_on_a_valid_greedy_trace(greedy_trace: Path) -> None:
    report = checked(greedy_trace)
    assert broken(report) == set()
    assert [c.verdict for c in report.clauses] == ["ok"] * 14


# Each corruption changes one round (or one of its positions); the second value finds the round's number.
A_DISCARDED = "SELECT round_id FROM positions WHERE fate = 'discarded' AND round_id > 20 LIMIT 1"
A_REJECTION = "SELECT round_id FROM positions WHERE fate = 'rejected' AND round_id > 20 LIMIT 1"
A_BONUS = "SELECT id FROM rounds WHERE correction_kind = 'bonus' AND id > 20 LIMIT 1"
A_DOUBTFUL = (
    "SELECT round_id FROM positions WHERE fate = 'accepted' AND target_prob < 0.9 * draft_prob AND round_id > 20"
    " LIMIT 1"
)
AN_UNLIKELY = (
    "SELECT round_id FROM positions WHERE fate = 'discarded' AND target_prob < draft_prob AND round_id > 20 LIMIT 1"
)
ANY = "SELECT id FROM rounds WHERE id > 20 AND proposed = 4 LIMIT 1"

CORRUPTIONS = [
    ("C1", A_DISCARDED, "UPDATE positions SET draft_prob = 0 WHERE fate = 'discarded' AND round_id = {round}"),
    ("C1", A_DISCARDED, "UPDATE positions SET draft_prob = 'nan' WHERE fate = 'discarded' AND round_id = {round}"),
    ("C1", A_DISCARDED, "UPDATE positions SET draft_prob = -0.25 WHERE fate = 'discarded' AND round_id = {round}"),
    ("C1", ANY, "UPDATE positions SET draft_deviation = 0.2 WHERE position = 1 AND round_id = {round}"),
    ("C1", ANY, "UPDATE positions SET target_deviation = 'nan' WHERE position = 1 AND round_id = {round}"),
    ("C1", ANY, "UPDATE rounds SET gamma = 3 WHERE id = {round}"),
    ("C2", A_DISCARDED, "UPDATE positions SET target_prob = 1.5 WHERE fate = 'discarded' AND round_id = {round}"),
    ("C2", A_DISCARDED, "UPDATE positions SET target_prob = 'nan' WHERE fate = 'discarded' AND round_id = {round}"),
    ("C2", ANY, "DELETE FROM positions WHERE candidate IS NULL AND round_id = {round}"),
    (
        "C3",
        A_DOUBTFUL,
        "UPDATE positions SET u = 0.9999 WHERE fate = 'accepted' AND target_prob < 0.9 * draft_prob"
        " AND round_id = {round}",
    ),
    ("C3", A_REJECTION, "UPDATE positions SET u = 0 WHERE fate = 'rejected' AND round_id = {round}"),
    ("C3", A_REJECTION, "UPDATE positions SET u = 1 WHERE fate = 'rejected' AND round_id = {round}"),
    (
        "C4",
        AN_UNLIKELY,
        "UPDATE positions SET fate = 'rejected' WHERE fate = 'discarded' AND target_prob < draft_prob"
        " AND round_id = {round}",
    ),
    ("C4", ANY, "UPDATE rounds SET judged = judged + 1 WHERE id = {round}"),
    ("C5", A_DISCARDED, "UPDATE positions SET u = 0.5 WHERE fate = 'discarded' AND round_id = {round}"),
    ("C6", A_REJECTION, "UPDATE rounds SET correction_target_prob = correction_draft_prob WHERE id = {round}"),
    ("C6", A_REJECTION, "UPDATE rounds SET residual_mass = 0 WHERE id = {round}"),
    ("C6", A_REJECTION, "UPDATE rounds SET residual_mass = 'nan' WHERE id = {round}"),
    ("C6", A_REJECTION, "UPDATE rounds SET correction_prob = correction_prob * 0.5 WHERE id = {round}"),
    ("C6", A_REJECTION, "UPDATE rounds SET correction_kind = 'bonus' WHERE id = {round}"),
    ("C7", A_BONUS, "UPDATE rounds SET correction_target_prob = 0 WHERE id = {round}"),
    ("C7", A_BONUS, "UPDATE rounds SET correction_kind = 'correction' WHERE id = {round}"),
    ("C8", A_BONUS, "UPDATE rounds SET cut = 'eos' WHERE id = {round}"),
    ("C9", ANY, "UPDATE rounds SET target_kv_after = target_kv_after + 1 WHERE id = {round}"),
    ("C9", ANY, "UPDATE rounds SET target_kv_written = 1 WHERE id = {round}"),
    ("C10", ANY, "UPDATE rounds SET draft_kv_after = draft_kv_after + 1 WHERE id = {round}"),
    ("C10", ANY, "UPDATE rounds SET draft_kv_after = draft_kv_after - 1 WHERE id = {round}"),
    ("C11", ANY, "UPDATE tokens SET token = 2047 - token WHERE round_id = {round}"),
    ("C11", ANY, "DELETE FROM tokens WHERE origin IN ('correction', 'bonus') AND round_id = {round}"),
    ("C13", ANY, "UPDATE rounds SET target_calls = 2 WHERE id = {round}"),
    ("C14", ANY, "UPDATE rounds SET round_ns = score_ns WHERE id = {round}"),
    ("C14", ANY, "UPDATE rounds SET rollback_ns = -5 WHERE id = {round}"),
]


@pytest.mark.parametrize(("clause", "where", "sql"), CORRUPTIONS)
def test_a_clause_that_is_broken_alone_is_named_alone(trace: Path, clause: str, where: str, sql: str) -> None:
    connection = sqlite3.connect(trace)
    (round_id,) = connection.execute(where).fetchone()
    (index,) = connection.execute("SELECT round_index FROM rounds WHERE id = ?", (round_id,)).fetchone()
    connection.close()
    corrupt(trace, sql.format(round=round_id))
    report = checked(trace)
    assert broken(report) == {clause}
    (found,) = [c for c in report.clauses if c.id == clause]
    assert found.violations[0].round == index
    assert found.violations[0].sequence == 0
    assert found.violations[0].run == 1
    assert found.violations[0].recorded
    assert found.violations[0].expected


GREEDY_CORRUPTIONS = [
    ("C1", "UPDATE positions SET draft_top = '[[1,0.9]]' WHERE round_id = 30 AND position = 1"),
    ("C3", "UPDATE positions SET rank = 3 - rank WHERE round_id = 30 AND position = 1"),
    ("C3", "UPDATE positions SET u = 0.1 WHERE round_id = 30 AND position = 1"),
    (
        "C6",
        "UPDATE positions SET target_top = '[[1,0.9]]' WHERE fate = 'rejected'"
        " AND round_id = (SELECT round_id FROM positions WHERE fate = 'rejected' AND round_id > 20 LIMIT 1)",
    ),
    (
        "C7",
        "UPDATE positions SET target_top = '[[1,0.9]]' WHERE candidate IS NULL"
        " AND round_id = (SELECT id FROM rounds WHERE correction_kind = 'bonus' AND id > 20 LIMIT 1)",
    ),
    ("C12", "UPDATE sequences SET baseline_ids = '[1,2,3]'"),
]


@pytest.mark.parametrize(("clause", "sql"), GREEDY_CORRUPTIONS)
def test_greedy_clauses_are_caught_alone(greedy_trace: Path, clause: str, sql: str) -> None:
    corrupt(greedy_trace, sql)
    assert broken(checked(greedy_trace)) == {clause}


def test_overlaps_that_do_not_predict_the_acceptances_break_the_statistic(trace: Path) -> None:
    corrupt(trace, "UPDATE positions SET overlap = 0.01 WHERE overlap IS NOT NULL")
    report = checked(trace)
    assert broken(report) == {"C12"}
    (lossless,) = [c for c in report.clauses if c.id == "C12"]
    assert "statistic" in (lossless.note or "")


def test_what_was_not_recorded_is_never_ok(trace: Path) -> None:
    with sqlite3.connect(trace) as connection:
        connection.execute("UPDATE positions SET u = NULL, draft_prob = NULL, target_prob = NULL, overlap = NULL")
        connection.execute(
            "UPDATE positions SET draft_deviation = NULL, target_deviation = NULL, target_entropy = NULL,"
            " draft_top = NULL, target_top = NULL"
        )
        connection.execute("UPDATE rounds SET gamma = NULL, target_calls = NULL, start_ns = NULL, round_ns = NULL")
        connection.execute(
            "UPDATE rounds SET propose_ns = NULL, score_ns = NULL, accept_ns = NULL, rollback_ns = NULL,"
            " record_ns = NULL, target_kv_before = NULL, target_kv_written = NULL, target_kv_after = NULL,"
            " draft_kv_after = NULL"
        )
        connection.execute("UPDATE positions SET overlap = NULL, target_entropy = NULL")
    connection.close()
    verdicts = {c.id: c.verdict for c in checked(trace).clauses}
    for clause in ("C1", "C2", "C3", "C9", "C10", "C12", "C13", "C14"):
        assert verdicts[clause] == "not recorded", clause
    assert verdicts["C4"] == "ok"


def test_a_missing_round_is_a_gap(trace: Path) -> None:
    with sqlite3.connect(trace) as connection:
        connection.execute("DELETE FROM positions WHERE round_id = 31")
        connection.execute("DELETE FROM rounds WHERE id = 31")
    connection.close()
    report = checked(trace)
    (gap,) = [c for c in report.clauses if c.id == "C11"]
    assert gap.violations[0].round == 31
    assert report.rounds == ROUNDS - 1


def test_many_violations_are_counted_and_not_kept(trace: Path) -> None:
    corrupt(trace, "UPDATE rounds SET target_calls = 2, target_kv_after = 0, target_kv_written = 0")
    report = checked(trace)
    (caches,) = [c for c in report.clauses if c.id == "C9"]
    assert caches.broken == 2 * ROUNDS
    assert len(caches.violations) == 100


def context(previous: Round | None = None, sampling: Sampling | None = None) -> Context:
    return Context(
        RunInfo("u", sampling=sampling or Sampling()),
        SequenceRecord(1, 1, 0, None, None, 12, None, None, None, (), None),
        previous,
    )


def cut_round() -> Round:
    """γ 3, the first candidate is an end of text; the second was accepted and cut, the third rejected."""
    positions = (
        Position(1, 5, 0.5, 0.9, 0.3, "accepted"),
        Position(2, 6, 0.5, 0.9, 0.3, "cut"),
        Position(3, 7, 0.5, 0.1, 0.9, "rejected"),
        Position(4),
    )
    return Round(
        0, 3, 3, 3, 2, 12, 13, ((5, "accepted"),), positions, cut="eos", target_kv_before=11, target_kv_written=4,
        target_kv_after=12, draft_kv_before=11, draft_kv_written=3, draft_kv_after=12, target_calls=1,
    )  # fmt: skip


def findings(r: Round, **facts: object) -> dict[str, tuple[object, ...]]:
    made = context(**facts)  # type: ignore[arg-type]
    return {id_: out.findings for id_, clause in PER_ROUND.items() if (out := clause(made, r)).findings}


def test_a_round_cut_by_an_end_of_text_holds() -> None:
    assert findings(cut_round()) == {}


def test_a_cut_round_must_roll_back_to_its_cut() -> None:
    assert set(findings(replace(cut_round(), target_kv_after=13))) == {"C9"}
    assert set(findings(replace(cut_round(), draft_kv_after=13))) == {"C10"}


def test_a_cut_round_that_commits_what_it_cut_is_broken() -> None:
    r = replace(cut_round(), committed=((5, "accepted"), (6, "accepted")), committed_after=14)
    assert "C11" not in findings(cut_round())
    assert {"C9"} <= set(findings(r))


def test_what_follows_a_cut_may_be_discarded_unjudged() -> None:
    r = cut_round()
    positions = (*r.positions[:2], replace(r.positions[2], fate="discarded", u=None), r.positions[3])
    assert findings(replace(r, positions=positions, judged=2)) == {}


def test_a_verdict_at_the_edge_is_recomputed_in_float32() -> None:
    p, q = f32(0.1), f32(0.3)
    ratio = f32(p / q)
    assert ratio != p / q, "the case must tell float32 from float64"
    for u, fate in ((ratio, "rejected"), (f32(ratio - 2**-25), "accepted")):
        position = Position(1, 5, q, p, u, fate)  # type: ignore[arg-type]
        r = Round(0, 1, 1, 1, int(fate == "accepted"), 12, 13, positions=(position, Position(2)))
        assert PER_ROUND["C3"](context(), r).findings == ()


def test_a_residual_fallback_may_draw_anything_from_p() -> None:
    r = Round(
        0, 1, 1, 1, 0, 12, 13, ((5, "correction"),), (Position(1, 5, 0.5, 0.5, 0.999, "rejected"), Position(2)), 5,
        "correction", 0.5, 0.5, 0.5, 0.0, residual_fallback=True,
    )  # fmt: skip
    assert PER_ROUND["C6"](context(), r).findings == ()
    assert PER_ROUND["C6"](context(), replace(r, residual_fallback=False)).findings != ()


def test_a_source_without_tokens_breaks_nothing() -> None:
    positions = (Position(1, fate="accepted"), Position(2, fate="rejected"), Position(3, fate="discarded"))
    r = Round(0, 3, 3, 2, 1, 12, 14, positions=positions, correction_kind="correction")
    assert findings(r) == {}


def test_nothing_proposed_is_a_plain_step() -> None:
    r = Round(
        0, 0, 0, 0, 0, 12, 13, ((5, "target"),), (Position(1, target_top=((5, 0.5),)),), 5, "target", 0.5, 0.5,
        target_kv_before=11, target_kv_written=1, target_kv_after=12, target_calls=1,
    )  # fmt: skip
    assert findings(r) == {}
    assert set(findings(replace(r, correction_kind="bonus"))) == {"C7"}
