"""Driving the tour without a terminal: start it, answer it, read its panes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from textual.pilot import Pilot

from specview.tour.catalogue import Language
from specview.tour.questions import Attempt, Choice, Estimate, Marks, Prefix, nearest
from specview.tour.station import ORDER
from specview.tour.survey import survey
from specview.tui.tour.app import TourApp
from specview.tui.tour.exhibit import ExhibitPane
from specview.tui.tour.guide import GuidePane
from specview.tui.tour.panes import TourRound
from specview.tui.widgets.kv import KvPane
from tests.tui.driving import PATIENCE

LESSON = Path(__file__).parents[2] / "traces" / "lesson.db"


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


async def until(holds, pilot: Pilot[None]) -> None:  # type: ignore[no-untyped-def]
    for _ in range(PATIENCE):
        await pilot.pause()
        if holds():
            return
        await asyncio.sleep(0.02)
    raise AssertionError(f"waited in vain; the screen shows:\n{text(pilot.app)}")  # type: ignore[arg-type]


def unbroken_lines(app: TourApp) -> str:
    return " ".join(pane(app, GuidePane).split())
