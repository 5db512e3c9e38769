"""The stage of the tour: the panes, the station that they show, and what of it they may show yet."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical

from specview.tour import progress as progress_file
from specview.tour.catalogue import Catalogue, Language
from specview.tour.costs import Figures, recorded
from specview.tour.questions import Attempt
from specview.tour.station import Station
from specview.tour.stations import stations
from specview.tour.survey import Survey
from specview.tour.words import Words, number
from specview.tui.model.playback import Pace
from specview.tui.model.view import View
from specview.tui.showing import Showing
from specview.tui.tour.bars import TourHeader, TourKeys
from specview.tui.tour.exhibit import ExhibitPane
from specview.tui.tour.guide import GuidePane
from specview.tui.tour.layout import tour_layout
from specview.tui.tour.panes import TourRound, TourTimeline
from specview.tui.tour.veil import at_home, hidden, veiled, veiled_kv
from specview.tui.widgets.kv import KvPane
from specview.tui.widgets.lines import HorizontalRule, TooSmall, VerticalRule
from specview.tui.widgets.output import OutputPane


class TourStage(Showing):
    """Draws the station at `index`; whoever changes something calls `_draw`, or `_arrange` when panes come or go.

    Args:
        found: the trace of the tour, looked at.
        language: of the guide.
        lent: another trace, for what the first one lacks.
    """

    CSS_PATH = "tour.tcss"
    ENABLE_COMMAND_PALETTE = False

    def __init__(self, found: Survey, language: Language, lent: Survey | None) -> None:
        super().__init__(found.path, follow=False, child=None, pace=Pace())
        self._survey = found
        self._figures: Figures = recorded(found)
        self._found = lent
        self.stations: tuple[Station, ...] = stations(found, self._figures, lent)
        self.index = 0
        self.attempts: dict[str, Attempt] = {}
        self.progress = progress_file.Progress()
        self.language: Language = language
        self._catalogue = Catalogue(language)

    @property
    def station(self) -> Station:
        return self.stations[self.index]

    @property
    def attempt(self) -> Attempt:
        return self.attempts.get(self.station.key, Attempt())

    @property
    def hidden(self) -> bool:
        """The outcome of this station is still to be predicted."""
        return hidden(self.station, self.attempt)

    def compose(self) -> ComposeResult:
        yield TourHeader(id="header")
        with Horizontal(id="body"):
            yield GuidePane(id="guide")
            yield VerticalRule(id="gap")
            with Vertical(id="inspector"):
                yield OutputPane(id="output")
                yield HorizontalRule(id="thin")
                yield ExhibitPane(id="exhibit")
                yield TourRound(id="round")
        yield HorizontalRule(id="rule")
        yield KvPane(id="kv")
        yield TourTimeline(id="timeline")
        yield TourKeys(id="keys")
        yield TooSmall(id="small")

    def _arrange(self, width: int | None = None, height: int | None = None) -> None:
        """Give each pane the rows that the size and the station allow."""
        if not self.query("#small"):
            return
        station = self.station
        plan = tour_layout(
            width or self.size.width,
            height or self.size.height,
            station.exhibit if not station.missing else None,
            kv=station.kv,
            timeline=station.timeline,
        )
        for name in ("#header", "#body", "#keys"):
            self.query_one(name).display = not plan.too_small
        self.query_one("#small").display = plan.too_small
        self.query_one("#guide").styles.width = max(1, plan.guide)
        for name, rows in (
            ("#output", plan.output),
            ("#exhibit", plan.exhibit),
            ("#kv", plan.kv),
            ("#timeline", plan.timeline),
            ("#rule", 1 if plan.kv or plan.timeline else 0),
        ):
            widget = self.query_one(name)
            widget.styles.height = max(1, rows)
            widget.display = rows > 0
        self.query_one("#round").display = plan.round

    def watch_view(self, before: View, view: View) -> None:
        self._draw(view)

    def _draw(self, view: View | None = None) -> None:
        """Show the station and the view to every pane; while the outcome is hidden, only what the veil lets through."""
        if not self.query("#small"):
            return
        view = view if view is not None else self.view
        station, attempt = self.station, self.attempt
        home = at_home(view, station)
        behind = self.hidden
        with self.batch_update():
            if home or not behind:
                self.query_one(TourRound).hidden = behind
                self.query_one(TourTimeline).hidden = behind or view.snapshot.round is None
                self.query_one(OutputPane).show(veiled(view, station, attempt))
                self.query_one(TourRound).show(veiled(view, station, attempt))
                self.query_one(KvPane).show(veiled_kv(view, station, attempt))
                self.query_one(TourTimeline).show(view)
            snapshot = view.snapshot
            place = None if behind or snapshot.round is None else (snapshot.cursor.round + 1, snapshot.round_count)
            note = self._note()
            self.query_one(GuidePane).show_station(
                station, attempt, self._catalogue, note=note, summary=self._summary()
            )
            self.query_one(ExhibitPane).show_station(station, self._catalogue, hidden=behind)
            self.query_one(TourHeader).show_station(station, self.progress, self._catalogue, place)
            self.query_one(TourKeys).show_station(station, attempt, self._catalogue, view.notice)

    def _note(self) -> str:
        """The key of a sentence about what goes on meanwhile."""
        return ""

    def _summary(self) -> Words:
        asked = sum(1 for s in self.stations if s.question is not None)
        solved = self.progress.solved
        values = {"right": number(len(solved)), "all": number(asked), "first": number(self.progress.first)}
        return self._catalogue.say("tried", values)
