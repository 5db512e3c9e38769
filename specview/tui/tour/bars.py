"""The first and the last line of the tour: where it stands, and which keys do something now."""

from __future__ import annotations

from specview.text import showable
from specview.tour.catalogue import Catalogue
from specview.tour.progress import Progress
from specview.tour.questions import Attempt, Estimate, Marks, Prefix
from specview.tour.station import ORDER, Station
from specview.tour.words import number
from specview.tui.ink import Line, spread, width_of
from specview.tui.tour.typeset import inks
from specview.tui.widgets.canvas import Canvas

_DISPENSABLE = ("key.list", "key.pane", "key.home", "key.again", "key.phase", "key.other", "key.language", "key.show")
"""The keys that a narrow line leaves out, first to last."""


class TourHeader(Canvas):
    """The station, the stations done, and the round under the cursor once that gives nothing away."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._left: tuple[str, str] = ("", "")
        self._progress = Progress()
        self._key = ORDER[0]
        self._round: tuple[int, int] | None = None
        self._catalogue = Catalogue("en")

    def show_station(
        self, station: Station, progress: Progress, catalogue: Catalogue, round_: tuple[int, int] | None
    ) -> None:
        """Draw the line.

        Args:
            round_: (number of the round under the cursor, how many there are), or None while that is hidden.
        """
        self._key, self._progress, self._catalogue, self._round = station.key, progress, catalogue, round_
        self.redraw()

    def draw(self, width: int, height: int) -> list[Line]:
        ink, catalogue = self.ink, self._catalogue
        place = f"{ORDER.index(self._key) + 1}/{len(ORDER)}"
        left: Line = [
            (f" specview {catalogue.text('tour')} ", ink.muted),
            (f"{place} ", ink.text),
            (catalogue.text(f"{self._key}.title"), ink.strong),
        ]
        right: Line = []
        if self._round is not None:
            index, count = self._round
            words = catalogue.say("round", {"index": number(f"{index:,}"), "count": number(f"{count:,}")})
            right = [*inks(words, ink, ink.muted), ("  ", ink.muted)]
        marks: Line = []
        for key in ORDER:
            solved = key in self._progress.solved
            sign = "✓" if solved else "·"
            style = ink.accepted if solved else ink.faint
            marks.append(("▸" if key == self._key and not solved else sign, ink.strong if key == self._key else style))
        if width_of(left) + width_of(right) + len(ORDER) + 2 > width:
            right = []
        return [spread(left, [*right, *marks, (" ", ink.text)], width, self.base)]


class TourKeys(Canvas):
    """The keys of the moment, or what the tour has to say; quit is the last to go."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._station: Station | None = None
        self._attempt = Attempt()
        self._catalogue = Catalogue("en")
        self._notice = ""

    def show_station(self, station: Station, attempt: Attempt, catalogue: Catalogue, notice: str) -> None:
        self._station, self._attempt, self._catalogue, self._notice = station, attempt, catalogue, notice
        self.redraw()

    def draw(self, width: int, height: int) -> list[Line]:
        if self._notice:
            return [[(" ", self.ink.text), (showable(self._notice), self.ink.pending)]]
        keys = self._keys()
        for dispensable in _DISPENSABLE:
            if width_of(self._line(keys)) <= width:
                break
            keys = [key for key in keys if key[1] != dispensable]
        return [self._line(keys)]

    def _keys(self) -> list[tuple[str, str]]:
        station, attempt = self._station, self._attempt
        if station is None:
            return []
        language = ("l", "key.language")
        ends = [("n b", "key.other"), ("g", "key.list"), language, ("q", "key.quit")]
        question = station.question
        if question is None:
            return [("←→", "key.step"), ("⇧←→", "key.phase"), *ends]
        if attempt.revealed:
            again = [("r", "key.again"), ("n b", "key.other"), language, ("q", "key.quit")]
            return [("enter", "key.next"), ("←→", "key.step"), ("⇧←→", "key.phase"), ("home", "key.home"), *again]
        first: list[tuple[str, str]] = [("↑↓", "key.move")]
        if isinstance(question, Estimate):
            first = [("←→", "key.slide")]
        elif isinstance(question, Marks | Prefix):
            first.append(("space", "key.mark"))
        return [*first, ("enter", "key.answer"), ("o", "key.show"), ("tab", "key.pane"), *ends]

    def _line(self, keys: list[tuple[str, str]]) -> Line:
        line: Line = [(" ", self.ink.text)]
        for key, name in keys:
            gap = "  " if len(line) > 1 else ""
            line += [(gap, self.ink.faint), (key, self.ink.key), (f" {self._catalogue.text(name)}", self.ink.muted)]
        return line
