"""What the tour hides, what its keys do, and that no size, colour or token breaks it."""

from __future__ import annotations

from itertools import cycle
from pathlib import Path

import pytest
from rich.cells import cell_len

from specview.tour import progress
from specview.tour.catalogue import Catalogue
from specview.tour.questions import right_attempt
from specview.tour.station import ORDER
from specview.tui.tour.exhibit import ExhibitPane
from specview.tui.tour.guide import GuidePane
from specview.tui.tour.panes import TourRound
from specview.tui.widgets.kv import KvPane
from specview.tui.widgets.output import OutputPane
from tests import tour_traces
from tests.tui.touring import (
    keys_for,
    pane,
    press,
    settled,
    text,
    touring,
    until,
)

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


async def test_the_mouse_gives_nothing_away_either(traces: dict[str, Path]) -> None:
    async with touring(traces["mixed"], start="kv_full", size=(120, 36)) as (app, pilot):
        home = app.cursor.round
        app.post_message(OutputPane.TokenPicked(len(tour_traces.PROMPT)))
        await settled(app, pilot)
        assert app.cursor.round == home
        await press(app, pilot, "o")
        app.post_message(OutputPane.TokenPicked(len(tour_traces.PROMPT)))
        await until(lambda: app.cursor.round == 0 != home, pilot)


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
