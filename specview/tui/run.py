"""Running the app in a terminal, and leaving the terminal as it was, whatever happens."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from specview.cli import say
from specview.tui.themes import ANSI_THEME

if TYPE_CHECKING:
    from specview.tui.base import BaseApp

INTERRUPTED = 130
SIXTEEN_COLOURS = "standard"
"""What rich calls the colours of a terminal that has no more than these."""


def has_terminal() -> bool:
    """Whether a screen can be shown: keys come from stdin, the screen itself goes to stderr, and stdout is no data."""
    return all(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr))


def show(app: BaseApp) -> int:
    """Run the app until the person leaves it, in 16 colours where the terminal has no more, and return the exit code.

    Raises:
        Exception: whatever broke inside the app, once the terminal is restored.
    """
    if app.console.color_system == SIXTEEN_COLOURS:
        # The shades of the other themes would be rounded to these, and most meanings to the same white.
        app.theme = ANSI_THEME
    app.run()
    if app.farewell is not None:
        say(app.farewell)
    if app.failure is not None:
        raise app.failure
    return INTERRUPTED if app.ended_by_signal else 0
