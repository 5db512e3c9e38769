"""Progress of a recording on stderr: a bar where a person looks, a line per stage where a log does."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from engine import ranks
from engine.round import Round
from specview.recording.record import Reporter
from specview.text import showable


class LineReporter:
    """Stages as lines, for logs and for the log pane of `live`."""

    def __init__(self) -> None:
        self._sentence = ""
        self._tenth = -1

    def stage(self, sentence: str, fraction: float | None) -> None:
        tenth = -1 if fraction is None else int(fraction * 10)
        if (sentence, tenth) != (self._sentence, self._tenth):
            self._sentence, self._tenth = sentence, tenth
            share = "" if fraction is None else f" {fraction:.0%}"
            click.echo(showable(f"{sentence}{share} …"), err=True)

    def begin(self, prompt: str) -> None:
        pass

    def round(self, round_: Round, output_tokens: int) -> None:
        pass

    def remark(self, sentence: str) -> None:
        click.echo(f"specview: {showable(sentence)}", err=True)


class SilentReporter:
    """Nothing, for a rank whose words would only repeat those of the one that records."""

    def stage(self, sentence: str, fraction: float | None) -> None: ...

    def begin(self, prompt: str) -> None: ...

    def round(self, round_: Round, output_tokens: int) -> None: ...

    def remark(self, sentence: str) -> None: ...


class BarReporter:
    """One line that says what goes on, with a bar where the end is known."""

    def __init__(self, progress: Progress, limit: int) -> None:
        self._progress = progress
        self._limit = limit
        self._task = progress.add_task("", total=None)
        self._decoding = "decoding"

    def stage(self, sentence: str, fraction: float | None) -> None:
        total, done = (None, 0) if fraction is None else (100, round(fraction * 100))
        self._progress.update(self._task, description=showable(sentence), total=total, completed=done)

    def begin(self, prompt: str) -> None:
        self._decoding = f"decoding {prompt}"

    def round(self, round_: Round, output_tokens: int) -> None:
        self._progress.update(self._task, description=self._decoding, total=self._limit, completed=output_tokens)

    def remark(self, sentence: str) -> None:
        self._progress.console.print(f"specview: {showable(sentence)}", markup=False, highlight=False)


@contextmanager
def reporter(limit: int) -> Iterator[Reporter]:
    """A reporter that fits stderr. `limit` is the run's max_new_tokens."""
    if not ranks.records():
        yield SilentReporter()
        return
    if not sys.stderr.isatty():
        yield LineReporter()
        return
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        yield BarReporter(progress, limit)
