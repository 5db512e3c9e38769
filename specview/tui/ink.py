"""Lines made of inked pieces: every strip that leaves here is exactly as wide as it was asked to be.

Widgets never build markup. They build `Ink`, pairs of showable text and style, and cells are counted here alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache

from rich.cells import cell_len, chop_cells, set_cell_size
from rich.segment import Segment
from rich.style import Style
from textual.color import Color
from textual.filter import LineFilter
from textual.strip import Strip

Ink = tuple[str, Style]
Line = list[Ink]


def width_of(line: Iterable[Ink]) -> int:
    """Cells that a line takes."""
    return sum(cell_len(text) for text, _ in line)


@lru_cache(maxsize=16384)
def fit(text: str, width: int, *, right: bool = False) -> str:
    """`text` in exactly `width` cells; what does not fit ends with an ellipsis."""
    if width <= 0:
        return ""
    if len(text) > width * 8:  # a megabyte of text is not worth measuring to show ten cells of it
        text = text[: width * 8]
    size = cell_len(text)
    if size > width:
        return set_cell_size(text, width - 1) + "…" if width > 1 else "…"
    return " " * (width - size) + text if right else text + " " * (width - size)


_OVER: dict[tuple[int, int], tuple[Style, Style, Style]] = {}
_MOST = 8192


def over(base: Style, style: Style) -> Style:
    """`style` on top of `base`, the same object each time: rich compares and hashes styles slowly, identity is free."""
    key = (id(base), id(style))
    found = _OVER.get(key)
    if found is None:
        if len(_OVER) >= _MOST:
            _OVER.clear()
        # Holding on to both keeps their ids theirs.
        found = _OVER[key] = (base + style, base, style)
    return found[0]


def merged(line: Iterable[Ink]) -> Line:
    """Neighbours of the very same style become one piece."""
    out: Line = []
    last: Style | None = None
    texts: list[str] = []
    for text, style in line:
        if style is not last:
            if last is not None:
                out.append(("".join(texts), last))
            texts, last = [], style
        texts.append(text)
    if last is not None:
        out.append(("".join(texts), last))
    return out


class InkStrip(Strip):
    """A strip that goes when nobody holds it any more.

    Textual's own keeps itself in its cache when it is cut to its full width. Each painted line would then wait for the
    garbage collector, whose pauses are longer than painting.
    """

    __slots__ = ("_filtered",)

    def __init__(self, segments: Iterable[Segment], cell_length: int | None = None) -> None:
        super().__init__(segments, cell_length)
        self._filtered: tuple[LineFilter, Color, Strip] | None = None

    def divide(self, cuts: Iterable[int]) -> Sequence[Strip]:
        cuts = list(cuts)
        return [self] if cuts == [self.cell_length] else super().divide(cuts)

    def apply_filter(self, filter: LineFilter, background: Color) -> Strip:
        found = self._filtered
        if found is None or found[0] is not filter or found[1] != background:
            filtered = InkStrip(filter.apply(list(self), background), self.cell_length)
            found = self._filtered = (filter, background, filtered)
        return found[2]


def strip(line: Iterable[Ink], width: int, base: Style) -> Strip:
    """A strip of exactly `width` cells on the `base` style: cropped, or padded with blanks."""
    segments: list[Segment] = []
    left = width
    for text, style in line:
        if left <= 0:
            break
        size = cell_len(text)
        if size > left:
            text, size = set_cell_size(text, left), left
        if text:
            segments.append(Segment(text, over(base, style)))
        left -= size
    if left > 0:
        segments.append(Segment(" " * left, base))
    return InkStrip(segments, width)


def spread(left: Line, right: Line, width: int, style: Style) -> Line:
    """`left` and `right` pushed to the two ends; `left` is cropped first when they meet."""
    room = width - width_of(right)
    if room <= 0:
        return right if right else left
    used = width_of(left)
    if used > room - 1:
        return [*crop(left, max(0, room - 1)), (" ", style), *right]
    return [*left, (" " * (room - used), style), *right]


def crop(line: Iterable[Ink], width: int) -> Line:
    """The first `width` cells of a line, with an ellipsis where something was left out."""
    out: Line = []
    left = width
    for text, style in line:
        size = cell_len(text)
        if size > left:
            if left > 0:
                out.append((fit(text, left), style))
            return out
        out.append((text, style))
        left -= size
    return out


def wrap(line: Iterable[Ink], width: int) -> list[Line]:
    """Break a sentence of inked pieces at spaces, and words that are too long anywhere, into lines of `width` cells."""
    lines: list[Line] = [[]]
    used = 0
    for text, style in line:
        for index, word in enumerate(text.split(" ")):
            gap = 1 if index and used else 0
            size = cell_len(word)
            if used + gap + size > width and used:
                lines.append([])
                used, gap = 0, 0
            if gap:
                lines[-1].append((" ", style))
            *full, word = chop_cells(word, max(2, width)) if size > width else [word]
            for part in full:
                lines[-1].append((part, style))
                lines.append([])
                used, gap = 0, 0
            if word:
                lines[-1].append((word, style))
            used += gap + cell_len(word)
    return lines


EIGHTHS = " ▏▎▍▌▋▊▉█"
LEVELS = " ▁▂▃▄▅▆▇█"


def bar(share: float, width: int) -> str:
    """A horizontal bar of `share` (0…1) of `width` cells, to an eighth of a cell; anything above 0 is visible."""
    if width <= 0:
        return ""
    eighths = round(min(1.0, max(0.0, share)) * width * 8)
    if share > 0:
        eighths = max(1, eighths)
    full, rest = divmod(eighths, 8)
    text = "█" * full + (EIGHTHS[rest] if rest else "")
    return text + " " * (width - len(text))
