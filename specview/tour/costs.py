"""What scoring several positions costs against one (C14): the figures, where they come from, and the station."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Literal

from engine.round import Cost
from specview.text import showable
from specview.tour.exhibits import Bar, Bars
from specview.tour.questions import Estimate
from specview.tour.station import Station
from specview.tour.survey import Case, Survey
from specview.tour.words import Word, number

WANTED = 5
"""Positions at once that the question is about, where they were measured."""
STEP = 0.25

Source = Literal["here", "recorded", "measuring"]


@dataclass(frozen=True, slots=True)
class Figures:
    """A cost curve and whose it is."""

    costs: tuple[Cost, ...]
    source: Source
    device: str = ""
    """The machine that a recorded curve was measured on; the target of one that was measured here."""

    @property
    def one(self) -> int | None:
        """ns of a forward over one position."""
        return next((c.target_ns for c in self.costs if c.positions == 1), None)

    @property
    def several(self) -> Cost | None:
        """The forward that the question is about: over 5 positions, else over the next smaller number measured."""
        fitting = [c for c in self.costs if 1 < c.positions <= WANTED and c.target_ns]
        return max(fitting, key=lambda c: c.positions) if fitting else None

    @property
    def ratio(self) -> float | None:
        """Time of the several ÷ time of the one."""
        several = self.several
        if not self.one or several is None or several.target_ns is None:
            return None
        return several.target_ns / self.one


def recorded(survey: Survey) -> Figures:
    """The curve of the trace, named as such."""
    info = survey.run.info
    parts = (info.device, info.device_name, info.target_dtype)
    return Figures(survey.costs, "recorded", " ".join(showable(p, limit=40) for p in parts if p))


def measured(costs: Sequence[Cost], target: str) -> Figures:
    """A curve that was measured a moment ago, with the target of that name."""
    return Figures(tuple(costs), "here", showable(PurePath(target).name, limit=40))


def awaited(survey: Survey) -> Figures:
    """A curve of which nothing is known yet but its sizes."""
    return Figures(tuple(Cost(c.positions, None, None) for c in survey.costs), "measuring")


def cost_station(figures: Figures, case: Case) -> Station:
    """The station; without any figure it has no question, and while one is measured its answer must wait."""
    several, ratio = figures.several, figures.ratio
    waiting = figures.source == "measuring"
    if (several is None or ratio is None) and not waiting:
        return Station("cost", None)
    positions = several.positions if several is not None else WANTED
    return Station(
        "cost",
        case.place,
        Estimate(scale(positions, ratio), None if waiting else ratio),
        values={
            "positions": number(positions),
            "one": _ms(figures.one),
            "many": _ms(several.target_ns if several is not None else None),
            "ratio": number(f"{ratio:.2f}" if ratio is not None else "–"),
            "device": Word(figures.device, "number"),
        },
        variants=("recorded",) if figures.source == "recorded" else (),
        exhibit=Bars((tuple(_bars(figures)),), note=figures.source, values={"device": Word(figures.device, "number")}),
    )


def scale(positions: int, ratio: float | None) -> tuple[float, ...]:
    """The steps of the estimate: from one forward to a little beyond as many as positions, and beyond the truth."""
    most = max(positions + 1.0, (ratio or 0) + 1)
    return tuple(1 + STEP * i for i in range(int((most - 1) / STEP) + 1))


def _ms(ns: int | None) -> Word:
    return number("–" if ns is None else milliseconds(ns))


def milliseconds(ns: int) -> str:
    """Three digits where they mean something: 0.31, 6.1, 23.4, 1,460."""
    ms = ns / 1e6
    return f"{ms:,.0f}" if ms >= 100 else f"{ms:.3g}"


def _bars(figures: Figures) -> list[Bar]:
    return [
        Bar(
            "positions" if c.positions > 1 else "one",
            c.target_ns,
            f"{milliseconds(c.target_ns)} ms" if c.target_ns is not None else "",
            late=c.positions > 1,
            values={"n": number(c.positions)},
        )
        for c in figures.costs
        if c.target_ns or figures.source == "measuring"
    ]
