"""Hostile text, odd sizes and random input: nothing raises, every strip fits its widget, nothing raw is drawn."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from rich.cells import cell_len
from textual.geometry import Size
from textual.pilot import Pilot

from specview.tui.app import SpecviewApp
from specview.tui.widgets.canvas import Canvas
from tests.tui import hostile
from tests.tui.driving import press, running, screen, until

EVENTS = int(os.environ.get("SPECVIEW_TEST_EVENTS", "250"))
"""For each seed; `make soak` sends 10,000."""
KEYS = [
    *("space", "right", "left", "shift+right", "shift+left", "pagedown", "pageup", "home", "end", "plus", "minus"),
    *(
        "n",
        "N",
        "f",
        "m",
        "s",
        "c",
        "d",
        "l",
        "i",
        "question_mark",
        "y",
        "r",
        "t",
        "slash",
        "colon",
        "tab",
        "shift+tab",
    ),
    *(
        "escape",
        "enter",
        "j",
        "k",
        "g",
        "G",
        "up",
        "down",
        "left_square_bracket",
        "right_square_bracket",
        "x",
        "1",
        "2",
    ),
]


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("traces") / "[b]\x1b[2J[@click=app.quit]run.db"
    hostile.write(path)
    return path


def check_strips(app: SpecviewApp) -> None:
    """Every line is exactly as wide as its widget, and holds nothing that a terminal would obey."""
    for pane in app.query(Canvas):
        if not pane.display or not pane.size.width:
            continue
        for y in range(pane.size.height):
            strip = pane.render_line(y)
            assert strip.cell_length == pane.size.width
            assert cell_len(strip.text) == pane.size.width, (pane.id, y, strip.text)
            assert strip.text.isprintable(), (pane.id, y, strip.text)
    width = app.size.width
    for strip in app.screen._compositor.render_strips():
        assert cell_len(strip.text) == width
        assert strip.text.isprintable(), strip.text


@pytest.mark.parametrize("size", [(20, 5), (40, 10), (60, 20), (80, 24), (100, 30), (160, 48), (400, 120)])
async def test_hostile_text_is_harmless_at_every_size(trace: Path, size: tuple[int, int]) -> None:
    async with running(trace, size) as (app, pilot):
        check_strips(app)
        for key in ("right", "right", "shift+right", "shift+right", "end", "pageup", "tab", "question_mark", "escape"):
            await press(pilot, key)
            check_strips(app)
        await pilot.press("s")
        await pilot.pause()
        check_strips(app)


async def test_the_texts_are_shown_and_not_obeyed(trace: Path) -> None:
    async with running(trace, (160, 48)) as (app, pilot):
        shown = screen(app)
        assert "[@click=app.quit]x[/]" in shown
        assert "␛]0;x␇" in shown
        assert "\\u202eabc" in shown
        await press(pilot, "r")
        await until(lambda: "Runs" in screen(app), pilot)
        await pilot.press("down", "enter")
        await until(lambda: "Failed" in screen(app), pilot)
        assert "␛[2J" in screen(app)
        check_strips(app)


async def test_half_a_character_across_two_rounds_is_joined_once_complete(tmp_path: Path) -> None:
    from engine.round import Round, Sequence, VocabEntry
    from specview.trace.writer import TraceWriter

    path = tmp_path / "halves.db"
    with TraceWriter(path) as writer:
        writer.begin_run(hostile.info())
        writer.add_vocab([VocabEntry(0, b"a"), VocabEntry(1, b"\xe6\xbc"), VocabEntry(2, b"\xa2"), VocabEntry(3, b"z")])
        handle = writer.begin_sequence(Sequence(0, "a", (0,)))
        for index, token in enumerate((1, 2, 3)):
            writer.add_round(
                handle,
                Round(
                    index,
                    0,
                    0,
                    0,
                    0,
                    1 + index,
                    2 + index,
                    ((token, "target"),),
                    correction_token=token,
                    correction_kind="target",
                ),
            )
        writer.close("finished")
    async with running(path, (100, 30)) as (app, pilot):
        assert "\\xe6\\xbc" in screen(app)
        await press(pilot, "right")
        await until(lambda: "round 2/3" in screen(app), pilot)
        await press(pilot, "right")
        await until(lambda: "a漢" in screen(app).replace(" ", ""), pilot)
        assert "\\xe6" not in screen(app)


@pytest.mark.parametrize("seed", range(4))
async def test_random_keys_mice_and_sizes_never_break_it(trace: Path, seed: int) -> None:
    rng = random.Random(seed)
    async with running(trace, (100, 30), speed=16.0) as (app, pilot):
        for step in range(EVENTS):
            await _event(rng, app, pilot)
            if step % 50 == 0:
                await pilot.pause()
                check_strips(app)
        await pilot.pause()
        check_strips(app)


async def _event(rng: random.Random, app: SpecviewApp, pilot: Pilot[None]) -> None:
    kind = rng.random()
    if kind < 0.75:
        key = rng.choice(KEYS)
        app.simulate_key(key)
    elif kind < 0.93:
        x, y = rng.randrange(app.size.width), rng.randrange(app.size.height)
        await _mouse(rng, app, x, y)
    else:
        width, height = rng.choice(((20, 5), (39, 9), (41, 11), (80, 24), (100, 30), (250, 70), (63, 100), (400, 120)))
        app._driver._size_changed = None  # type: ignore[union-attr]
        await pilot.resize_terminal(width, height)
    if rng.random() < 0.1:
        await pilot._wait_for_screen()


async def _mouse(rng: random.Random, app: SpecviewApp, x: int, y: int) -> None:
    from textual import events

    kind = rng.choice(
        (events.MouseDown, events.MouseUp, events.MouseMove, events.MouseScrollUp, events.MouseScrollDown)
    )
    app.screen.post_message(
        kind(None, x, y, rng.randrange(-3, 4), 0, rng.randrange(3), False, False, False, screen_x=x, screen_y=y)
    )


async def test_sizes_change_while_playing(trace: Path) -> None:
    async with running(trace, (160, 48)) as (app, pilot):
        await press(pilot, "space")
        for size in (Size(20, 5), Size(400, 120), Size(80, 24), Size(63, 18), Size(160, 48)):
            await pilot.resize_terminal(*size)
            await pilot.pause(0.1)
            check_strips(app)
