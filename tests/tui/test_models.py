"""The headless core: cursor, pace, layout, text flow, marks, search, statistics, comparison."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.style import Style

from engine.round import PhaseTimes, Round
from specview import metrics
from specview.trace.reader import TraceReader
from specview.tui.ink import bar, crop, fit, spread, strip, wrap
from specview.tui.layout import layout
from specview.tui.model import marks, search, statistics
from specview.tui.model.compare import load_comparison
from specview.tui.model.compare_table import Counter, counters, difference_text, table, value_text
from specview.tui.model.cursor import Cursor
from specview.tui.model.flow import Flow, whole_prefix
from specview.tui.model.lens import EXACT_TOKENS, TOKENS_A_BLOCK, Lens, window_start
from specview.tui.model.names import Names
from specview.tui.model.playback import FASTEST_SECONDS, Pace, Step, step
from specview.tui.numbers import milliseconds, plain, prob, ratio, short
from tests.synthetic import write
from tests.tui.driving import press, running, screen, until

NO = Style.null()


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("traces") / "run.db"
    write(path, 400, sequences=2)
    return path


def test_a_token_without_text_has_one_form() -> None:
    names = Names()
    assert names(72) == "⟨72⟩"
    assert names.data(72).decode() == names(72)


def test_the_cursor_stays_inside() -> None:
    cursor = Cursor()
    assert cursor.to_round(-5, 10).round == 0
    assert cursor.to_round(99, 10).round == 9
    assert cursor.to_round(3, 0).round == 0
    assert Cursor(at_end=True).to_round(3, 10).at_end is False


def test_phases_run_over_the_borders_of_rounds() -> None:
    cursor = Cursor(round=1)
    assert (cursor.step_phase(1, 3).round, cursor.step_phase(1, 3).phase) == (2, "propose")
    assert (cursor.step_phase(-1, 3).round, cursor.step_phase(-1, 3).phase) == (1, "accept")
    assert Cursor(round=2).step_phase(1, 3) == Cursor(round=2)
    first = Cursor(round=0, phase="propose")
    assert first.step_phase(-1, 3) == first


def timed(start: int | None, wall: int | None) -> Round:
    return Round(0, 3, 0, 0, 0, 1, 2, times=PhaseTimes(start_ns=start, round_ns=wall))


def test_pace_follows_the_recorded_clock() -> None:
    pace = Pace(speed=2.0, idle_limit=1.0)
    first, second = timed(0, 100_000_000), timed(300_000_000, 100_000_000)
    assert pace.seconds(second, first) == pytest.approx(0.15)
    assert pace.seconds(second) == pytest.approx(0.05)
    assert pace.seconds(timed(None, None)) == pytest.approx(0.15)
    assert pace.seconds(timed(9_000_000_000, 1), first) == pytest.approx(0.5), "the idle limit, at double speed"
    assert Pace(speed=64).faster().speed == 64
    assert Pace(speed=0.1).slower().speed == 0.1


def test_playing_faster_than_the_screen_skips_rounds() -> None:
    assert step(0.05).rounds == 1
    assert step(0.001).rounds == int(FASTEST_SECONDS / 0.001)
    assert step(0.0).rounds == 1000


def test_a_late_screen_leaves_rounds_out_instead_of_falling_behind() -> None:
    assert step(0.05, late=0.04) == step(0.05), "less than a step is caught up by waiting less"
    assert step(0.05, late=0.12) == Step(3, 0.05 * 3)
    assert step(0.001, late=FASTEST_SECONDS * 1.5).rounds == 2 * step(0.001).rounds
    assert step(2.0, late=0.5).rounds == 1


@pytest.mark.parametrize("width", [*range(20, 130, 7), 400])
@pytest.mark.parametrize("height", [*range(5, 60, 3), 120])
def test_at_every_size_the_panes_leave_room_for_the_round(width: int, height: int) -> None:
    for log in (False, True):
        plan = layout(width, height, log=log)
        if plan.too_small:
            assert width < 40 or height < 10
            continue
        used = 2 + plan.rule + plan.kv + plan.timeline + plan.counters + plan.log
        assert height - used >= 7, (width, height, plan)
        assert not plan.both or width - plan.round_width - 3 >= 30
        if width >= 100 and height >= 30:
            assert plan.both
            assert plan.kv
            assert plan.timeline >= 2
            assert plan.counters


WORDS = st.lists(
    st.sampled_from([" the", "ing", "\n", "漢字", " ", "\t", "é", "x" * 30, "👩\u200d💻", "\x1b[2J", "a-b", "\u0301"])
)


@given(WORDS, st.integers(1, 30))
@settings(max_examples=150, deadline=None)
def test_text_flows_into_any_width_and_comes_back(pieces: list[str], width: int) -> None:
    flow = Flow(width)
    for index, piece in enumerate(pieces):
        flow.add(piece, index, "accepted")
    for line in flow.lines:
        assert sum(run.width for run in line) <= width
        assert all(run.width == cell_len(run.text) for run in line)
    before = [list(line) for line in flow.lines]
    state = flow.mark()
    flow.add(" more words than fit\n漢字漢字", 99, "rejected", visible=True)
    flow.rewind(state)
    assert flow.lines == before


def test_words_stay_whole_and_what_was_laid_out_stays() -> None:
    flow = Flow(12)
    for index, piece in enumerate([" one", " two", " thr", "ee", " four"]):
        flow.add(piece, index, "accepted")
    assert ["".join(r.text for r in line) for line in flow.lines] == [" one two ", "three four"]


def test_a_character_waits_for_its_last_byte() -> None:
    assert whole_prefix([b"a", b"\xe2\x98"]) == 1
    assert whole_prefix([b"a", b"\xe2\x98", b"\x83"]) == 3
    assert whole_prefix([b"\xf0", b"\x9f", b"\x98"]) == 0
    assert whole_prefix([]) == 0


def test_the_window_of_text_moves_in_blocks() -> None:
    assert window_start(EXACT_TOKENS) == 0
    starts = {window_start(n) for n in range(0, 20_000, 7)}
    assert all(s % TOKENS_A_BLOCK == 0 for s in starts)
    assert all(0 < n - window_start(n) <= EXACT_TOKENS + TOKENS_A_BLOCK for n in range(1, 20_000, 13))


@given(st.text(max_size=40), st.integers(0, 30))
def test_strips_and_cells_are_as_wide_as_asked(text: str, width: int) -> None:
    from specview.text import showable

    shown = showable(text)
    assert cell_len(fit(shown, width)) == width
    assert strip([(shown, NO), (shown, NO)], width, NO).cell_length == width
    assert cell_len(strip([(shown, NO)], width, NO).text) == width
    assert sum(cell_len(t) for t, _ in crop([(shown, NO)], width)) <= width
    if width:
        lines = wrap([(shown, NO)], width)
        assert all(sum(cell_len(t) for t, _ in line) <= max(2, width) for line in lines)
        assert "".join(t for line in lines for t, _ in line).replace(" ", "") == shown.replace(" ", ""), (
            "no word is lost"
        )
    assert len(bar(0.5, width)) == width


def test_spread_keeps_the_right_side() -> None:
    line = spread([("a long left side", NO)], [("right", NO)], 12, NO)
    assert "".join(t for t, _ in line) == "a lon… right"


def test_numbers_are_short_and_right_aligned() -> None:
    assert prob(0.07) == "  .07"
    assert prob(None) == "    –"
    assert ratio(0.93, 0.81) == "  1.15"
    assert ratio(0.9, 0.00001) == "  >999"
    assert ratio(0.5, 0.0) == "     ∞"
    assert milliseconds(300_000) == "    .30"
    assert milliseconds(6_100_000) == "    6.1"
    assert plain(0.5, 0) == ".50"
    assert [short(n) for n in (999, 9_999, 19_503, 999_999, 12_000_000)] == ["999", "9,999", "19.5k", "1.0M", "12.0M"]


def test_marks_survive_and_strangers_files_do_no_harm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    path = tmp_path / "run.db"
    kept = marks.Marks().toggled("u", 1, 5).toggled("u", 1, 9).toggled("u", 1, 5)
    marks.save_marks(path, kept)
    assert marks.load_marks(path).of("u", 1) == {9}
    marks.save_place(path, marks.LastPlace("u", 1, 9))
    assert marks.load_place(path) == marks.LastPlace("u", 1, 9)
    for stranger in ("[]", "{", "null", '{"bookmarks": [{"run": 1}]}', '{"bookmarks": 3}'):
        marks.marks_path(path).write_text(stranger, "utf-8")
        assert marks.load_marks(path) == marks.Marks()
    marks.save_marks(path, marks.Marks())
    assert not marks.marks_path(path).exists()


def test_marks_of_a_trace_in_a_folder_that_cannot_be_written_go_to_the_state_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr("specview.tui.model.marks.os.access", lambda *_: False)
    assert marks.marks_path(tmp_path / "run.db").is_relative_to(tmp_path / "state")


def test_every_filter_finds_what_a_walk_over_all_rounds_finds(trace: Path) -> None:
    with TraceReader(trace) as reader:
        rounds = reader.rounds(1, 0, 400)
        tests = {
            "full acceptance": lambda r: r.proposed > 0 and r.accepted == r.proposed and r.cut is None,
            "rejected at 2": lambda r: r.accepted == 1 and r.proposed > 1 and r.cut is None,
            "correction equal to a discarded token": lambda r: any(
                p.fate == "discarded" and p.candidate == r.correction_token for p in r.positions
            ),
            "low overlap (below 0.2)": lambda r: any(
                p.fate in ("accepted", "rejected") and p.overlap is not None and p.overlap < 0.2 for p in r.positions
            ),
            "nothing proposed": lambda r: r.proposed == 0,
        }
        offered = {f.name: f for f in search.filters(4)}
        for name, holds in tests.items():
            expected = [r.index for r in rounds if holds(r)]
            found, at = [], -1
            while (at := search.find_round(reader, 1, offered[name], at, 1)) is not None:  # type: ignore[assignment]
                found.append(at)
            assert found == expected, name
            back, at = [], 400
            while (at := search.find_round(reader, 1, offered[name], at, -1)) is not None:  # type: ignore[assignment]
                back.append(at)
            assert back == expected[::-1], name
        slow = search.with_threshold(reader, 1, next(f for n, f in offered.items() if n.startswith("slow")))
        assert slow.value is not None
        assert sum(1 for r in rounds if r.times.round_ns is not None and r.times.round_ns > slow.value) == 19


def test_find_text_goes_around_and_finds_across_tokens(trace: Path) -> None:
    with TraceReader(trace) as reader:
        tokens = reader.tokens(1, 0, 100_000)
        names = reader.vocab(1, {t.token for t in tokens})
        text = b"".join(names[t.token].data for t in tokens).decode("utf-8", "surrogateescape").casefold()

        def find(needle: str, start: int, direction: int) -> int | None:
            return search.find_text(reader, 1, 1, needle, start, direction, lambda: False)

        first = find("Waves", -1, 1)
        assert first is not None
        again = find("waves", first, 1)
        assert again is not None
        assert again > first
        assert find("waves", again, -1) == first
        last = find("waves", first, -1)
        assert last is not None
        assert last > again, "backwards from the first one it goes on at the end"
        assert find("no such text", 0, 1) is None
        assert find("", 0, 1) is None
        two = text[30:41]
        assert find(two, -1, 1) is not None
        assert search.find_text(reader, 1, 1, "waves", 0, 1, lambda: True) is None


def test_the_lens_clamps_and_counts(trace: Path) -> None:
    with TraceReader(trace) as reader:
        lens = Lens(reader)
        snapshot = lens.look(Cursor(run=9, sequence=9, round=9999))
        assert (snapshot.cursor.run, snapshot.cursor.sequence, snapshot.cursor.round) == (0, 1, 399)
        assert snapshot.after is None
        assert snapshot.following is None
        middle = lens.look(Cursor(round=200))
        assert middle.round is not None
        assert middle.before is not None
        assert middle.after is not None
        assert middle.window.end == middle.round.committed_after
        assert middle.following == middle.after.committed[0][0]
        assert middle.recent == metrics.totals(reader.rounds(1, 185, 201))
        assert [middle.mark_at(i).accepted for i in (0, 200, 399)] == [  # type: ignore[union-attr]
            reader.rounds(1, i, i + 1)[0].accepted for i in (0, 200, 399)
        ]


async def test_a_missing_round_is_said_and_the_others_stay_reachable(tmp_path: Path) -> None:
    path = tmp_path / "gap.db"
    write(path, 30)
    with sqlite3.connect(path) as connection:
        connection.execute("DELETE FROM rounds WHERE round_index = 5")
        connection.execute("UPDATE rounds SET proposed = 2000000000, accepted = 2000000000 WHERE round_index = 2")
        connection.execute("UPDATE rounds SET target_kv_before = 2000000000 WHERE round_index = 3")
    connection.close()
    async with running(path, (100, 30)) as (app, pilot):
        for place in range(1, 5):
            await press(pilot, "right")
            assert app.cursor.round == place
        await pilot.press("right")
        await until(lambda: "Round 6 is missing" in screen(app), pilot)
        await press(pilot, "right")
        await until(lambda: "Round 7 ·" in screen(app), pilot)


def test_statistics_agree_with_the_rounds(trace: Path) -> None:
    with TraceReader(trace) as reader:
        found = statistics.gather(reader, reader.runs()[0], 1)
        rounds = reader.rounds(1, 0, 400)
    assert len(found.ms_per_token) == statistics.BINS
    assert found.ms_per_token[0].first == 0
    assert found.ms_per_token[-1].last == 399
    bin_ = found.ms_per_token[7]
    inside = rounds[bin_.first : bin_.last + 1]
    assert bin_.value == pytest.approx(metrics.ms_per_token(metrics.totals(inside)))
    overlaps = [
        p.overlap
        for r in rounds[found.overlap[3].first : found.overlap[3].last + 1]
        for p in r.positions
        if p.overlap is not None
    ]
    assert found.overlap[3].value == pytest.approx(sum(overlaps) / len(overlaps))
    assert not found.sampled
    estimates = found.what_if()
    assert [w.gamma for w in estimates] == list(range(1, 13))
    c, alpha = found.summary.cost_ratio, found.alpha
    assert c is not None
    assert alpha is not None
    assert estimates[3].by_theorem == pytest.approx((1 - alpha**5) / ((1 - alpha) * (4 * c + 1)))
    # Five positions were measured at 22.5 ms against 20.5 ms for one.
    assert estimates[3].by_cost_curve == pytest.approx((1 - alpha**5) / ((1 - alpha) * (4 * c + 22.5 / 20.5)))
    choice = statistics.best(estimates)
    assert choice is not None
    assert choice.by_cost_curve == max(w.by_cost_curve for w in estimates if w.by_cost_curve)


def test_without_a_cost_curve_there_is_no_estimate(trace: Path) -> None:
    with TraceReader(trace) as reader:
        found = statistics.gather(reader, reader.runs()[0], 1)
    bare = replace(found, costs=(), summary=replace(found.summary, cost_ratio=None))
    assert bare.what_if() == ()
    assert statistics.best(bare.what_if()) is None


def test_comparison_finds_the_first_token_that_differs(tmp_path: Path) -> None:
    write(tmp_path / "a.db", 100, seed=1)
    write(tmp_path / "b.db", 100, seed=2)
    same = load_comparison(tmp_path / "a.db", None, tmp_path / "a.db", None, 0)
    assert same.divergence is None
    assert same.shared == same.left.output_tokens
    assert all(counter.difference in (0, None) for counter in counters(same))
    other = load_comparison(tmp_path / "a.db", None, tmp_path / "b.db", None, 7)
    with TraceReader(tmp_path / "a.db") as a, TraceReader(tmp_path / "b.db") as b:
        left, right = ([t.token for t in r.tokens(1, 12, 400)] for r in (a, b))
        names_a, names_b = a.vocab(1, left), b.vocab(1, right)
        pairs = zip(left, right, strict=False)
        first = next(i for i, (x, y) in enumerate(pairs) if names_a[x].data != names_b[y].data)
        assert other.divergence == first
        at = a.tokens(1, 12 + first, 13 + first)[0].round_index
    assert other.left.at is not None
    assert other.left.at.index == at
    assert other.left.margin is not None
    assert other.left.margin >= 0
    (verdict,) = [line for line in table(other) if "part at output token" in line]
    assert verdict.startswith("the outputs agree on")
    assert any(
        line.startswith("prompt 2 of 3: the outputs agree on")
        for line in table(replace(other, sequence_index=1, sequence_count=3))
    )


@pytest.mark.parametrize(
    ("left", "right", "told"),
    [(0.283, 0.484, "+20.1 pp"), (0.5, 0.25, "−25.0 pp"), (0.5, 0.5, "0.0 pp"), (0.0, 1.0, "+100.0 pp")],
)
def test_two_percentages_differ_by_percentage_points(left: float, right: float, told: str) -> None:
    rate = Counter("draft_acceptance_rate", left, right, percent=True)
    assert difference_text(rate) == told
    assert value_text(rate, left).endswith(" %")


def test_only_percentages_differ_by_points_and_the_table_says_what_they_are(tmp_path: Path) -> None:
    write(tmp_path / "a.db", 100, seed=1)
    write(tmp_path / "b.db", 100, seed=2)
    lines = table(load_comparison(tmp_path / "a.db", None, tmp_path / "b.db", None, 0))
    with_points = [line.split()[0] for line in lines if line.endswith(" pp")]
    assert with_points == ["draft_acceptance_rate", "judged_acceptance_rate", "overlap"]
    assert lines.count("pp: percentage points") == 1
