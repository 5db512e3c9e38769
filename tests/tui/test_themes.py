"""What a theme changes, and what it must not."""

from __future__ import annotations

from pathlib import Path

import pytest

from specview.tui.themes import THEMES, palette
from specview.tui.widgets.output import OutputPane
from tests.synthetic import write
from tests.tui.driving import press, running, screen, until


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("traces") / "run.db"
    write(path, 60, sequences=3)
    return path


async def test_every_theme_draws_every_meaning(trace: Path) -> None:
    async with running(trace, (100, 30)) as (app, pilot):
        names = [colours.name for colours in THEMES]
        for name in [*names[1:], names[0]]:
            await press(pilot, "d")
            assert app.theme == name
            strips = app.screen._compositor.render_strips()
            colours_drawn = {segment.style.color for strip in strips for segment in strip if segment.style is not None}
            assert len(colours_drawn) > 5, name


async def test_a_theme_reaches_the_lines_that_were_drawn_before(trace: Path) -> None:
    async with running(trace, (100, 30)) as (app, pilot):
        await press(pilot, "pagedown")
        pane = app.query_one(OutputPane)

        def backgrounds() -> set[object]:
            drawn = [segment for y in range(pane.size.height) for segment in pane.render_line(y)]
            return {segment.style.bgcolor for segment in drawn if segment.style is not None}

        for _ in THEMES:
            await press(pilot, "d")
            colours = palette(app.theme)
            meant = {colours.base.bgcolor, colours.raised.bgcolor or colours.base.bgcolor}
            await until(lambda meant=meant: backgrounds() == meant, pilot)  # type: ignore[misc]


async def test_a_foreign_theme_does_no_harm(trace: Path) -> None:
    async with running(trace, (100, 30)) as (app, pilot):
        app.theme = "nord"
        await press(pilot, "right", "s")
        await until(lambda: "Acceptance by position" in screen(app), pilot)
