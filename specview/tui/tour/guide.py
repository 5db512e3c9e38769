"""The guide: says what the station is about, asks, takes the prediction, and answers it."""

from __future__ import annotations

from typing import ClassVar

from rich.cells import cell_len
from textual.binding import Binding, BindingType

from specview.tour.catalogue import Catalogue
from specview.tour.questions import Attempt, Choice, Estimate, Marks, Option, Prefix, Question, nearest
from specview.tour.station import Station, feedback
from specview.tour.words import Word, Words
from specview.tui.ink import Line, crop
from specview.tui.tour.typeset import inks, wrapped
from specview.tui.widgets.canvas import Canvas
from specview.tui.widgets.pane import on

RECORD = "specview record --draft DRAFT --target TARGET --prompt TEXT"
"""The command that the closing station offers."""
REPLAY = "specview replay"


class GuidePane(Canvas):
    """Where the lead does not fit beside the answer, it folds away; question, options and answer always show."""

    can_focus = True
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("down,j", "app.move(1)", show=False),
        Binding("up,k", "app.move(-1)", show=False),
    ]

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._station: Station | None = None
        self._attempt = Attempt()
        self._catalogue: Catalogue | None = None
        self._note = ""
        self._summary: Words = ()

    def show_station(
        self, station: Station, attempt: Attempt, catalogue: Catalogue, *, note: str = "", summary: Words = ()
    ) -> None:
        """Draw this station.

        Args:
            note: key of a sentence about what goes on meanwhile (a recording, a measurement).
            summary: how many stations are predicted, for the closing one.
        """
        self._station, self._attempt, self._catalogue = station, attempt, catalogue
        self._note, self._summary = note, summary
        self.redraw()

    def draw(self, width: int, height: int) -> list[Line]:
        station, catalogue = self._station, self._catalogue
        if station is None or catalogue is None:
            return []
        inner = width - 2
        margin: Line = [(" ", self.ink.text)]
        lines = self._compose_lines(station, catalogue, inner, height)
        return [[*margin, *line] for line in lines]

    def _compose_lines(self, station: Station, catalogue: Catalogue, width: int, height: int) -> list[Line]:
        ink = self.ink
        if station.missing:
            return self._missing(station, catalogue, width)
        lead = wrapped(inks(catalogue.of(station, "lead"), ink, ink.text), width)
        if station.question is None:
            lines = [*lead, *self._farewell(station, catalogue, width)]
            return [[], *lines] if len(lines) + 4 <= height else lines
        ask = wrapped(
            [(f"{catalogue.text('question')}  ", ink.pending), *inks(catalogue.of(station, "ask"), ink, ink.strong)],
            width,
        )
        answer = self._answer(station, catalogue, width)
        needed = len(ask) + (len(answer) + 1 if answer else 0)
        options = self._options(station, station.question, catalogue, width, max(3, height - needed - 1))
        needed += len(options)
        if len(lead) + 1 + needed <= height:
            spare = height - len(lead) - 1 - needed
            gap: list[Line] = [[]] if spare >= 1 else []
            top: list[Line] = [[]] if spare >= 4 else []
            return [*top, *lead, [], *ask, *gap, *options, *([[], *answer] if answer else [])]
        return [*ask, *([[]] if needed + 1 <= height else []), *options, *([[], *answer] if answer else [])]

    def _missing(self, station: Station, catalogue: Catalogue, width: int) -> list[Line]:
        ink = self.ink
        lines = wrapped([(catalogue.text("missing"), ink.strong)], width)
        lines += [[], *wrapped(inks(catalogue.of(station, "none"), ink, ink.text), width)]
        if self._note:
            lines += [[], *wrapped([(catalogue.text(self._note), ink.pending)], width)]
        return lines

    def _farewell(self, station: Station, catalogue: Catalogue, width: int) -> list[Line]:
        ink = self.ink
        lines: list[Line] = [[], *wrapped(inks(catalogue.of(station, "record"), ink, ink.strong), width)]
        for command in (RECORD, REPLAY):
            lines += [[("  ", ink.text), *line] for line in wrapped([(command, ink.correction)], width - 2)]
        lines += [[], *wrapped(inks(catalogue.of(station, "look"), ink, ink.text), width)]
        if self._summary:
            lines += [[], *wrapped(inks(self._summary, ink, ink.muted), width)]
        return lines

    # The question

    def _options(self, station: Station, question: Question, catalogue: Catalogue, width: int, room: int) -> list[Line]:
        if isinstance(question, Estimate):
            return self._scale(question, width)
        lines = [
            line
            for index, option in enumerate(question.options)
            for line in self._option(station, question, index, self._label(station, option, catalogue), width)
        ]
        if len(lines) <= room:
            return lines
        first = max(0, min(self._attempt.cursor - room // 2, len(lines) - room))
        return lines[first : first + room]

    def _label(self, station: Station, option: Option, catalogue: Catalogue) -> Words:
        return option.label or catalogue.of(station, f"opt.{option.key}", option.values)

    def _option(self, station: Station, question: Question, index: int, label: Words, width: int) -> list[Line]:
        ink, attempt = self.ink, self._attempt
        here = index == attempt.cursor and not attempt.revealed
        sign = "›" if here else " "
        box: Line = []
        if isinstance(question, Marks | Prefix):
            marked = index in attempt.marked if isinstance(question, Marks) else index < attempt.count
            box = [("[x] " if marked else "[ ] ", ink.strong if marked else ink.faint)]
        lead: Line = [(f"{sign} ", ink.strong), *box]
        if attempt.revealed:
            right = _right(question, index)
            lead[0] = ("✓ " if right else "  ", ink.accepted)
        indent = sum(cell_len(text) for text, _ in lead)
        text = wrapped(inks(label, ink, ink.text), width - indent)
        lines: list[Line] = [[*lead, *text[0]], *([(" " * indent, ink.text), *more] for more in text[1:])]
        if not here:
            return lines
        return [[on(ink.raised, piece) for piece in _filled(line, width, ink.text)] for line in lines]

    def _scale(self, question: Estimate, width: int) -> list[Line]:
        """The estimate on its scale, and the true value below it once it is shown."""
        ink, attempt = self.ink, self._attempt
        steps = question.steps
        step = min(attempt.step, len(steps) - 1)
        room = max(4, width - 2)
        at = round(step / max(1, len(steps) - 1) * (room - 1))
        figure = f"{steps[step]:g}×"
        line: Line = [("─" * at, ink.faint), ("●", ink.strong), ("─" * (room - at - 1), ink.faint)]
        lines: list[Line] = [[(" " * max(0, min(at, room - len(figure))), ink.text), (figure, ink.strong)], line]
        ends = (f"{steps[0]:g}×", f"{steps[-1]:g}×")
        below: Line = [(ends[0], ink.faint), (" " * (room - len(ends[0]) - len(ends[1])), ink.faint)]
        below.append((ends[1], ink.faint))
        if attempt.revealed and question.value is not None:
            place = round(nearest(steps, question.value) / max(1, len(steps) - 1) * (room - 1))
            text = f"▲ {question.value:.2f}×"
            below = [(" " * max(0, min(place, room - len(text))), ink.text), (text, ink.accepted)]
        return [*lines, below]

    # The answer

    def _answer(self, station: Station, catalogue: Catalogue, width: int) -> list[Line]:
        ink, attempt = self.ink, self._attempt
        found = feedback(station, attempt)
        words: Line = []
        if found is not None:
            part, option = found
            right = attempt.verdict == "right"
            sign, style = ("✓ ", ink.accepted) if right else ("✗ ", ink.warning)
            verdict = Word(catalogue.text("right" if right else "wrong") + " ", "text")
            said = catalogue.of(station, part, option.values if option is not None else None)
            words = [(sign, style), (verdict.text, style), *inks(said, ink, ink.text)]
        elif attempt.revealed and station.question is not None:
            said = catalogue.of(station, "yes")
            words = [(f"{catalogue.text('shown')} ", ink.pending), *inks(said, ink, ink.text)]
        lines = wrapped(words, width) if words else []
        if self._note:
            lines += wrapped([(catalogue.text(self._note), ink.pending)], width)
        return lines


def _right(question: Question, index: int) -> bool:
    """Whether the option is part of the right answer."""
    if isinstance(question, Choice):
        return index == question.right
    if isinstance(question, Prefix):
        return index < question.right
    return isinstance(question, Marks) and index in question.right


def _filled(line: Line, width: int, style: object) -> Line:
    """The line with blanks to its end, so that a raised background runs through."""
    used = sum(cell_len(text) for text, _ in line)
    return [*crop(line, width), (" " * max(0, width - used), line[-1][1])]
