"""A canvas taller than its window: it draws all its lines once, and scrolls over them."""

from __future__ import annotations

from typing import ClassVar

from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.scroll_view import ScrollView
from textual.strip import Strip

from specview.tui.ink import Line, strip
from specview.tui.themes import Palette, palette


class ScrollCanvas(ScrollView, can_focus=True):
    """Subclasses implement `draw`; `j` `k` `g` `G` scroll as in vim."""

    DEFAULT_CSS = """
    ScrollCanvas {
        overflow-x: hidden; scrollbar-size: 1 1; scrollbar-gutter: stable;
        scrollbar-color: $rule; scrollbar-color-hover: $muted; scrollbar-color-active: $muted;
        scrollbar-background: $background; scrollbar-background-hover: $background;
        scrollbar-background-active: $background;
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j", "scroll_down", "down", show=False),
        Binding("k", "scroll_up", "up", show=False),
        Binding("g", "scroll_home", "top", show=False),
        Binding("G,shift+g", "scroll_end", "bottom", show=False),
    ]
    ALLOW_SELECT = False

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._strips: list[Strip] = []
        self._palette: Palette | None = None

    @property
    def ink(self) -> Palette:
        """The styles of the theme in force."""
        if self._palette is None:
            self._palette = palette(self.app.theme)
        return self._palette

    @property
    def base(self) -> Style:
        return self.ink.base

    def draw(self, width: int, height: int) -> list[Line]:
        """All lines, of at most `width` cells; `height` is what is visible without scrolling."""
        raise NotImplementedError

    def redraw(self) -> None:
        width = self.scrollable_content_region.width or self.size.width
        if not width:
            return
        lines = self.draw(width, self.size.height)
        self._strips = [strip(line, width, self.base) for line in lines]
        self.virtual_size = Size(width, len(lines))
        self.refresh()

    def recolour(self) -> None:
        """Draw again in the theme now in force."""
        self._palette = None
        self.redraw()

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return len(self.draw(width, viewport.height))

    def on_resize(self, event: events.Resize) -> None:
        self.redraw()

    def render_line(self, y: int) -> Strip:
        width = self.size.width
        index = y + self.scroll_offset.y
        if index < len(self._strips):
            return self._strips[index].adjust_cell_length(width, self.base)
        return Strip.blank(width, self.base)
