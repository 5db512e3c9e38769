"""`specview tour` on the screen: the inspector with a guide beside it that asks first and shows afterwards."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType

from specview.tour import measure
from specview.tour import progress as progress_file
from specview.tour.catalogue import LANGUAGES, Catalogue, Language
from specview.tour.costs import awaited, recorded
from specview.tour.measure import CostMeasurement, Search
from specview.tour.questions import Attempt, Choice, Estimate
from specview.tour.station import ORDER
from specview.tour.stations import stations
from specview.tour.survey import Place, Survey
from specview.tour.words import Word, plain
from specview.tui.model.cursor import Cursor
from specview.tui.model.feed import Feed
from specview.tui.model.snapshot import Snapshot
from specview.tui.screens.choose import ChooseScreen
from specview.tui.tour.guide import GuidePane
from specview.tui.tour.panes import TourRound
from specview.tui.tour.stage import TourStage
from specview.tui.widgets.canvas import Canvas
from specview.tui.widgets.output import OutputPane

POLL_SECONDS = 0.3
AHEAD = 4
"""The machine is measured from this many stations before the one that needs it, so that nobody waits."""


def _key(keys: str, action: str, text: str = "") -> Binding:
    return Binding(keys, action, text or action, show=False)


class TourApp(TourStage, inherit_bindings=False):
    """The tour over one trace.

    Args:
        found: the trace, looked at.
        language: of the guide; `l` changes it.
        start: key of the first station; None goes on where the tour was left.
        engine: whether models may be run, to measure and to record what the trace lacks.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        _key("enter", "answer"),
        _key("space", "mark"),
        _key("right,full_stop", "sideways(1)"),
        _key("left,comma", "sideways(-1)"),
        _key("shift+right", "phase(1)"),
        _key("shift+left", "phase(-1)"),
        _key("home", "home"),
        _key("n,right_square_bracket,pagedown", "other(1)"),
        _key("b,left_square_bracket,pageup", "other(-1)"),
        _key("g", "list"),
        _key("o", "show"),
        _key("r", "again"),
        _key("l", "language"),
        # Before the screen's own, which would take the panes in the order in which they stand.
        Binding("tab", "next_pane", "next pane", show=False, priority=True),
        _key("d", "next_theme"),
        _key("p", "picture"),
        _key("q,ctrl+c,ctrl+q", "quit"),
    ]

    def __init__(self, found: Survey, language: Language, *, start: str | None = None, engine: bool = False) -> None:
        super().__init__(found, language, measure.found_before())
        self._engine = engine
        self._start = start
        self._measurement: CostMeasurement | None = None
        self._search: Search | None = None

    def on_mount(self) -> None:
        self.watch_signals()
        try:
            self.progress = progress_file.load()
        except OSError as error:
            self._say_unsaved(error)
        key = self._start or self.progress.at
        self.index = ORDER.index(key) if key in ORDER else 0
        self.query_one(GuidePane).focus()
        self.feed.start()
        self.set_interval(POLL_SECONDS, self._look_at_children)
        self._visit(self.index)

    def on_unmount(self) -> None:
        self.feed.close()
        for child in (self._measurement, self._search):
            if child is not None:
                child.close()

    def on_resize(self, event: events.Resize) -> None:
        self._arrange(event.size.width, event.size.height)

    def _note(self) -> str:
        if self.station.key == "same" and self._search is not None:
            return "looking"
        return ""

    # Going through the stations

    def _visit(self, index: int) -> None:
        """Go to a station, and to its round."""
        self.index = max(0, min(index, len(self.stations) - 1))
        self._save(self.progress.moved(self.station.key))
        self._prepare()
        self._arrange()
        self._go_home()
        self._draw()

    def _phase(self) -> str:
        return self.station.veil.phase if self.hidden else self.station.after

    def _go_home(self) -> None:
        """The station's own round, in the phase that may be seen."""
        station = self.station
        place = station.place or self._survey.cases[0].place
        self._open(place)
        self.look(_cursor(place, self._phase()))
        self.set_quietly(selected=station.selected)

    def _open(self, place: Place) -> None:
        """Read another trace from now on, if the place is in one."""
        if place.path == self.path:
            return
        self.feed.close()
        self.path = place.path

        def deliver(snapshot: Snapshot) -> None:
            if self.path == place.path:
                self._deliver(snapshot)

        self.feed = Feed(place.path, deliver, self._thread_failed, follow=False)
        self.feed.start()

    def _prepare(self) -> None:
        """Start what this station, or one of the next, needs from the engine."""
        if not self._engine:
            return
        ahead = ORDER[self.index : self.index + AHEAD + 1]
        if "cost" in ahead and self._measurement is None and self._figures.source == "recorded":
            self._measurement = CostMeasurement()
            self._figures = awaited(self._survey)
            self._rebuild()
        same = next(s for s in self.stations if s.key == "same")
        if "same" in ahead and same.missing and self._search is None:
            self._search = Search()

    def _look_at_children(self) -> None:
        """Take over what a child has measured or recorded."""
        if self._measurement is not None and self._figures.source == "measuring":
            figures = self._measurement.poll()
            if figures is not None or self._measurement.failed:
                self._figures = figures or recorded(self._survey)
                if self._measurement.failed:
                    self.say(self._measurement.failed)
                self._rebuild()
        if self._search is not None and self._found is None:
            self._found = self._search.poll()
            if self._found is not None or self._search.failed:
                if self._search.failed:
                    self.say(self._search.failed)
                self._rebuild()
                if self.station.key == "same":
                    self._visit(self.index)

    def _rebuild(self) -> None:
        self.stations = stations(self._survey, self._figures, self._found)
        self._arrange()
        self._draw()

    def _set(self, attempt: Attempt) -> None:
        self.attempts[self.station.key] = attempt
        self._draw()

    def _save(self, progress: progress_file.Progress) -> None:
        if progress == self.progress:
            return
        self.progress = progress
        try:
            progress_file.save(progress)
        except OSError as error:
            self._say_unsaved(error)

    def _say_unsaved(self, error: OSError) -> None:
        self.say(plain(self._catalogue.say("unsaved", {"why": Word(error.strerror or str(error))})))

    # Keys

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """The tour's keys rest while the list of stations is open."""
        if len(self.screen_stack) > 1 and action in _OWN:
            return False
        return super().check_action(action, parameters)

    def action_move(self, by: int) -> None:
        if self.station.question is not None and not self.attempt.revealed:
            self._set(self.attempt.move(self.station.question, by))

    def action_mark(self) -> None:
        """Mark the option; where one is to be chosen, space chooses like enter."""
        question = self.station.question
        if question is None or self.attempt.revealed:
            return
        if isinstance(question, Choice):
            self.action_answer()
        else:
            self._set(self.attempt.toggle(question))

    def action_answer(self) -> None:
        """Answer; once the outcome is shown, go on."""
        station, attempt = self.station, self.attempt
        if station.question is None or attempt.revealed:
            self.action_other(1)
            return
        if self._must_wait():
            return
        answered = attempt.answered(station.question)
        self._save(self.progress.after(station.key, answered))
        self._set(answered)
        if answered.revealed:
            self._go_home()

    def action_show(self) -> None:
        if self.station.question is not None and not self.attempt.revealed and not self._must_wait():
            self._set(self.attempt.shown())
            self._go_home()

    def _must_wait(self) -> bool:
        """The value that was asked for is still being measured; the guide then says so."""
        question = self.station.question
        if not isinstance(question, Estimate) or question.value is not None:
            return False
        self._set(replace(self.attempt, verdict="wrong"))
        return True

    def action_again(self) -> None:
        if self.station.question is not None:
            self._set(self.attempt.again())
            self._go_home()

    def action_sideways(self, by: int) -> None:
        """An estimate moves; otherwise the rounds do, as in the inspector, once nothing is given away by it."""
        if self.hidden and isinstance(self.station.question, Estimate):
            self._set(self.attempt.slide(self.station.question, by))
        else:
            self.action_step(by)

    def action_phase(self, by: int) -> None:
        self.action_step_phase(by)

    def action_home(self) -> None:
        self._go_home()

    def go(self, cursor: Cursor, *, keep_playing: bool = False) -> None:
        """Look at another place, by key or by mouse, once the outcome is no secret any more."""
        if self._free():
            super().go(cursor, keep_playing=keep_playing)

    def _free(self) -> bool:
        if self.hidden:
            self.say(self._catalogue.text("later"))
        return not self.hidden

    def action_other(self, by: int) -> None:
        self._visit(self.index + by)

    def action_list(self) -> None:
        lines = [
            f"{'✓' if key in self.progress.solved else ' '} {i:>2}  {self._catalogue.text(f'{key}.title')}"
            for i, key in enumerate(ORDER, start=1)
        ]
        chosen: Callable[[int | None], None] = lambda index: self._visit(index) if index is not None else None  # noqa: E731
        self.push_screen(ChooseScreen(self._catalogue.text("stations"), lines, self.index), chosen)

    def action_language(self) -> None:
        self.language = LANGUAGES[(LANGUAGES.index(self.language) + 1) % len(LANGUAGES)]
        self._catalogue = Catalogue(self.language)
        self._draw()

    def action_next_pane(self) -> None:
        """Guide, round, output, and around."""
        panes: tuple[Canvas, ...] = (self.query_one(GuidePane), self.query_one(TourRound), self.query_one(OutputPane))
        shown = [pane for pane in panes if pane.display]
        here = shown.index(self.focused) if self.focused in shown else -1
        shown[(here + 1) % len(shown)].focus()

    async def action_quit(self) -> None:
        self.exit()


_OWN = {b.action.partition("(")[0] for b in TourApp.BINDINGS if isinstance(b, Binding) and b.action != "quit"} | {
    "move"
}


def _cursor(place: Place, phase: str) -> Cursor:
    return Cursor(place.run, place.sequence, place.round, phase)  # type: ignore[arg-type]
