"""Draws the exhibits: the mask, the histogram, the bars. What belongs to the outcome shows as a question mark."""

from __future__ import annotations

from rich.cells import cell_len

from specview.tour.catalogue import Catalogue
from specview.tour.exhibits import Bars, Exhibit, Histogram, Mask
from specview.tour.station import Station
from specview.tour.words import plain
from specview.tui.ink import Line, bar, crop, fit
from specview.tui.tour.typeset import inks, style_of, wrapped
from specview.tui.widgets.canvas import Canvas

_SUBSCRIPTS = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")


class ExhibitPane(Canvas):
    """Shows the exhibit of one station."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._station: Station | None = None
        self._catalogue: Catalogue | None = None
        self._hidden = True

    def show_station(self, station: Station, catalogue: Catalogue, *, hidden: bool) -> None:
        self._station, self._catalogue, self._hidden = station, catalogue, hidden
        self.redraw()

    def draw(self, width: int, height: int) -> list[Line]:
        station, catalogue = self._station, self._catalogue
        if station is None or catalogue is None or station.exhibit is None:
            return []
        title = inks(catalogue.of(station, "exhibit"), self.ink, self.ink.muted)
        return [title, *(crop(line, width) for line in self._draw(station, station.exhibit, catalogue, width))]

    def _draw(self, station: Station, exhibit: Exhibit, catalogue: Catalogue, width: int) -> list[Line]:
        if isinstance(exhibit, Mask):
            return self._mask(exhibit, width)
        if isinstance(exhibit, Histogram):
            return self._histogram(exhibit, width)
        return self._bars(station, exhibit, catalogue, width)

    def _mask(self, mask: Mask, width: int) -> list[Line]:
        """A row a distribution, a column a piece of its prefix."""
        ink = self.ink
        room = max(3, min(12, (width - 5) // len(mask.columns) - 1))
        head: Line = [("     ", ink.faint)]
        for column in mask.columns:
            head += [(fit(column.text, room), style_of(column.role, ink, ink.text)), (" ", ink.text)]
        lines = [head]
        for row in range(1, mask.rows + 1):
            asked = row == mask.asked
            label = "p" + str(row).translate(_SUBSCRIPTS)
            line: Line = [("› " if asked else "  ", ink.strong), (label, ink.target)]
            line.append((" " * (3 - cell_len(label)), ink.text))
            for place in range(len(mask.columns)):
                if self._hidden:
                    cell, style = "?", ink.faint
                elif mask.sees(row, place):
                    cell, style = "█" * room, ink.target if asked else ink.muted
                else:
                    cell, style = "·", ink.faint
                line += [(cell.ljust(room), style), (" ", ink.text)]
            lines.append(line)
        return lines

    def _histogram(self, histogram: Histogram, width: int) -> list[Line]:
        ink = self.ink
        most = max((rounds for _, rounds in histogram.counts), default=0) or 1
        room = max(4, width - 12)
        lines: list[Line] = []
        for tokens, rounds in histogram.counts:
            line: Line = [(f"{tokens:>3} ", ink.strong)]
            if self._hidden:
                line.append(("?", ink.faint))
            else:
                line += [(bar(rounds / most, room), ink.accepted), (f"{rounds:>6,}", ink.text)]
            lines.append(line)
        return lines

    def _bars(self, station: Station, bars: Bars, catalogue: Catalogue, width: int) -> list[Line]:
        ink = self.ink
        lines: list[Line] = []
        labels = {
            b.key + plain(tuple(b.values.values())): catalogue.of(station, f"bar.{b.key}", b.values)
            for group in bars.groups
            for b in group
        }
        wide = max((cell_len(plain(words)) for words in labels.values()), default=0) + 1
        figures = max((len(b.text) for group in bars.groups for b in group), default=0) + 1
        room = max(4, width - wide - figures - 1)
        for group in bars.groups:
            known = [b.amount for b in group if b.amount is not None and not (self._hidden and b.late)]
            # A scale on which the hidden bar has room too, so that nothing about its length shows.
            scale = max(known, default=1.0) * (2 if self._hidden else 1) or 1.0
            for item in group:
                words = labels[item.key + plain(tuple(item.values.values()))]
                label: Line = inks(words, ink, ink.muted)
                line: Line = [*label, (" " * (wide - cell_len(plain(words))), ink.text)]
                if (self._hidden and item.late) or item.amount is None:
                    line.append(("?", ink.faint))
                else:
                    line.append((bar(item.amount / scale, room), style_of(item.role, ink, ink.text)))
                    line.append((item.text.rjust(figures), ink.strong))
                lines.append(line)
            lines.append([])
        if bars.note:
            lines += wrapped(inks(catalogue.of(station, f"note.{bars.note}", bars.values), ink, ink.faint), width)
        return lines
