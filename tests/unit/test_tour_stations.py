"""The tour tells the truth about whatever trace it is given: every answer and figure is checked against plain SQL."""

import sqlite3
from pathlib import Path

import pytest

from engine.round import Cost
from specview.errors import TraceError
from specview.tour.catalogue import LANGUAGES, Catalogue
from specview.tour.costs import awaited, measured, recorded
from specview.tour.exhibits import Bars, Histogram, Mask
from specview.tour.questions import Attempt, Choice, Estimate, Marks, Prefix, right_attempt
from specview.tour.station import ORDER, Station, feedback
from specview.tour.stations import stations
from specview.tour.survey import survey
from specview.tour.words import plain
from tests import synthetic, tour_traces
from tests.tour_traces import MIXED, Told

LESSON = Path(__file__).parents[2] / "traces" / "lesson.db"
KINDS = ("lesson", "mixed", "greedy", "other", "synthetic")
OTHER = (
    Told((11, 12, 13), 1, 14),
    Told((15, 16, 17), 2, 4),
    Told((5, 6, 7), 3, 8),
    Told((9, 10, 11), 0, 12),
)
"""Another pair with another γ, and no discarded candidate that equals the next token."""


@pytest.fixture(scope="module")
def traces(tmp_path_factory):
    folder = tmp_path_factory.mktemp("traces")
    synthetic.write(folder / "synthetic.db", 40, seed=7, gamma=3)
    return {
        "lesson": LESSON,
        "mixed": tour_traces.write(folder / "mixed.db"),
        "greedy": tour_traces.write(folder / "greedy.db", greedy=True),
        "other": tour_traces.write(folder / "other.db", OTHER),
        "synthetic": folder / "synthetic.db",
    }


def built(path: Path) -> dict[str, Station]:
    found = survey(path)
    return {s.key: s for s in stations(found, recorded(found))}


class Sql:
    """Plain questions to the file, past all of our code."""

    def __init__(self, path: Path) -> None:
        self.connection = sqlite3.connect(f"{path.as_uri()}?mode=ro&immutable=1", uri=True)
        (self.run,) = self.connection.execute("SELECT min(run_id) FROM sequences").fetchone()

    def value(self, sql: str, *values: object) -> object:
        return self.connection.execute(sql, values).fetchone()[0]

    def of_run(self, expression: str) -> object:
        return self.value(
            f"SELECT {expression} FROM rounds r JOIN sequences s ON s.id = r.sequence_id WHERE s.run_id = ?", self.run
        )

    def round_id(self, station: Station) -> object:
        place = station.place
        assert place is not None
        return self.value(
            "SELECT r.id FROM rounds r JOIN sequences s ON s.id = r.sequence_id"
            " WHERE s.run_id = ? AND s.sequence_index = ? AND r.round_index = ?",
            self.run,
            place.sequence,
            place.round,
        )

    def of_round(self, station: Station, expression: str) -> object:
        return self.value(f"SELECT {expression} FROM rounds WHERE id = ?", self.round_id(station))

    def position(self, station: Station, where: str) -> tuple[object, ...]:
        return self.connection.execute(
            f"SELECT position, candidate, target_prob, draft_prob FROM positions WHERE round_id = ? AND {where}"
            " ORDER BY position",
            (self.round_id(station),),
        ).fetchone()


def chosen(station: Station) -> str:
    """The right option, as it reads in English."""
    question = station.question
    assert isinstance(question, Choice)
    option = question.options[question.right]
    return plain(option.label or Catalogue("en").of(station, f"opt.{option.key}", option.values))


@pytest.fixture(params=KINDS)
def trace(request, traces):
    return traces[request.param]


def test_the_run_s_figures_are_those_of_the_trace(trace):
    sql, tour = Sql(trace), built(trace)
    calls, tokens = sql.of_run("sum(target_calls)"), sql.of_run("sum(committed_after - committed_before)")
    assert chosen(tour["chain"]).startswith(f"{calls:,}:")
    said = plain(Catalogue("en").of(tour["chain"], "yes"))
    assert said.startswith(f"{calls:,} calls for {tokens:,} tokens")
    positions = sql.value(
        "SELECT count(*) FROM positions p JOIN rounds r ON r.id = p.round_id JOIN sequences s ON s.id = r.sequence_id"
        " WHERE s.run_id = ?",
        sql.run,
    )
    assert tour["flops"].values["positions"].text == f"{positions:,}"
    assert tour["flops"].question.options[tour["flops"].question.right].key == (
        "more" if positions > tokens else "same"
    )


