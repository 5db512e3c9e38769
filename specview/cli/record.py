"""`specview record`: run a pair and write the trace, without a screen."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from engine import ranks
from specview.cli.options import SHOW_DEFAULTS, run_options, settings_from
from specview.cli.streams import print_path

if TYPE_CHECKING:
    from specview.recording.record import Outcome
    from specview.recording.settings import RunSettings


@click.command("record", context_settings=SHOW_DEFAULTS, short_help="Run a pair and record it, without a screen.")
@run_options
def command(**options: Any) -> int:
    """Run a draft and a target and record every round. Prints the trace's path on stdout.

    With no models named, the embedded default pair runs."""
    settings = settings_from(options)
    path = settings.trace_path(datetime.now())
    outcome = run(settings, path)
    if ranks.records():
        if outcome.status == "interrupted":
            _tell_interruption(outcome.path)
        tell_parting(outcome.path)
        print_path(outcome.path)
    return exit_code(outcome)


def _tell_interruption(path: Path) -> None:
    from specview.cli import say

    say(f"interrupted; what was recorded is kept, and `--resume -o {path}` goes on at the first unfinished prompt.")


def tell_parting(path: Path) -> None:
    """Say on stderr where the run just recorded leaves plain greedy decoding, if it does.

    Raises:
        TraceError: the trace cannot be read.
    """
    from specview.cli import say
    from specview.plain import run_against_plain, sentence
    from specview.trace.reader import TraceReader

    with TraceReader(path) as reader:
        comparison = run_against_plain(reader, reader.runs()[-1])
    if comparison is not None and comparison.parting is not None:
        say(f"the run {sentence(comparison)}.")


def run(settings: RunSettings, path: Path) -> Outcome:
    """Record with progress on stderr, and end cleanly on a signal."""
    from specview.recording.console import reporter
    from specview.recording.record import record
    from specview.recording.signals import stop_on_signal

    with stop_on_signal() as stop, reporter(settings.max_new_tokens) as report:
        return record(settings, path, report, stop)


def exit_code(outcome: Outcome) -> int:
    """0 done, 1 some prompt could not be run, 130 interrupted."""
    if outcome.status == "interrupted":
        return 130
    return 1 if outcome.refused else 0
