"""Breaking the guide's sentences into lines: at spaces, and between the characters of a script without them."""

from __future__ import annotations

from collections.abc import Iterable

from rich.cells import cell_len
from rich.style import Style

from specview.tour.words import Word
from specview.tui.ink import Line
from specview.tui.themes import Palette

_CLOSING = "，。：；！？、”’）》…,.;:!?)]}"
"""What never begins a line."""
_OPENING = "“‘（《([{"
"""What never ends one."""


def inks(words: Iterable[Word], ink: Palette, text: Style) -> Line:
    """Words in the colours of their roles; plain text in the style `text`."""
    return [(word.text, style_of(word.role, ink, text)) for word in words]


def style_of(role: str, ink: Palette, text: Style) -> Style:
    """The style of a word's role."""
    if role == "text":
        return text
    styles = {
        "number": ink.strong,
        "key": ink.key,
        "draft": ink.draft,
        "target": ink.target,
        "proposed": ink.draft,
        "rejected_plain": Style(color=ink.rejected.color),
    }
    return styles[role] if role in styles else ink.origin(role)


def wrapped(line: Line, width: int) -> list[Line]:
    """The pieces of a sentence as lines of at most `width` cells; a space at a break is dropped."""
    lines: list[Line] = [[]]
    used = 0
    space: Line = []
    for unit, size in _units(line):
        if unit[0][0] == " ":
            space = [*space, *unit] if used else []
            continue
        if used + len(space) + size > width and used:
            lines.append([])
            used, space = 0, []
        for text, style in (*space, *unit):
            for piece in _cut(text, width, used):
                if piece == "\n":
                    lines.append([])
                    used = 0
                    continue
                lines[-1].append((piece, style))
                used += cell_len(piece)
        space = []
    return [_joined(pieces) for pieces in lines]


def _cut(text: str, width: int, used: int) -> list[str]:
    """The characters that fit, a line break, the rest: for a unit wider than the line."""
    if used + cell_len(text) <= width:
        return [text]
    out: list[str] = []
    for char in text:
        size = cell_len(char)
        if used + size > width and used:
            out.append("\n")
            used = 0
        out.append(char)
        used += size
    return out


def _units(line: Line) -> list[tuple[Line, int]]:
    """The sentence in pieces that stay whole, each with its width; a space is a piece of its own."""
    units: list[tuple[Line, int]] = []
    glue = False
    previous = ""
    for text, style in line:
        for char in text:
            size = cell_len(char)
            wide = size == 2
            if char == " ":
                units.append(([(char, style)], 1))
                glue, previous = False, char
                continue
            joins = glue and (
                char in _CLOSING or previous in _OPENING or size == 0 or not (wide or cell_len(previous) == 2)
            )
            if joins:
                unit, had = units[-1]
                unit.append((char, style))
                units[-1] = unit, had + size
            else:
                units.append(([(char, style)], size))
            glue, previous = True, char
    return units


def _joined(pieces: Line) -> Line:
    """Neighbours of one style as one piece."""
    out: Line = []
    for text, style in pieces:
        if out and out[-1][1] is style:
            out[-1] = (out[-1][0] + text, style)
        else:
            out.append((text, style))
    return out