def test_the_histogram_counts_the_rounds_of_the_run(trace):
    sql, station = Sql(trace), built(trace)["progress"]
    assert isinstance(station.exhibit, Histogram)
    for tokens, rounds in station.exhibit.counts:
        assert rounds == sql.of_run(f"coalesce(sum(accepted + 1 = {tokens}), 0)")
    (gamma,) = {sql.of_run("max(proposed)")}
    assert isinstance(station.question, Marks)
    assert station.question.right == frozenset(range(1, gamma + 2))


def test_propose_and_score_count_the_forwards_of_their_round(trace):
    sql, tour = Sql(trace), built(trace)
    assert chosen(tour["propose"]).startswith(f"{sql.of_round(tour['propose'], 'draft_calls')}:")
    assert chosen(tour["score"]).startswith(f"{sql.of_round(tour['score'], 'target_calls')}:")


def test_the_accepted_prefix_is_the_recorded_one(trace):
    sql, station = Sql(trace), built(trace)["accept"]
    assert isinstance(station.question, Prefix)
    assert station.question.right == sql.of_round(station, "accepted")


def test_the_correction_is_the_recorded_token(trace):
    sql, station = Sql(trace), built(trace)["correct"]
    token = sql.of_round(station, "correction_token")
    name = survey(trace).name(token)
    assert chosen(station).startswith(name)
    others = [o for i, o in enumerate(station.question.options) if i != station.question.right]
    tops = sql.position(station, "fate = 'rejected'")
    assert [o.key for o in others].count("refused") == 1
    assert any(plain(o.label).startswith(survey(trace).name(tops[1])) for o in others)


def test_a_token_that_the_residual_could_give_is_never_called_impossible(trace):
    station = built(trace)["correct"]
    for case in survey(trace).cases if not station.missing else ():
        if case.place != station.place:
            continue
        refused = next(p for p in case.round.positions if p.fate == "rejected")
        p = dict(refused.target_top) | {refused.candidate: refused.target_prob}
        q = dict(refused.draft_top) | {refused.candidate: refused.draft_prob}
        for option in station.question.options:
            if option.key != "new":
                token = next(t for t in q if survey(trace).name(t) == option.values["item"].text)
                assert p.get(token, min(p.values())) <= q[token]


def test_stop_shows_a_candidate_behind_the_rejected_one(trace):
    sql, station = Sql(trace), built(trace)["stop"]
    refused = sql.position(station, "fate = 'rejected'")
    behind = sql.position(station, "fate = 'discarded'")
    assert behind[0] == refused[0] + 1
    assert station.values["refused"].text == survey(trace).name(refused[1])
    assert station.values["heir"].text == survey(trace).name(behind[1])


@pytest.mark.parametrize("kind", ["lesson", "mixed", "greedy"])
def test_same_shows_a_discarded_candidate_that_the_next_round_commits(traces, kind):
    sql, station = Sql(traces[kind]), built(traces[kind])["same"]
    discarded = sql.position(station, "fate = 'discarded'")
    following = sql.value(
        "SELECT t.token FROM tokens t JOIN rounds r ON r.sequence_id = t.sequence_id"
        " WHERE r.id = ? AND t.position = r.committed_after",
        sql.round_id(station),
    )
    assert discarded[1] == following
    assert sql.position(station, "fate = 'rejected'")[0] + 1 == discarded[0]


def test_without_such_a_round_the_station_asks_nothing(traces):
    assert built(traces["other"])["same"].missing


def test_another_trace_can_lend_that_round(traces):
    found, lent = survey(traces["other"]), survey(traces["mixed"])
    station = next(s for s in stations(found, recorded(found), lent) if s.key == "same")
    assert station.place is not None
    assert station.place.path == traces["mixed"]


@pytest.mark.parametrize("key", ["kv_rejected", "kv_full"])
def test_the_slots_are_those_that_the_cache_held(trace, key):
    sql, station = Sql(trace), built(trace)[key]
    kept = sql.of_round(station, "target_kv_after - target_kv_before")
    assert isinstance(station.question, Marks)
    assert station.question.right == frozenset(range(kept))
    assert len(station.question.options) == sql.of_round(station, "target_kv_written + 1")
    assert station.values["kept"].text == str(kept)


