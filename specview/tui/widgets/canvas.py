"""The base of every pane: a widget that draws whole lines, and repaints only those that changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.style import Style
from textual import events
from textual.content import Content
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from specview.tui.ink import Line, strip
from specview.tui.themes import Palette, palette


@dataclass(frozen=True, slots=True)
class Hit:
    """A place that answers to the mouse: what a click there means, and what it explains when pointed at."""

    y: int
    x: int
    width: int
    name: str
    value: int = 0
    tip: str = ""

    def holds(self, x: int, y: int) -> bool:
        return y == self.y and self.x <= x < self.x + self.width


class Canvas(Widget):
    """Subclasses implement `draw`, and call `redraw` when what they show has changed."""

    DEFAULT_CSS = """
    Canvas { width: 1fr; height: 1fr; }
    """
    ALLOW_SELECT = False

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._strips: list[Strip] = []
        self._drawn: Sequence[Line | Strip] = ()
        self._palette: Palette | None = None
        self.hits: list[Hit] = []

    @property
    def ink(self) -> Palette:
        """The styles of the theme in force."""
        if self._palette is None:
            self._palette = palette(self.app.theme)
        return self._palette

    @property
    def base(self) -> Style:
        return self.ink.base

    def draw(self, width: int, height: int) -> Sequence[Line | Strip]:
        """At most `height` lines of at most `width` cells, or strips of just so many; the rest is filled with blanks.

        May set `hits`."""
        raise NotImplementedError

    def _strips_now(self) -> list[Strip]:
        width, height = self.size
        if not width or not height:
            return []
        lines = self.draw(width, height)[:height]
        old = self._drawn if self._strips and self._strips[0].cell_length == width else ()
        strips: list[Strip] = []
        for y, line in enumerate(lines):
            if isinstance(line, Strip):
                strips.append(line)
            elif y < len(old) and y < len(self._strips) and line == old[y]:
                strips.append(self._strips[y])  # comparing is cheaper than making a strip
            else:
                strips.append(strip(line, width, self.base))
        self._drawn = lines
        strips += [strip([], width, self.base)] * (height - len(strips))
        return strips

    def redraw(self) -> None:
        """Draw again, and repaint the lines that are not what they were."""
        if not self.is_mounted:
            return
        new = self._strips_now()
        old = self._strips
        self._strips = new
        if len(old) != len(new):
            self.refresh()
            return
        changed = [y for y, line in enumerate(new) if line != old[y]]
        if changed:
            self.refresh(*(Region(0, y, self.size.width, 1) for y in changed))

    def recolour(self) -> None:
        """Draw again in the theme now in force."""
        self._palette = None
        self._strips = []
        self.redraw()

    def render_line(self, y: int) -> Strip:
        width, height = self.size
        if len(self._strips) != height or (self._strips and self._strips[0].cell_length != width):
            self._strips = self._strips_now()
        return self._strips[y] if y < len(self._strips) else strip([], width, self.base)

    def render_lines(self, crop: Region) -> list[Strip]:
        # A canvas has no border, no padding and its own background: what Textual does to add them to each line takes
        # longer than drawing it.
        width, filters, background = self.size.width, self.get_line_filters(), self.background_colors[1]
        strips: list[Strip] = []
        for y in crop.line_range:
            line = self.render_line(y)
            for line_filter in filters:
                line = line.apply_filter(line_filter, background)
            strips.append(line if crop.column_span == (0, width) else line.crop(*crop.column_span))
        return strips

    def on_resize(self, event: events.Resize) -> None:
        # Sent as well when a widget is shown again in its old size: then what was drawn still stands.
        if [line.cell_length for line in self._strips] != [event.size.width] * event.size.height:
            self._strips = []
            self.redraw()

    def hit_at(self, x: int, y: int) -> Hit | None:
        return next((hit for hit in reversed(self.hits) if hit.holds(x, y)), None)

    def on_mouse_move(self, event: events.MouseMove) -> None:
        hit = self.hit_at(event.x, event.y)
        tip = hit.tip if hit is not None and hit.tip else None
        current = self.tooltip.plain if isinstance(self.tooltip, Content) else None
        if tip != current:
            self.tooltip = Content(tip) if tip else None
