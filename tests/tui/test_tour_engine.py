"""What the tour takes over from the engine while a person reads."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.round import Cost
from specview.tour.catalogue import Catalogue
from specview.tour.costs import Figures, measured
from specview.tour.survey import Survey, survey
from specview.tui.tour import app as tour_app
from specview.tui.tour.guide import GuidePane
from tests.tui.touring import (
    pane,
    press,
    settled,
    text,
    touring,
    unbroken_lines,
    until,
)


class Measuring:
    """Stands in for the child process: nothing until it is `done`, then what `outcome` says."""

    outcome: Figures | None = None
    done = False
    failed = ""
    closed = 0

    def poll(self) -> Figures | None:
        kind = type(self)
        if kind.done and kind.outcome is None:
            self.failed = "there is no room."
        return kind.outcome if kind.done else None

    def close(self) -> None:
        type(self).closed += 1


@pytest.fixture
def measuring(monkeypatch: pytest.MonkeyPatch) -> type[Measuring]:
    kind = type("Fresh", (Measuring,), {})
    monkeypatch.setattr(tour_app, "CostMeasurement", kind)
    monkeypatch.setattr(tour_app, "POLL_SECONDS", 0.05)
    return kind


async def test_with_the_engine_the_cost_is_measured_here(traces: dict[str, Path], measuring: type[Measuring]) -> None:
    measuring.outcome = measured([Cost(1, 10_000_000, None), Cost(5, 20_000_000, None)], "some/target")
    async with touring(traces["mixed"], start="cost", size=(120, 36), engine=True) as (app, pilot):
        assert Catalogue("en").text("cost.note.measuring") in text(app)
        for key in ("enter", "o"):
            await press(app, pilot, key)
            assert app.hidden
            assert "still being measured" in unbroken_lines(app)
        measuring.done = True
        await until(lambda: app._figures.source == "here", pilot)
        assert "target, measured here just now" in text(app)
        assert "a made-up machine" not in text(app)
        await press(app, pilot, "right", "right", "right", "right", "enter")
        assert app.attempt.verdict == "right"
        assert "2.00×" in pane(app, GuidePane)
    assert measuring.closed == 1


async def test_a_measurement_that_fails_leaves_the_recorded_figure(
    traces: dict[str, Path], measuring: type[Measuring]
) -> None:
    measuring.done = True
    async with touring(traces["mixed"], start="cost", size=(120, 36), engine=True) as (app, pilot):
        await until(lambda: app._figures.source == "recorded", pilot)
        assert "there is no room" in text(app)
        assert "recorded on cpu a made-up machine" in text(app)


async def test_without_the_engine_nothing_is_measured(traces: dict[str, Path], measuring: type[Measuring]) -> None:
    async with touring(traces["mixed"], start="cost", size=(120, 36)) as (app, _):
        assert app._measurement is None
        assert "recorded on cpu a made-up machine" in text(app)


async def test_a_round_that_the_trace_lacks_is_recorded(
    traces: dict[str, Path], measuring: type[Measuring], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Search(Measuring):
        def poll(self) -> Survey | None:  # type: ignore[override]
            return survey(traces["mixed"]) if type(self).done else None

    monkeypatch.setattr(tour_app, "Search", Search)
    async with touring(traces["other"], start="same", engine=True) as (app, pilot):
        assert app.station.missing
        assert Catalogue("en").text("looking") in unbroken_lines(app)
        Search.done = True
        await until(lambda: not app.station.missing and app.path == traces["mixed"], pilot)
        await settled(app, pilot)
        assert app.view.snapshot.round is not None
        await press(app, pilot, "down", "down", "enter", "right")
        assert app.attempt.verdict == "right"
        await press(app, pilot, "n", "o")
        assert app.path == traces["other"], "the other stations stay with the trace of the tour"