def test_a_cache_that_breaks_the_contract_teaches_nothing(tmp_path):
    wrong = [{"target_kv_after": 99}] * len(MIXED)
    tour = built(tour_traces.write(tmp_path / "wrong.db", changes=wrong))
    assert tour["kv_rejected"].missing
    assert tour["kv_full"].missing
    assert not tour["stop"].missing


def test_the_mask_lets_a_row_see_what_is_left_of_it(trace):
    station = built(trace)["mask"]
    mask, question = station.exhibit, station.question
    assert isinstance(mask, Mask)
    assert isinstance(question, Marks)
    assert question.right == {c for c in range(len(mask.columns)) if mask.sees(mask.asked, c)}
    assert all(mask.sees(row, 0) for row in range(1, mask.rows + 1))
    assert not any(mask.sees(row, row) for row in range(1, mask.rows + 1))


def test_the_cost_is_the_recorded_one_and_named_so(trace):
    sql, station = Sql(trace), built(trace)["cost"]
    one, many = (
        sql.value("SELECT target_ns FROM costs WHERE run_id = ? AND positions = ?", sql.run, n) for n in (1, 5)
    )
    assert isinstance(station.question, Estimate)
    assert station.question.value == pytest.approx(many / one)
    for language in LANGUAGES:
        said = plain(Catalogue(language).of(station, "yes"))
        assert survey(trace).run.info.device_name in said
        assert f"{many / one:.2f}" in said


def test_a_measurement_here_takes_the_place_of_the_recorded_one(traces):
    found = survey(traces["mixed"])
    figures = measured([Cost(1, 10_000_000, None), Cost(5, 17_000_000, None)], "org/large")
    station = next(s for s in stations(found, figures) if s.key == "cost")
    assert station.question.value == pytest.approx(1.7)
    said = plain(Catalogue("en").of(station, "yes"))
    assert "this machine" in said
    assert found.run.info.device_name not in said
    assert "large" in plain(Catalogue("en").of(station, "note.here", station.exhibit.values))


def test_while_it_is_measured_the_answer_waits(traces):
    found = survey(traces["mixed"])
    station = next(s for s in stations(found, awaited(found)) if s.key == "cost")
    assert not station.missing
    assert feedback(station, Attempt(verdict="wrong")) == ("wait", None)


def test_a_trace_without_costs_has_no_such_station(tmp_path):
    assert built(tour_traces.write(tmp_path / "plain.db", costs=()))["cost"].missing


def test_a_run_that_shortened_nothing_is_told_so(tmp_path):
    tour = built(tour_traces.write(tmp_path / "slow.db", [Told((4, 5), 0, 6), Told((7, 8), 0, 9)]))
    assert tour["chain"].variants == ("long",)
    assert "did not shorten" in plain(Catalogue("en").of(tour["chain"], "yes"))
    assert tour["kv_full"].missing


def test_a_perfect_draft_wastes_no_position(tmp_path):
    tour = built(tour_traces.write(tmp_path / "perfect.db", [Told((4, 5), 2, 6), Told((7, 8), 2, 9)]))
    assert chosen(tour["flops"]) == "just as much"
    assert tour["correct"].missing
    assert tour["stop"].missing
    assert "All 2 accepted" in plain(Catalogue("en").of(tour["accept"], "yes"))


def test_calls_that_nobody_expects_are_told_as_counted(tmp_path):
    changes = [{"draft_calls": 0, "target_calls": 2}] * len(MIXED)
    tour = built(tour_traces.write(tmp_path / "odd.db", changes=changes))
    assert chosen(tour["propose"]).startswith("0:")
    assert chosen(tour["score"]).startswith("2:")
    assert chosen(tour["chain"]) == f"{2 * len(MIXED)}: as the trace counts"


def test_what_proposed_is_told_as_it_was(tmp_path, traces):
    changes = [{"draft_calls": 0}] * len(MIXED)
    copied = built(tour_traces.write(tmp_path / "lookup.db", changes=changes, proposer="prompt-lookup"))["propose"]
    assert "copied" in plain(Catalogue("en").of(copied, "lead"))
    assert "copied" in plain(Catalogue("en").of(copied, "yes"))
    assert "first choice" in plain(Catalogue("en").of(built(traces["greedy"])["propose"], "lead"))
    assert "drawn" in plain(Catalogue("en").of(built(traces["mixed"])["propose"], "lead"))


