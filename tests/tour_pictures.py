"""Pictures of the tour for `make screenshots`: a question, its answer, and the same in Chinese."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from specview.tour.catalogue import Language
from specview.tour.questions import right_attempt
from specview.tui.tour.app import TourApp
from tests.tui.touring import LESSON, keys_for, press, touring


@dataclass(frozen=True)
class TourPicture:
    """A station, before its prediction or after the right one."""

    name: str
    station: str
    language: Language
    answered: bool
    size: tuple[int, int] = (120, 36)


TOUR_PICTURES = (
    TourPicture("tour-question", "stop", "en", False),
    TourPicture("tour-answer", "correct", "en", True),
    TourPicture("tour-zh", "kv_rejected", "zh", True),
    TourPicture("tour-80x24", "mask", "en", True, (80, 24)),
)


async def take(picture: TourPicture, folder: Path) -> Path:
    """Walk to the station and write its picture."""
    async with touring(LESSON, picture.language, picture.size, picture.station) as (app, pilot):
        if picture.answered:
            await press(app, pilot, *_answer(app))
        path = folder / f"{picture.name}.svg"
        path.write_text(app.export_screenshot(title="specview tour"), "utf-8")
        return path


def _answer(app: TourApp) -> list[str]:
    assert app.station.question is not None
    return keys_for(app, right_attempt(app.station.question))
