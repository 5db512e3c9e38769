"""`specview tour`: the lesson on real rounds, in the inspector itself."""

from __future__ import annotations

import os
from pathlib import Path

import click

from specview.errors import SpecviewError

LESSON = Path(__file__).parents[1] / "tour" / "lesson.db"
"""The sample of `traces/`; a link in the source tree, a copy in an installed package."""


class NoTerminalError(SpecviewError):
    """The tour has nobody to ask."""


@click.command("tour", short_help="Learn speculative decoding on real rounds, by predicting them.")
@click.argument("trace", required=False, type=click.Path(path_type=Path))
@click.option("--lang", type=click.Choice(["en", "zh"]), help="Language of the guide.  [default: by locale]")
@click.option("--station", type=click.IntRange(1, 14), help="Begin at this station.  [default: where it was left]")
def command(trace: Path | None, lang: str | None, station: int | None) -> int:
    """A guided tour of the draft–verify loop, in fifteen minutes: it asks what a recorded round will do, and shows it.

    On TRACE, or on the lesson's own; progress is kept. With the engine installed, it measures this machine where the
    lesson asks for it."""
    from specview.tui.run import has_terminal, show

    if not has_terminal():
        raise NoTerminalError("the tour asks questions and needs a terminal; run `specview tour` in one.")
    from specview.tour.catalogue import language_of
    from specview.tour.measure import engine_installed
    from specview.tour.station import ORDER
    from specview.tour.survey import survey
    from specview.tui.tour.app import TourApp

    found = survey(trace if trace is not None else lesson_trace())
    language = language_of(os.environ) if lang is None else language_of({"LANG": lang})
    start = ORDER[station - 1] if station is not None else None
    return show(TourApp(found, language, start=start, engine=engine_installed()))


def lesson_trace() -> Path:
    """The lesson's own trace; where a checkout could not make the link, the newest trace at hand.

    Raises:
        TraceError: there is none.
    """
    from specview.cli.replay import TRACES, newest_trace

    return LESSON if LESSON.is_file() else newest_trace(TRACES)
