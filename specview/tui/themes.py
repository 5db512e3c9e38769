"""Colours: one accent per meaning, the same in text, table, lane and timeline.

A `Palette` holds the styles that widgets draw with. Every state is also told by a glyph and by bold, dim, underline or
strike, so that the screen reads the same with no colour at all.
"""

from __future__ import annotations

from dataclasses import dataclass

from rich.color import Color
from rich.style import Style
from textual.theme import Theme


@dataclass(frozen=True, slots=True)
class Colours:
    """One theme, as colour names that rich understands."""

    name: str
    dark: bool
    background: str
    raised: str
    """Bars, inputs, the cursor row."""
    rule: str
    text: str
    muted: str
    faint: str
    accent: str
    accepted: str
    rejected: str
    correction: str
    bonus: str
    target: str
    draft: str
    ansi: bool = False


THEMES: tuple[Colours, ...] = (
    Colours(
        name="specview-dark",
        dark=True,
        background="#11141a",
        raised="#212733",
        rule="#2b323e",
        text="#d3d9e4",
        muted="#8b95a7",
        faint="#566073",
        accent="#f2f4f8",
        accepted="#82c995",
        rejected="#f08080",
        correction="#e8b968",
        bonus="#6cb0f5",
        target="#8fb8d6",
        draft="#c39ad6",
    ),
    Colours(
        name="specview-light",
        dark=False,
        background="#fbfaf7",
        raised="#e9e6de",
        rule="#d5d1c6",
        text="#24292f",
        muted="#656c76",
        faint="#9aa0a8",
        accent="#000000",
        accepted="#1f7a3d",
        rejected="#c0332b",
        correction="#9a6200",
        bonus="#0f62b0",
        target="#2f6f9f",
        draft="#84479f",
    ),
    Colours(
        name="specview-contrast",
        dark=True,
        background="#000000",
        raised="#333333",
        rule="#808080",
        text="#ffffff",
        muted="#d0d0d0",
        faint="#a0a0a0",
        accent="#ffffff",
        accepted="#5fff87",
        rejected="#ff8787",
        correction="#ffd75f",
        bonus="#5fd7ff",
        target="#87d7ff",
        draft="#ff9fff",
    ),
    # Okabe and Ito's palette: its colours stay apart in every kind of colour blindness.
    Colours(
        name="specview-colour-blind",
        dark=True,
        background="#11141a",
        raised="#212733",
        rule="#2b323e",
        text="#d3d9e4",
        muted="#8b95a7",
        faint="#566073",
        accent="#f2f4f8",
        accepted="#56b4e9",
        rejected="#e2703a",
        correction="#f0e442",
        bonus="#00b58a",
        target="#9dbcd4",
        draft="#d691ba",
    ),
    Colours(
        name="specview-16",
        dark=True,
        background="default",
        raised="bright_black",
        rule="bright_black",
        text="default",
        muted="white",
        faint="bright_black",
        accent="bright_white",
        accepted="green",
        rejected="red",
        correction="yellow",
        bonus="bright_blue",
        target="cyan",
        draft="magenta",
        ansi=True,
    ),
)
DEFAULT_THEME = THEMES[0].name
ANSI_THEME = THEMES[-1].name
BY_NAME = {colours.name: colours for colours in THEMES}


@dataclass(frozen=True, slots=True)
class Palette:
    """Styles to draw with; all but `base` and `raised` leave the background alone."""

    base: Style
    raised: Style
    """The selected row, the round under the cursor."""
    rule: Style
    text: Style
    muted: Style
    faint: Style
    strong: Style
    accepted: Style
    rejected: Style
    discarded: Style
    correction: Style
    bonus: Style
    target: Style
    draft: Style
    proposed: Style
    """A candidate that nothing is known about yet."""
    pending: Style
    refused: Style
    """The colour of a rejection without its strike, for verdicts, slots and columns."""
    key: Style
    badge: Style
    warning: Style

    def origin(self, origin: str | None) -> Style:
        """The style of a committed token, of an outcome, or of a fate."""
        return {
            "prompt": self.muted,
            "accepted": self.accepted,
            "rejected": self.rejected,
            "discarded": self.discarded,
            "cut": self.discarded,
            "correction": self.correction,
            "bonus": self.bonus,
            "target": self.target,
        }.get(origin or "", self.faint)


def palette(name: str) -> Palette:
    """The styles of a theme; a theme that is not ours draws as the default one."""
    colours = BY_NAME.get(name, THEMES[0])

    def ink(
        colour: str, *, bold: bool | None = None, strike: bool | None = None, underline: bool | None = None
    ) -> Style:
        return Style(color=colour, bold=bold, strike=strike, underline=underline)

    # 16 colours have no room for a raised shade that text stays readable on: reverse it instead.
    raised = Style(bold=True) if colours.ansi else Style(bgcolor=colours.raised)
    return Palette(
        base=Style(color=colours.text, bgcolor=colours.background),
        raised=raised,
        rule=ink(colours.rule),
        text=ink(colours.text),
        muted=ink(colours.muted),
        faint=ink(colours.faint),
        strong=ink(colours.accent, bold=True),
        accepted=ink(colours.accepted),
        rejected=ink(colours.rejected, strike=True),
        discarded=ink(colours.faint, strike=True),
        correction=ink(colours.correction, bold=True),
        bonus=ink(colours.bonus, bold=True),
        target=ink(colours.target),
        draft=ink(colours.draft),
        proposed=ink(colours.draft, underline=True),
        pending=ink(colours.correction),
        refused=ink(colours.rejected),
        key=ink(colours.accent),
        badge=Style(color=Color.parse(colours.background), bgcolor=colours.accepted, bold=True)
        if not colours.ansi
        else Style(color=colours.accepted, reverse=True, bold=True),
        warning=ink(colours.rejected, bold=True),
    )


def textual_theme(colours: Colours) -> Theme:
    """The same colours for Textual's own widgets: inputs, lists, the palette."""
    prefix = "ansi_" if colours.ansi else ""

    def css(colour: str) -> str:
        return f"{prefix}{colour}" if colours.ansi else colour

    return Theme(
        name=colours.name,
        dark=colours.dark,
        ansi=colours.ansi,
        primary=css(colours.bonus),
        secondary=css(colours.target),
        accent=css(colours.correction),
        foreground=css(colours.text),
        background=css(colours.background),
        surface=css(colours.background),
        panel=css(colours.background if colours.ansi else colours.raised),
        success=css(colours.accepted),
        warning=css(colours.correction),
        error=css(colours.rejected),
        variables={
            "rule": css(colours.rule),
            "muted": css(colours.muted),
            "raised": css(colours.raised),
            **(_ANSI_VARIABLES if colours.ansi else {}),
        },
    )


# What Textual's own styles ask of a theme of 16 colours.
_ANSI_VARIABLES = {
    "ansi-background": "ansi_black",
    "ansi-foreground": "ansi_white",
    "border-blurred": "ansi_black",
    "block-cursor-foreground": "ansi_black",
    "block-cursor-background": "ansi_white",
    "input-cursor-background": "ansi_white",
    "input-cursor-foreground": "ansi_black",
    "input-cursor-text-style": "none",
    "input-selection-background": "ansi_bright_blue",
    "input-selection-foreground": "ansi_black",
}
