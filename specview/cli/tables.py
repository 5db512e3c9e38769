"""How tables for people look, the same in every command: no frame, one rule under the head, numbers to the right."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from specview.text import showable

PIPE_WIDTH = 200
"""Columns where stdout is no terminal, so that a table in a file does not depend on the window it was made in."""


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Leave a reader that went away to the command line, which knows the exit code; rich would exit with 1."""
        raise  # rich calls this while it handles the error


def stdout() -> Console:
    """The console for data. Nothing that comes from a trace is read as markup."""
    terminal = sys.stdout.isatty()
    width = shutil.get_terminal_size().columns if terminal else PIPE_WIDTH
    return _Console(markup=False, highlight=False, emoji=False, width=width)


def table(columns: Iterable[tuple[str, bool]], title: str | None = None) -> Table:
    """An empty table; `columns` are (heading, whether it holds numbers)."""
    made = Table(
        box=box.SIMPLE_HEAD,
        title=None if title is None else Text(title),
        title_justify="left",
        header_style="dim",
        show_edge=False,
        pad_edge=False,
    )
    for heading, numeric in columns:
        made.add_column(Text(heading), justify="right" if numeric else "left", no_wrap=True, overflow="ellipsis")
    return made


def cell(value: str | None, style: str = "") -> Text:
    """Text from a trace, safe to print; a missing value is a quiet dash."""
    return Text("–", style="dim") if value is None else Text(showable(value), style=style)
