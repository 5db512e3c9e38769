"""The tour, walked from the first station to the last: with all answers right, with all wrong, on other traces."""

from __future__ import annotations

from pathlib import Path

import pytest

from specview.tour import progress
from specview.tour.catalogue import LANGUAGES, Catalogue, Language
from specview.tour.questions import right_attempt
from specview.tour.station import ORDER, feedback
from specview.tour.words import plain
from specview.tui.tour.guide import GuidePane
from tests.tui.touring import (
    LESSON,
    keys_for,
    pane,
    press,
    settled,
    touring,
    unbroken,
    wrong_attempt,
)


@pytest.mark.parametrize("language", LANGUAGES)
async def test_all_right_answers_walk_the_whole_tour(language: Language) -> None:
    async with touring(LESSON, language) as (app, pilot):
        for key in ORDER[:-1]:
            assert app.station.key == key
            assert app.station.question is not None, "the lesson's trace has a round for every station"
            await press(app, pilot, *keys_for(app, right_attempt(app.station.question)))
            assert app.attempt.verdict == "right"
            said = plain(Catalogue(language).of(app.station, "yes"))
            assert unbroken(said) in unbroken(pane(app, GuidePane))
            await press(app, pilot, "enter")
        assert app.station.key == "close"
        assert "specview record" in pane(app, GuidePane)
        summary = Catalogue(language).say("tried", {k: _n(len(ORDER) - 1) for k in ("right", "all", "first")})
        assert unbroken(plain(summary)) in unbroken(pane(app, GuidePane))
        await pilot.press("q")
    assert progress.load().solved.keys() == set(ORDER[:-1])
    assert progress.load().at == "close"


def _n(value: int):  # type: ignore[no-untyped-def]
    from specview.tour.words import number

    return number(value)


@pytest.mark.parametrize("language", LANGUAGES)
async def test_all_wrong_answers_walk_the_whole_tour_too(language: Language) -> None:
    async with touring(LESSON, language) as (app, pilot):
        for key in ORDER[:-1]:
            assert app.station.key == key
            await press(app, pilot, *keys_for(app, wrong_attempt(app)))
            assert app.attempt.verdict == "wrong"
            assert app.hidden, "a wrong answer shows nothing"
            found = feedback(app.station, app.attempt)
            assert found is not None
            values = found[1].values if found[1] is not None else None
            said = plain(Catalogue(language).of(app.station, found[0], values))
            assert unbroken(said) in unbroken(pane(app, GuidePane))
            await press(app, pilot, "o")
            assert not app.hidden
            await press(app, pilot, "enter")
        assert app.station.key == "close"
    assert progress.load().solved == {}


@pytest.mark.parametrize(
    ("kind", "size"),
    [*((kind, (80, 24)) for kind in ("lesson", "mixed", "greedy", "other", "synthetic")), ("lesson", (120, 36))],
)
@pytest.mark.parametrize("language", LANGUAGES)
async def test_question_options_and_answer_are_all_on_the_screen(
    traces: dict[str, Path], kind: str, language: Language, size: tuple[int, int]
) -> None:
    async with touring(traces[kind], language, size) as (app, pilot):
        catalogue = Catalogue(language)
        for key in ORDER[:-1]:
            await settled(app, pilot)
            assert app.station.key == key
            question = app.station.question
            if question is None:
                shown = unbroken(pane(app, GuidePane))
                assert unbroken(plain(catalogue.of(app.station, "none"))) in shown
                await press(app, pilot, "n")
                continue
            shown = unbroken(pane(app, GuidePane))
            for part in ("lead", "ask"):
                assert unbroken(plain(catalogue.of(app.station, part))) in shown
            app._set(right_attempt(question).answered(question))
            shown = unbroken(pane(app, GuidePane))
            for part in ("ask", "yes"):
                assert unbroken(plain(catalogue.of(app.station, part))) in shown
            for option in question.options:
                label = option.label or catalogue.of(app.station, f"opt.{option.key}", option.values)
                assert unbroken(plain(label)) in shown
            await press(app, pilot, "n")