def test_a_draft_step_is_called_as_dear_as_it_was(tmp_path, traces):
    assert "takes 0.10 of" in plain(Catalogue("en").of(built(traces["mixed"])["propose"], "yes"))
    dear = built(tour_traces.write(tmp_path / "dear.db", costs=[Cost(1, 10_000_000, 20_000_000)]))["propose"]
    assert "takes 2.00 of" in plain(Catalogue("en").of(dear, "yes"))
    unknown = built(tour_traces.write(tmp_path / "unknown.db", costs=()))["propose"]
    assert "of a target step" not in plain(Catalogue("en").of(unknown, "yes"))


def test_without_probabilities_the_rest_of_the_tour_stays(tmp_path):
    tour = built(tour_traces.write(tmp_path / "bare.db", probabilities=False))
    assert [key for key in ORDER if tour[key].missing] == ["propose", "score", "accept", "correct", "mask", "stop"]
    assert not tour["same"].missing
    assert tour["same"].variants == ("unknown",)


def test_a_trace_without_rounds_is_refused_in_one_sentence(tmp_path):
    path = tour_traces.write(tmp_path / "empty.db", [])
    with pytest.raises(TraceError, match="holds no round"):
        survey(path)


def attempts(station: Station) -> list[Attempt]:
    """Every answer that gets another sentence."""
    question = station.question
    if question is None:
        return []
    if isinstance(question, Choice):
        return [Attempt(cursor=i) for i in range(len(question.options))]
    if isinstance(question, Prefix):
        return [Attempt(count=n) for n in range(len(question.options) + 1)]
    if isinstance(question, Estimate):
        return [Attempt(step=i) for i in range(len(question.steps))]
    single = [Attempt(marked=question.right ^ {i}) for i in range(len(question.options))]
    return [*single, right_attempt(question)]


def sentences(station: Station, catalogue: Catalogue) -> list[str]:
    """Everything that the guide can say at a station; a key that is missing is an error."""
    if station.missing:
        return [plain(catalogue.of(station, "none"))]
    said = [plain(catalogue.of(station, part)) for part in ("lead", "title")]
    if station.question is None:
        return [*said, *(plain(catalogue.of(station, part)) for part in ("record", "look"))]
    said.append(plain(catalogue.of(station, "ask")))
    for option in station.question.options:
        said.append(plain(option.label or catalogue.of(station, f"opt.{option.key}", option.values)))
    for attempt in attempts(station):
        found = feedback(station, attempt.answered(station.question))
        assert found is not None
        said.append(plain(catalogue.of(station, found[0], found[1].values if found[1] is not None else None)))
    if isinstance(station.exhibit, Bars):
        said += [plain(catalogue.of(station, f"bar.{b.key}", b.values)) for g in station.exhibit.groups for b in g]
    return said


@pytest.mark.parametrize("language", LANGUAGES)
def test_no_key_is_missing_whatever_the_trace_and_the_answer(traces, tmp_path, language):
    odd = [{"draft_calls": 0, "target_calls": 2}] * len(MIXED)
    more = [
        tour_traces.write(tmp_path / "odd.db", changes=odd),
        tour_traces.write(tmp_path / "slow.db", [Told((4, 5), 0, 6), Told((7, 8), 0, 9)]),
        tour_traces.write(tmp_path / "perfect.db", [Told((4, 5), 2, 6), Told((7, 8), 2, 9)]),
        tour_traces.write(tmp_path / "perfect_greedy.db", [Told((4, 5), 2, 6)], greedy=True),
        tour_traces.write(tmp_path / "bare.db", probabilities=False),
        tour_traces.write(tmp_path / "lookup.db", changes=odd, proposer="prompt-lookup"),
        tour_traces.write(tmp_path / "nothing.db", [Told((), 0, 6), Told((), 0, 7)], costs=()),
    ]
    for path in (*traces.values(), *more):
        for station in built(path).values():
            for said in sentences(station, Catalogue(language)):
                assert said.isprintable(), said
