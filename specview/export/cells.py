"""Text cells that are safe in a spreadsheet and on a terminal.

A spreadsheet runs a cell that begins with =, +, - or @ (or with a tab or a carriage return before them) as a formula; a
terminal obeys escapes. What comes from a trace may hold either.
"""

from __future__ import annotations

from functools import lru_cache

from specview.text import showable

FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")


@lru_cache(maxsize=65_536)
def safe(text: str) -> str:
    """Showable text that no spreadsheet executes: a leading apostrophe marks what would have been a formula."""
    shown = showable(text)
    return f"'{shown}" if text.startswith(FORMULA_STARTS) or shown.startswith(FORMULA_STARTS) else shown
