"""The main screen, key by key."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest
from textual.widgets import Input

from specview.importing.run import import_log
from specview.trace.reader import TraceReader
from specview.tui.messages import SnapshotReady
from specview.tui.model.cursor import Cursor
from specview.tui.model.marks import marks_path, place_path
from specview.tui.widgets.ask import AskLine
from specview.tui.widgets.kv import KvPane
from specview.tui.widgets.output import OutputPane
from specview.tui.widgets.round_pane import RoundPane
from specview.tui.widgets.timeline import TimelinePane
from tests.synthetic import write
from tests.tui.driving import lines, press, running, screen, until


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("traces") / "run.db"
    write(path, 60, sequences=3)
    return path


@pytest.fixture(autouse=True)
def _no_marks(trace: Path) -> None:
    marks_path(trace).unlink(missing_ok=True)


async def test_looking_leaves_nothing_in_the_folder(trace: Path) -> None:
    async with running(trace) as (_, pilot):
        await press(pilot, "right", "right", "m", "m")
        await pilot.press("q")
    assert [p.name for p in trace.parent.iterdir()] == [trace.name]


async def test_everything_about_a_round_is_visible_at_100_by_30(trace: Path) -> None:
    async with running(trace, (100, 30)) as (app, pilot):
        await press(pilot, "right")
        with TraceReader(trace) as reader:
            round_ = reader.rounds(1, 1, 2)[0]
        shown = screen(app)
        assert "round 2/60" in shown
        assert f"Round 2 · {round_.proposed} proposed · {round_.accepted} accepted" in shown
        assert f"{round_.correction_kind}" in shown
        assert f"{round_.target_kv_before} → {round_.target_kv_after}" in shown
        for word in ("Output", "KV target", "draft", "propose", "tok/s", "speed-up", "space play", "? help"):
            assert word in shown
        for position in round_.positions[: round_.proposed]:
            assert any(line.lstrip(" │").startswith(f"{position.position} ") for line in _right(shown))


def _right(shown: str) -> list[str]:
    return [line.partition("│")[2] for line in shown.splitlines()]


async def test_stepping_jumping_and_going_to(trace: Path) -> None:
    async with running(trace) as (app, pilot):
        await press(pilot, "right", "right", "full_stop")
        assert app.cursor.round == 3
        await press(pilot, "left", "comma")
        assert app.cursor.round == 1
        await press(pilot, "pagedown", "pagedown")
        assert app.cursor.round == 21
        await press(pilot, "pageup")
        assert app.cursor.round == 11
        await press(pilot, "end")
        assert app.cursor.round == 59
        await press(pilot, "right")
        assert app.cursor.round == 59
        await press(pilot, "home", "left")
        assert app.cursor.round == 0
        await press(pilot, "colon", "4", "2", "enter")
        await until(lambda: "round 42/60" in screen(app), pilot)
        await press(pilot, "colon", "3", ".", "7", "enter")
        await until(lambda: "prompt 3/3" in screen(app) and "round 7/60" in screen(app), pilot)
        await press(pilot, "colon", "x", "enter")
        await until(lambda: "“x” is no round" in screen(app), pilot)


async def test_a_question_goes_when_its_answer_is_there(trace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(trace) as (app, pilot):
        line = app.query_one(AskLine)
        asked: list[Cursor] = []
        before = app.focused
        await press(pilot, "colon", "4", "2")
        with monkeypatch.context() as slow:
            slow.setattr(app.feed, "ask", asked.append)  # a disk that takes its time
            await pilot.press("enter", "enter")
            await pilot.pause()
            assert [cursor.round for cursor in asked] == [41], "one answer, however often Enter is pressed"
            assert "go to round:" in lines(app)[-1]
        app.feed.ask(asked[0])
        await until(lambda: "round 42/60" in screen(app) and not line.asking, pilot)
        assert "space play" in lines(app)[-1]
        assert app.focused is before
        await press(pilot, "colon", "escape")
        assert "space play" in lines(app)[-1]
        assert app.focused is before


async def test_an_answer_and_the_end_of_its_question_are_one_picture(
    trace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(trace) as (app, pilot):
        await press(pilot, "colon", "4", "2")
        pictures: list[str] = []
        paint = app.screen._compositor_refresh
        with monkeypatch.context() as watched:
            watched.setattr(app.screen, "_compositor_refresh", lambda: (pictures.append(screen(app)), paint()))
            await pilot.press("enter")
            await until(lambda: "round 42/60" in screen(app) and not app.query_one(AskLine).asking, pilot)
        answered = [picture for picture in pictures if "round 42/60" in picture]
        assert answered
        assert not any("go to round:" in picture for picture in answered)


async def test_an_answer_that_comes_when_the_screen_is_gone_breaks_nothing(trace: Path) -> None:
    async with running(trace) as (app, pilot):
        late = app.view.snapshot
        await press(pilot, "right")
        last = app.view.snapshot
    assert late != last
    app.on_snapshot_ready(SnapshotReady(late))
    assert app.view.snapshot == last


async def test_phases_show_only_what_is_known(trace: Path) -> None:
    async with running(trace) as (app, pilot):
        await press(pilot, "right", "shift+right")
        await until(lambda: "round 3/60 propose" in screen(app), pilot)
        assert "accepted  " not in "\n".join(_right(screen(app))[:12])
        assert "The draft proposed" in screen(app)
        assert "written" in screen(app)
        await press(pilot, "shift+right")
        await until(lambda: "round 3/60 score" in screen(app), pilot)
        assert "One forward of the target scored all" in screen(app)
        await press(pilot, "shift+right")
        await until(lambda: "round 3/60 accept" in screen(app), pilot)
        assert "accepted" in screen(app)
        await press(pilot, "shift+right")
        await until(lambda: "round 3/60 ·" in screen(app), pilot)
        await press(pilot, "shift+left")
        await until(lambda: "round 3/60 accept" in screen(app), pilot)


async def test_play_pause_speed_and_from_the_start_again(trace: Path) -> None:
    async with running(trace, speed=0.1, idle_limit=1e9) as (app, pilot):
        await pilot.press("space")
        assert app.view.playing
        await pilot.press("space")
        assert not app.view.playing
        await press(pilot, "end")
        await pilot.press("space")
        assert app.view.playing
        assert app.cursor.round < 59, "at the end, playing begins again"
        await pilot.press("minus", *["plus"] * 9)
        assert app.view.pace.speed == 64
        await until(lambda: app.view.snapshot.cursor.round == 59 and not app.view.playing, pilot)


async def test_selecting_a_position_shows_its_alternatives(trace: Path) -> None:
    async with running(trace) as (app, pilot):
        await press(pilot, "g")
        await until(lambda: "at 1 " in screen(app), pilot)
        await press(pilot, "j")
        await until(lambda: "at 2 " in screen(app), pilot)
        await press(pilot, "G")
        last = app.view.snapshot.round.proposed + 1  # type: ignore[union-attr]
        assert app.view.position == last


async def test_the_mouse_reaches_rounds_positions_and_tokens(trace: Path) -> None:
    async with running(trace) as (app, pilot):
        await press(pilot, "end")
        await pilot.click(TimelinePane, offset=(7, 1))
        await until(lambda: app.view.snapshot.cursor.round == 7, pilot)
        await pilot.click(RoundPane, offset=(5, 3))
        assert app.view.position == 2
        await press(pilot, "end")
        pane = app.query_one(OutputPane)
        run = next(r for r in pane._shown[2] if r.owner >= 12)
        x = sum(r.width for r in pane._shown[2][: pane._shown[2].index(run)])
        await pilot.click(OutputPane, offset=(x, 3))
        await until(lambda: app.view.snapshot.cursor.round < 59, pilot)
        round_ = app.view.snapshot.round
        assert round_ is not None
        assert round_.committed_before <= run.owner < round_.committed_after


async def test_every_number_explains_itself_when_pointed_at(trace: Path) -> None:
    async with running(trace) as (app, pilot):
        pane = app.query_one(KvPane)
        slot = next(hit for hit in pane.hits if "kept this round" in hit.tip)
        await pilot.hover(KvPane, offset=(slot.x, slot.y))
        assert "kept this round" in str(pane.tooltip)
        counters = app.query_one("#counters")
        tips = " ".join(hit.tip for hit in counters.hits)  # type: ignore[attr-defined]
        for name in ("propose_ms", "round_ms", "draft_acceptance_rate", "measured_speedup", "tokens_per_second"):
            assert name in tips


async def test_tab_moves_between_panes_and_unfolds_them(trace: Path) -> None:
    async with running(trace, (60, 24)) as (app, pilot):
        assert "Round 1 ·" in screen(app)
        assert "Output" not in screen(app)
        await press(pilot, "tab")
        await until(lambda: "Output" in screen(app), pilot)
        assert "Round 1 ·" not in screen(app)
        await press(pilot, "tab")
        await until(lambda: "Round 1 ·" in screen(app), pilot)


async def test_switching_prompts(trace: Path) -> None:
    async with running(trace) as (app, pilot):
        await press(pilot, "t")
        await until(lambda: "Prompts" in screen(app), pilot)
        await pilot.press("down", "enter")
        await until(lambda: app.view.snapshot.cursor.sequence == 1, pilot)
        assert "prompt 2/3" in screen(app)


async def test_find_text_and_the_next_one(trace: Path) -> None:
    async with running(trace) as (app, pilot):
        await press(pilot, "slash", *"WAVES", "enter")
        await until(lambda: "“WAVES” · n next" in screen(app), pilot)
        first = app.cursor.round
        await press(pilot, "n")
        await until(lambda: app.view.snapshot.cursor.round > first, pilot)
        await press(pilot, "N")
        await until(lambda: app.view.snapshot.cursor.round == first, pilot)
        await press(pilot, "slash", "end", *"qqqq", "enter")
        await until(lambda: "does not occur" in screen(app), pilot)


async def test_filters_stop_only_at_matching_rounds(trace: Path) -> None:
    with TraceReader(trace) as reader:
        full = [r.index for r in reader.rounds(1, 0, 60) if r.proposed and r.accepted == r.proposed and not r.cut]
    async with running(trace) as (app, pilot):
        await press(pilot, "f")
        await until(lambda: "full acceptance" in screen(app), pilot)
        await pilot.press("down", "enter")
        ahead = [r for r in full if r > 0]
        await until(lambda: app.view.snapshot.cursor.round == ahead[0], pilot)
        assert "full acceptance" in screen(app).splitlines()[0]
        await press(pilot, "right_square_bracket")
        await until(lambda: app.view.snapshot.cursor.round == ahead[1], pilot)
        await press(pilot, "left_square_bracket")
        await until(lambda: app.view.snapshot.cursor.round == ahead[0], pilot)
        await press(pilot, "end", "right_square_bracket")
        await until(lambda: "no round behind this one matches" in screen(app) or full[-1] > 58, pilot)


async def test_bookmarks_and_the_last_place_are_kept_beside_the_trace(trace: Path) -> None:
    before = trace.read_bytes()
    async with running(trace) as (app, pilot):
        await press(pilot, "pagedown", "m", "right", "right")
        assert "◆" in screen(app)
        await pilot.press("q")
    assert trace.with_name(trace.name + ".marks.json").exists()
    assert place_path(trace).exists()
    async with running(trace) as (app, pilot):
        await until(lambda: app.view.snapshot.cursor.round == 12, pilot)
        assert app.view.bookmarks == {10}
        await press(pilot, "m", "m")
        assert app.view.bookmarks == {10}
    assert trace.read_bytes() == before


async def test_help_lists_the_real_bindings(trace: Path) -> None:
    async with running(trace, (120, 60)) as (app, pilot):
        await pilot.press("question_mark")
        await until(lambda: "Playing" in screen(app), pilot)
        for text in ("next round", "bookmark this round", "Finding", "go to a round"):
            assert text in screen(app)
        await pilot.press("escape")
        await until(lambda: "Round 1 ·" in screen(app), pilot)


async def test_the_keys_of_the_main_screen_rest_while_another_is_open(trace: Path) -> None:
    async with running(trace) as (app, pilot):
        await pilot.press("s")
        await until(lambda: "What if γ were" in screen(app), pilot)
        await pilot.press("right", "space", "m")
        assert app.cursor.round == 0
        assert not app.view.playing
        await pilot.press("escape")
        await until(lambda: "Round 1 ·" in screen(app), pilot)


async def test_the_palette_knows_the_keys(trace: Path) -> None:
    async with running(trace) as (app, pilot):
        await pilot.press("ctrl+p")
        await pilot.pause()
        await pilot.press(*"next phase")
        await until(lambda: "Next phase" in screen(app), pilot)


async def test_a_picture_and_an_export_are_written_and_overwrite_nothing(
    trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with running(trace) as (app, pilot):
        await press(pilot, "p", "p")
        assert sorted(p.name for p in tmp_path.glob("*.svg")) == ["run-round-1-2.svg", "run-round-1.svg"]
        assert "<svg" in (tmp_path / "run-round-1.svg").read_text("utf-8")
        await pilot.press("e")
        await pilot.pause()
        app.query_one("#ask Input", Input).value = str(tmp_path / "out.csv")
        await pilot.press("enter")
        await until(lambda: (tmp_path / "out.csv").exists(), pilot)
        assert (tmp_path / "out.csv").read_text("utf-8").count("\n") >= 180


async def test_copy_puts_the_rounds_text_on_the_clipboard(trace: Path) -> None:
    async with running(trace) as (app, pilot):
        await press(pilot, "y")
        snapshot = app.view.snapshot
        assert snapshot.round is not None
        wanted = b"".join(snapshot.names.data(t) for t, _ in snapshot.round.committed).decode("utf-8", "replace")
        assert app.clipboard == wanted


async def test_a_window_that_is_too_small_says_what_to_do_in_full(trace: Path) -> None:
    async with running(trace, size=(20, 5)) as (app, pilot):
        await until(lambda: "terminal" in screen(app), pilot)
        assert " ".join(screen(app).split()) == "Make the terminal larger (40×10)."


async def test_compare_with_another_trace_from_inside(trace: Path, tmp_path: Path) -> None:
    write(tmp_path / "other.db", 20, seed=9)
    async with running(trace) as (app, pilot):
        await pilot.press("c")
        await pilot.pause()
        app.query_one("#ask Input", Input).value = str(tmp_path / "other.db")
        await pilot.press("enter")
        await until(lambda: "part at output token" in screen(app), pilot)
        assert "draft_acceptance_rate" in screen(app)
        await pilot.press("right_square_bracket")
        await until(lambda: "part at output token" in screen(app), pilot)
        await pilot.press("escape")
        await until(lambda: "Round 1 ·" in screen(app), pilot)
        await pilot.press("c")
        await pilot.pause()
        app.query_one("#ask Input", Input).value = str(tmp_path / "missing.db")
        await pilot.press("enter")
        await until(lambda: "missing.db" in screen(app) and "Round 1 ·" in screen(app), pilot)


@pytest.mark.parametrize("size", [(160, 48), (80, 24), (42, 12)])
async def test_a_copy_without_its_log_says_on_the_last_line_what_it_may_lack(
    tmp_path: Path, size: tuple[int, int]
) -> None:
    path = tmp_path / "copied.db"
    write(path, 20)
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE runs SET status = 'running'")
    connection.close()
    with path.open("r+b") as file:  # in WAL mode, with no log beside it
        file.seek(18)
        file.write(b"\x02\x02")
    async with running(path, size) as (app, pilot):
        await until(lambda: "! it was copied" in lines(app)[-1], pilot)
        assert "q quit" in lines(app)[-1]
        end = lines(app)[-1].rstrip()
        assert end.endswith(("missing", "…"))


async def test_a_log_without_tokens_says_so(tmp_path: Path) -> None:
    steps = {"per_step_drafted": [3, 3], "per_step_accepted": [1, 2], "num_spec_tokens": 3, "num_spec_steps": 2}
    log = {
        "object": "chat.completion",
        "usage": {"prompt_tokens": 4, "completion_tokens": 5},
        "metrics": {"speculative_decoding": steps},
    }
    path = tmp_path / "run.db"
    import_log([json.dumps(log)], "server.jsonl", path, form=None, force=False, progress=lambda _: None)
    async with running(path, (120, 36)) as (app, pilot):
        assert "The trace records no tokens" in screen(app)
        assert "⟦" not in screen(app), "an empty round in an empty text tells nothing"
        await press(pilot, "right")
        assert "2 of 3 candidates were accepted" in screen(app)
