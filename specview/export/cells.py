"""Text and JSON that are safe in a spreadsheet and on a terminal.

A spreadsheet runs a cell that begins with =, +, - or @ (or with a tab or a carriage return before them) as a formula; a
terminal obeys escapes. What comes from a trace may hold either.
"""

from __future__ import annotations

import re
from functools import lru_cache

from specview.text import showable

FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")
_NOT_ASCII = re.compile("[^ -~]")


@lru_cache(maxsize=65_536)
def safe(text: str) -> str:
    """Showable text that no spreadsheet executes: a leading apostrophe marks what would have been a formula."""
    return _no_formula(text, showable(text))


def safe_json_cell(text: str) -> str:
    """`safe_json` that no spreadsheet executes; what is JSON at all begins with a bracket and is left as it is."""
    return _no_formula(text, safe_json(text))


def _no_formula(text: str, shown: str) -> str:
    return f"'{shown}" if text.startswith(FORMULA_STARTS) or shown.startswith(FORMULA_STARTS) else shown


def safe_json(text: str) -> str:
    """The same JSON, safe to print: where it holds what cannot be shown, everything but ASCII becomes `\\uXXXX`."""
    return text if showable(text) == text else _NOT_ASCII.sub(_escaped, text)


def _escaped(found: re.Match[str]) -> str:
    char = found[0]
    if char in "\t\r\n":
        return " "  # between values; inside a string JSON has no raw controls
    units = char.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i : i + 2].hex()}" for i in range(0, len(units), 2))
