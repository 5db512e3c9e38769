"""Driving the app without a terminal: start it, wait for what it shows, read the screen."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from textual.pilot import Pilot

from specview.tui.app import SpecviewApp

PATIENCE = 400
"""Polls of 25 ms before a test gives up; shared machines can be very slow."""


@asynccontextmanager
async def running(
    path: Path, size: tuple[int, int] = (160, 48), **options: object
) -> AsyncIterator[tuple[SpecviewApp, Pilot[None]]]:
    """The app on a trace, with its first round on the screen."""
    app = SpecviewApp(path, **options)  # type: ignore[arg-type]
    async with app.run_test(size=size, tooltips=True) as pilot:
        await until(lambda: app.view.snapshot.round is not None, pilot)
        yield app, pilot


async def until(holds: Callable[[], bool], pilot: Pilot[None]) -> None:
    """Wait until something is so, and the screen has been painted."""
    for _ in range(PATIENCE):
        if holds():
            break
        await asyncio.sleep(0.025)
    assert holds(), f"waited in vain; the screen shows:\n{screen(pilot.app)}"  # type: ignore[arg-type]
    await pilot.pause()


async def press(pilot: Pilot[None], *keys: str) -> None:
    """Press keys, and wait until the feed has answered for where they lead."""
    app = pilot.app
    assert isinstance(app, SpecviewApp)
    for key in keys:
        await pilot.press(key)
        await pilot.pause()
        await until(lambda: app.cursor == app.view.snapshot.cursor or app.view.playing, pilot)


def lines(app: SpecviewApp) -> list[str]:
    """The text of every line of the screen."""
    return [strip.text for strip in app.screen._compositor.render_strips()]


def screen(app: SpecviewApp) -> str:
    return "\n".join(lines(app))
