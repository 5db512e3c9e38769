"""The tour, walked key by key: it hides, asks, answers, shows, and lets one step freely."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import cycle
from pathlib import Path

import pytest
from rich.cells import cell_len
from textual.pilot import Pilot

from engine.round import Cost
from specview.tour import progress
from specview.tour.catalogue import LANGUAGES, Catalogue, Language
from specview.tour.costs import Figures, measured
from specview.tour.questions import Attempt, Choice, Estimate, Marks, Prefix, nearest, right_attempt
from specview.tour.station import ORDER, feedback
from specview.tour.survey import Survey, survey
from specview.tour.words import plain
from specview.tui.tour import app as tour_app
from specview.tui.tour.app import TourApp
from specview.tui.tour.exhibit import ExhibitPane
from specview.tui.tour.guide import GuidePane
from specview.tui.tour.panes import TourRound
from specview.tui.widgets.kv import KvPane
from tests import synthetic, tour_traces
from tests.tour_traces import Told
from tests.tui.driving import PATIENCE

LESSON = Path(__file__).parents[2] / "traces" / "lesson.db"
OTHER = (Told((11, 12, 13), 1, 14), Told((15, 16, 17), 2, 4), Told((5, 6, 7), 3, 8), Told((9, 10, 11), 0, 12))


@pytest.fixture(autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECVIEW_STATE", str(tmp_path / "state"))


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("traces")
    synthetic.write(folder / "synthetic.db", 30, seed=3)
    return {
        "lesson": LESSON,
        "mixed": tour_traces.write(folder / "mixed.db"),
        "greedy": tour_traces.write(folder / "greedy.db", greedy=True),
        "other": tour_traces.write(folder / "other.db", OTHER),
        "synthetic": folder / "synthetic.db",
    }


@asynccontextmanager
async def touring(
    path: Path,
    language: Language = "en",
    size: tuple[int, int] = (80, 24),
    start: str | None = ORDER[0],
    *,
    engine: bool = False,
) -> AsyncIterator[tuple[TourApp, Pilot[None]]]:
    """The tour on a trace, with its first station on the screen."""
    app = TourApp(survey(path), language, start=start, engine=engine)
    async with app.run_test(size=size) as pilot:
        await settled(app, pilot)
        yield app, pilot


async def settled(app: TourApp, pilot: Pilot[None]) -> None:
    """The feed has answered for the place that the tour looks at."""
    for _ in range(PATIENCE):
        await pilot.pause()
        snapshot = app.view.snapshot
        if snapshot.round is not None and snapshot.cursor == app.cursor:
            break
        await asyncio.sleep(0.02)
    assert app.view.snapshot.cursor == app.cursor
    await pilot.pause()


async def press(app: TourApp, pilot: Pilot[None], *keys: str) -> None:
    for key in keys:
        await pilot.press(key)
        await settled(app, pilot)


def text(app: TourApp) -> str:
    return "\n".join(strip.text for strip in app.screen._compositor.render_strips())


def pane(app: TourApp, kind: type[GuidePane] | type[TourRound] | type[ExhibitPane] | type[KvPane]) -> str:
    """What one pane shows."""
    widget = app.query_one(kind)
    return "\n".join(widget.render_line(y).text for y in range(widget.size.height)) if widget.display else ""


def unbroken(shown: str) -> str:
    """Text without its line breaks, so that a sentence can be found in it."""
    return "".join(shown.split())


def keys_for(app: TourApp, wanted: Attempt) -> list[str]:
    """The keys that bring a fresh question to an answer, and give it."""
    question = app.station.question
    keys: list[str] = []
    if isinstance(question, Choice):
        keys = ["down"] * wanted.cursor
    elif isinstance(question, Prefix):
        keys = [key for _ in range(wanted.count) for key in ("space", "down")]
    elif isinstance(question, Marks):
        keys = [
            key for i in range(len(question.options)) for key in (*(("space",) if i in wanted.marked else ()), "down")
        ]
    elif isinstance(question, Estimate):
        keys = ["right"] * wanted.step
    return [*keys, "enter"]


def wrong_attempt(app: TourApp) -> Attempt:
    """An answer that is not right."""
    question = app.station.question
    if isinstance(question, Choice):
        return Attempt(cursor=(question.right + 1) % len(question.options))
    if isinstance(question, Prefix):
        return Attempt(count=0 if question.right else len(question.options))
    if isinstance(question, Marks):
        return Attempt(marked=frozenset({len(question.options) - 1}))
    assert isinstance(question, Estimate)
    assert question.value is not None
    return Attempt(step=len(question.steps) - 1 if nearest(question.steps, question.value) < 8 else 0)


@pytest.mark.parametrize("language", LANGUAGES)
async def test_all_right_answers_walk_the_whole_tour(language: Language) -> None:
    async with touring(LESSON, language) as (app, pilot):
        for key in ORDER[:-1]:
            assert app.station.key == key
            assert app.station.question is not None, "the lesson's trace has a round for every station"
            await press(app, pilot, *keys_for(app, right_attempt(app.station.question)))
            assert app.attempt.verdict == "right"
            said = plain(Catalogue(language).of(app.station, "yes"))
            assert unbroken(said) in unbroken(pane(app, GuidePane))
            await press(app, pilot, "enter")
        assert app.station.key == "close"
        assert "specview record" in pane(app, GuidePane)
        summary = Catalogue(language).say("tried", {k: _n(len(ORDER) - 1) for k in ("right", "all", "first")})
        assert unbroken(plain(summary)) in unbroken(pane(app, GuidePane))
        await pilot.press("q")
    assert progress.load().solved.keys() == set(ORDER[:-1])
    assert progress.load().at == "close"


def _n(value: int):  # type: ignore[no-untyped-def]
    from specview.tour.words import number

    return number(value)


@pytest.mark.parametrize("language", LANGUAGES)
async def test_all_wrong_answers_walk_the_whole_tour_too(language: Language) -> None:
    async with touring(LESSON, language) as (app, pilot):
        for key in ORDER[:-1]:
            assert app.station.key == key
            await press(app, pilot, *keys_for(app, wrong_attempt(app)))
            assert app.attempt.verdict == "wrong"
            assert app.hidden, "a wrong answer shows nothing"
            found = feedback(app.station, app.attempt)
            assert found is not None
            values = found[1].values if found[1] is not None else None
            said = plain(Catalogue(language).of(app.station, found[0], values))
            assert unbroken(said) in unbroken(pane(app, GuidePane))
            await press(app, pilot, "o")
            assert not app.hidden
            await press(app, pilot, "enter")
        assert app.station.key == "close"
    assert progress.load().solved == {}


@pytest.mark.parametrize(
    ("kind", "size"),
    [*((kind, (80, 24)) for kind in ("lesson", "mixed", "greedy", "other", "synthetic")), ("lesson", (120, 36))],
)
@pytest.mark.parametrize("language", LANGUAGES)
async def test_question_options_and_answer_are_all_on_the_screen(
    traces: dict[str, Path], kind: str, language: Language, size: tuple[int, int]
) -> None:
    async with touring(traces[kind], language, size) as (app, pilot):
        catalogue = Catalogue(language)
        for key in ORDER[:-1]:
            await settled(app, pilot)
            assert app.station.key == key
            question = app.station.question
            if question is None:
                shown = unbroken(pane(app, GuidePane))
                assert unbroken(plain(catalogue.of(app.station, "none"))) in shown
                await press(app, pilot, "n")
                continue
            shown = unbroken(pane(app, GuidePane))
            for part in ("lead", "ask"):
                assert unbroken(plain(catalogue.of(app.station, part))) in shown
            app._set(right_attempt(question).answered(question))
            shown = unbroken(pane(app, GuidePane))
            for part in ("ask", "yes"):
                assert unbroken(plain(catalogue.of(app.station, part))) in shown
            for option in question.options:
                label = option.label or catalogue.of(app.station, f"opt.{option.key}", option.values)
                assert unbroken(plain(label)) in shown
            await press(app, pilot, "n")


# What is hidden


async def test_the_prefix_shows_one_u_at_a_time_and_no_verdict(traces: dict[str, Path]) -> None:
    async with touring(traces["mixed"], start="accept") as (app, pilot):
        assert app.station.question is not None
        rows = pane(app, TourRound).splitlines()[2:6]
        assert ".30" in rows[0]
        assert all(".30" not in row for row in rows[1:])
        assert not any(sign in pane(app, TourRound) for sign in "✓✗")
        assert "accepted" not in pane(app, TourRound)
        await press(app, pilot, "space")
        rows = pane(app, TourRound).splitlines()[2:6]
        assert [".30" in row for row in rows[:3]] == [True, True, False]
        await press(app, pilot, "o")
        assert "✗" in pane(app, TourRound)


@pytest.mark.parametrize("key", ["stop", "same"])
async def test_what_becomes_of_the_candidate_behind_is_hidden(traces: dict[str, Path], key: str) -> None:
    async with touring(traces["mixed"], start=key, size=(120, 36)) as (app, pilot):
        assert "discarded" not in text(app)
        assert "off-path" not in text(app)
        assert "rejected" in pane(app, TourRound)
        await press(app, pilot, "o")
        assert "discarded" in pane(app, TourRound)
        assert "off-path" in pane(app, KvPane)


async def test_propose_knows_no_p_and_score_no_verdict(traces: dict[str, Path]) -> None:
    async with touring(traces["mixed"], start="propose") as (app, pilot):
        assert ".60" not in text(app)
        await press(app, pilot, "o")
        assert ".60" not in text(app), "the target has not scored yet"
        await press(app, pilot, "n")
        assert ".60" not in text(app)
        await press(app, pilot, "o")
        assert ".60" in pane(app, TourRound)
        assert "✓" not in pane(app, TourRound)


@pytest.mark.parametrize("key", ["kv_rejected", "kv_full"])
async def test_the_caches_show_what_was_written_and_not_what_stays(traces: dict[str, Path], key: str) -> None:
    async with touring(traces["mixed"], start=key) as (app, pilot):
        lanes = pane(app, KvPane)
        assert "░" in lanes
        assert not any(sign in lanes for sign in "█✗◌")
        await press(app, pilot, "o")
        lanes = pane(app, KvPane)
        assert "█" in lanes
        assert "◌" in lanes
        assert "░" not in lanes


async def test_the_number_of_rounds_is_hidden_where_it_is_asked_for(traces: dict[str, Path]) -> None:
    async with touring(traces["lesson"], start="chain", size=(120, 36)) as (app, pilot):
        count = app.view.snapshot.round_count
        calls = app.station.values["calls"].text
        assert f"of {count}" not in text(app)
        assert calls not in pane(app, ExhibitPane)
        await press(app, pilot, "o")
        assert f"of {count} rounds" in text(app)
        assert calls in pane(app, ExhibitPane)


async def test_the_output_stops_where_the_round_began(traces: dict[str, Path]) -> None:
    async with touring(traces["mixed"], start="accept", size=(120, 36)) as (app, pilot):
        round_ = app.view.snapshot.round
        assert round_ is not None
        assert f"{round_.committed_before} tokens" in text(app)
        await press(app, pilot, "o", "shift+right")
        assert f"{round_.committed_after} tokens" in text(app)


# Keys


async def test_stepping_waits_for_the_prediction_and_then_is_free(traces: dict[str, Path]) -> None:
    async with touring(traces["mixed"], start="stop") as (app, pilot):
        home = app.cursor.round
        await press(app, pilot, "right", "shift+left")
        assert app.cursor.round == home
        assert Catalogue("en").text("later") in text(app)
        await press(app, pilot, "o", "right")
        assert app.cursor.round == home + 1
        assert f"Round {home + 2} ·" in pane(app, TourRound)
        await press(app, pilot, "home")
        assert app.cursor.round == home
        await press(app, pilot, "shift+left")
        assert app.cursor.phase == "accept"


async def test_a_wrong_answer_can_be_tried_again_and_a_right_one_too(traces: dict[str, Path]) -> None:
    async with touring(traces["mixed"], start="stop") as (app, pilot):
        await press(app, pilot, "enter")
        assert app.attempt.verdict == "wrong"
        await press(app, pilot, "down", "down", "enter")
        assert app.attempt.verdict == "right"
        assert progress.load().solved["stop"].tries == 2
        await press(app, pilot, "r")
        assert app.hidden
        assert "discarded" not in pane(app, TourRound)


async def test_stations_are_visited_in_any_order_and_keep_their_answers(traces: dict[str, Path]) -> None:
    async with touring(traces["mixed"]) as (app, pilot):
        await press(app, pilot, "o", "n", "n", "b")
        assert app.station.key == "propose"
        await press(app, pilot, "b", "b")
        assert app.station.key == "chain"
        assert not app.hidden
        await pilot.press("g")
        await pilot.pause()
        await pilot.press(*["down"] * 6, "enter")
        await settled(app, pilot)
        assert app.station.key == "stop"
        await press(app, pilot, *["n"] * 20)
        assert app.station.key == "close"


async def test_the_tour_s_keys_rest_while_the_list_is_open(traces: dict[str, Path]) -> None:
    async with touring(traces["mixed"]) as (app, pilot):
        await pilot.press("g", "n", "o", "l")
        await pilot.pause()
        assert app.station.key == "chain"
        assert app.hidden
        assert app.language == "en"
        await pilot.press("escape")
        await press(app, pilot, "n")
        assert app.station.key == "propose"


async def test_the_language_changes_where_one_stands(traces: dict[str, Path]) -> None:
    async with touring(traces["mixed"], start="stop") as (app, pilot):
        await press(app, pilot, "down", "l")
        assert Catalogue("zh").text("stop.title") in text(app)
        assert app.attempt.cursor == 1
        await press(app, pilot, "l")
        assert Catalogue("en").text("stop.title") in text(app)


async def test_tab_goes_to_the_round_whose_positions_can_then_be_selected(traces: dict[str, Path]) -> None:
    async with touring(traces["greedy"], start="accept", size=(120, 36)) as (app, pilot):
        await press(app, pilot, "tab", "j")
        assert isinstance(app.focused, TourRound)
        assert "at 2" in pane(app, TourRound)
        assert app.attempt.cursor == 0
        await press(app, pilot, "tab", "tab", "j")
        assert app.attempt.cursor == 1


async def test_progress_is_kept_and_the_tour_goes_on_where_it_was_left(traces: dict[str, Path]) -> None:
    async with touring(traces["mixed"]) as (app, pilot):
        await press(app, pilot, *keys_for(app, right_attempt(app.station.question)), "n", "n")  # type: ignore[arg-type]
        await pilot.press("q")
    async with touring(traces["mixed"], start=None) as (app, pilot):
        assert app.station.key == "score"
        assert "✓·▸" in text(app)


async def test_progress_that_cannot_be_kept_is_said_and_the_tour_goes_on(
    traces: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("SPECVIEW_STATE", str(tmp_path / "file" / "state"))
    async with touring(traces["mixed"], size=(120, 36)) as (app, pilot):
        await press(app, pilot, *keys_for(app, right_attempt(app.station.question)))  # type: ignore[arg-type]
        assert app.attempt.verdict == "right"
        assert "the progress cannot be kept" in text(app)


async def test_q_leaves_at_once(traces: dict[str, Path]) -> None:
    async with touring(traces["mixed"]) as (app, pilot):
        await pilot.press("q")
        await pilot.pause()
    assert app.return_code == 0


async def test_the_trace_s_folder_stays_as_it_was(tmp_path: Path) -> None:
    folder = tmp_path / "only"
    folder.mkdir()
    path = tour_traces.write(folder / "run.db")
    before = path.read_bytes()
    async with touring(path) as (app, pilot):
        await press(app, pilot, "o", "n", "o", "right", "n")
        await pilot.press("q")
    assert [p.name for p in folder.iterdir()] == ["run.db"]
    assert path.read_bytes() == before


# Sizes, colours, hostile text


async def test_no_size_breaks_it(traces: dict[str, Path]) -> None:
    async with touring(traces["synthetic"]) as (app, pilot):
        for key, size in zip(
            ORDER, cycle(((20, 5), (63, 19), (64, 20), (100, 30), (200, 60), (300, 20))), strict=False
        ):
            assert app.station.key == key
            await pilot.resize_terminal(*size)
            await pilot.pause()
            assert {cell_len(line) for line in text(app).splitlines()} == {size[0]}
            await press(app, pilot, "o", "n")


async def test_without_colour_the_screen_says_the_same(
    traces: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with touring(traces["mixed"], start="kv_rejected") as (app, pilot):
        await press(app, pilot, "o")
        coloured = text(app)
    monkeypatch.setenv("NO_COLOR", "1")
    async with touring(traces["mixed"], start="kv_rejected") as (app, pilot):
        await press(app, pilot, "o")
        assert text(app) == coloured
        assert "✓" in pane(app, GuidePane)


async def test_hostile_tokens_are_shown_and_obeyed_nowhere(tmp_path: Path) -> None:
    words = ["\x1b[31mred", "[/b]", "{y1}", "\u202eevil", "\x07", "a" * 5000, "=1+1", "\n\n", "\x9b2J", "[b]"] * 2
    path = tour_traces.write(tmp_path / "hostile.db", words=words)
    async with touring(path) as (app, pilot):
        for _ in ORDER:
            shown = text(app)
            assert all(line.isprintable() for line in shown.splitlines())
            await press(app, pilot, "o")
            assert all(line.isprintable() for line in text(app).splitlines())
            await press(app, pilot, "n")


# The engine


class Measuring:
    """Stands in for the child process: nothing until it is `done`, then what `outcome` says."""

    outcome: Figures | None = None
    done = False
    failed = ""
    closed = 0

    def poll(self) -> Figures | None:
        kind = type(self)
        if kind.done and kind.outcome is None:
            self.failed = "there is no room."
        return kind.outcome if kind.done else None

    def close(self) -> None:
        type(self).closed += 1


@pytest.fixture
def measuring(monkeypatch: pytest.MonkeyPatch) -> type[Measuring]:
    kind = type("Fresh", (Measuring,), {})
    monkeypatch.setattr(tour_app, "CostMeasurement", kind)
    monkeypatch.setattr(tour_app, "POLL_SECONDS", 0.05)
    return kind


async def until(holds, pilot: Pilot[None]) -> None:  # type: ignore[no-untyped-def]
    for _ in range(PATIENCE):
        await pilot.pause()
        if holds():
            return
        await asyncio.sleep(0.02)
    raise AssertionError(f"waited in vain; the screen shows:\n{text(pilot.app)}")  # type: ignore[arg-type]


async def test_with_the_engine_the_cost_is_measured_here(traces: dict[str, Path], measuring: type[Measuring]) -> None:
    measuring.outcome = measured([Cost(1, 10_000_000, None), Cost(5, 20_000_000, None)], "some/target")
    async with touring(traces["mixed"], start="cost", size=(120, 36), engine=True) as (app, pilot):
        assert Catalogue("en").text("cost.note.measuring") in text(app)
        for key in ("enter", "o"):
            await press(app, pilot, key)
            assert app.hidden
            assert "still being measured" in unbroken_lines(app)
        measuring.done = True
        await until(lambda: app._figures.source == "here", pilot)
        assert "target, measured here just now" in text(app)
        assert "a made-up machine" not in text(app)
        await press(app, pilot, "right", "right", "right", "right", "enter")
        assert app.attempt.verdict == "right"
        assert "2.00×" in pane(app, GuidePane)
    assert measuring.closed == 1


async def test_a_measurement_that_fails_leaves_the_recorded_figure(
    traces: dict[str, Path], measuring: type[Measuring]
) -> None:
    measuring.done = True
    async with touring(traces["mixed"], start="cost", size=(120, 36), engine=True) as (app, pilot):
        await until(lambda: app._figures.source == "recorded", pilot)
        assert "there is no room" in text(app)
        assert "recorded on cpu a made-up machine" in text(app)


async def test_without_the_engine_nothing_is_measured(traces: dict[str, Path], measuring: type[Measuring]) -> None:
    async with touring(traces["mixed"], start="cost", size=(120, 36)) as (app, _):
        assert app._measurement is None
        assert "recorded on cpu a made-up machine" in text(app)


async def test_a_round_that_the_trace_lacks_is_recorded(
    traces: dict[str, Path], measuring: type[Measuring], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Search(Measuring):
        def poll(self) -> Survey | None:  # type: ignore[override]
            return survey(traces["mixed"]) if type(self).done else None

    monkeypatch.setattr(tour_app, "Search", Search)
    async with touring(traces["other"], start="same", engine=True) as (app, pilot):
        assert app.station.missing
        assert Catalogue("en").text("looking") in unbroken_lines(app)
        Search.done = True
        await until(lambda: not app.station.missing and app.path == traces["mixed"], pilot)
        await settled(app, pilot)
        assert app.view.snapshot.round is not None
        await press(app, pilot, "down", "down", "enter", "right")
        assert app.attempt.verdict == "right"
        await press(app, pilot, "n", "o")
        assert app.path == traces["other"], "the other stations stay with the trace of the tour"


def unbroken_lines(app: TourApp) -> str:
    return " ".join(pane(app, GuidePane).split())
