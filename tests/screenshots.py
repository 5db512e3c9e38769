"""Pictures of every screen from a real trace, as SVG in screenshots/: `make screenshots`.

The pictures only change when the screens or the trace do, so that a commit shows what a change did to the looks.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from textual.app import App

from specview.tui.app import SpecviewApp
from specview.tui.compare_app import CompareApp
from specview.tui.model.compare import load_comparison
from tests import tour_pictures
from tests.tui.driving import until

FOLDER = Path("screenshots")
TRACES = (Path("traces/sample.db"), Path("traces/lesson.db"))

AT_THE_ROUND = ("pagedown",) * 4
"""To round 41 of the sample: one candidate accepted, one rejected, one discarded."""


@dataclass(frozen=True)
class Picture:
    """One screen: its size, the keys that lead to it, and a word that tells when it is there."""

    name: str
    size: tuple[int, int]
    keys: Sequence[str]
    shows: str
    theme: str = "specview-dark"


PICTURES = (
    Picture("replay", (160, 44), AT_THE_ROUND, "Output"),
    Picture("replay-100x30", (100, 30), AT_THE_ROUND, "Output"),
    Picture("replay-light", (120, 36), AT_THE_ROUND, "Output", "specview-light"),
    Picture("replay-contrast", (120, 36), AT_THE_ROUND, "Output", "specview-contrast"),
    Picture("replay-colour-blind", (120, 36), AT_THE_ROUND, "Output", "specview-colour-blind"),
    Picture("phase-propose", (120, 36), (*AT_THE_ROUND, "shift+right"), "propose"),
    Picture("phase-score", (120, 36), (*AT_THE_ROUND, "shift+right", "shift+right"), "score"),
    Picture("statistics", (160, 48), ("s",), "What if γ were"),
    Picture("filter", (100, 30), ("f",), "full acceptance"),
    Picture("help", (100, 44), ("question_mark",), "Playing"),
)


async def take(trace: Path, picture: Picture) -> Path:
    """Drive the app to the screen and write its picture."""
    app = SpecviewApp(trace)
    async with app.run_test(size=picture.size) as pilot:
        await until(lambda: app.view.snapshot.round is not None and app.view.totals is not None, pilot)
        app.theme = picture.theme
        for key in picture.keys:
            await pilot.press(key)
            await pilot.pause()
            await until(lambda: app.cursor == app.view.snapshot.cursor, pilot)
        await until(lambda: picture.shows in _text(app), pilot)
        path = FOLDER / f"{picture.name}.svg"
        path.write_text(app.export_screenshot(title=f"specview replay {trace}"), "utf-8")
        return path


async def take_compare(left: Path, right: Path) -> Path:
    """The comparison of two recorded runs."""
    app = CompareApp(load_comparison(left, None, right, None, 0), left, None, right, None)
    async with app.run_test(size=(140, 36)) as pilot:
        await until(lambda: "B − A" in _text(app), pilot)
        path = FOLDER / "compare.svg"
        path.write_text(app.export_screenshot(title=f"specview compare {left} {right}"), "utf-8")
        return path


def _text(app: App[None]) -> str:
    return "\n".join(strip.text for strip in app.screen._compositor.render_strips())


def main() -> None:
    """Write every picture."""
    trace = next((t for t in TRACES if t.exists()), None)
    if trace is None:
        sys.exit(f"there is no {TRACES[0]} to take pictures of.")
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as state:
        os.environ["XDG_STATE_HOME"] = state
        for picture in PICTURES:
            print(asyncio.run(take(trace, picture)))
        if all(t.exists() for t in TRACES):
            print(asyncio.run(take_compare(*TRACES)))
        os.environ["SPECVIEW_STATE"] = state
        for tour_picture in tour_pictures.TOUR_PICTURES:
            print(asyncio.run(tour_pictures.take(tour_picture, FOLDER)))


if __name__ == "__main__":
    main()
