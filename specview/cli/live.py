"""`specview live`: `specview record` in a child process, watched by `specview replay --follow`."""

from __future__ import annotations

import signal
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from specview.cli.options import SHOW_DEFAULTS, as_arguments, run_options, settings_from

if TYPE_CHECKING:
    from specview.recording.settings import RunSettings

REFUSED = 2
"""Exit code of a child that wrote nothing."""


@click.command("live", context_settings=SHOW_DEFAULTS, short_help="Run a pair and watch it, round by round.")
@run_options
def command(**options: Any) -> int:
    """Run a draft and a target and watch every round as it is decided.

    With no models named, the embedded default pair runs. Without a terminal the run is recorded, and its summary
    printed."""
    settings = settings_from(options)
    path = settings.trace_path(datetime.now())
    from specview.tui.run import has_terminal

    if not has_terminal():
        return _record_and_summarise(settings, path)
    return _watch(settings, path)


def _record_and_summarise(settings: RunSettings, path: Path) -> int:
    from specview.cli.record import exit_code, run
    from specview.cli.stats import print_summary

    outcome = run(settings, path)
    print_summary(outcome.path)
    _tell(outcome.path)
    return exit_code(outcome)


def _watch(settings: RunSettings, path: Path) -> int:
    from specview.cli import say
    from specview.recording.child import RecordingChild
    from specview.recording.prompts import read_prompts
    from specview.recording.settings import DEFAULT_PROMPT, Prompt
    from specview.trace.storage import fold, refuse_existing
    from specview.tui.app import SpecviewApp
    from specview.tui.run import show

    refuse_existing(path, force=settings.force, append=settings.append or settings.resume)
    prompts = settings.prompts or (Prompt(DEFAULT_PROMPT),)
    if settings.prompt_file is not None:
        prompts = tuple(read_prompts(settings.prompt_file))
    child = RecordingChild(as_arguments(settings), path)
    try:
        for prompt in prompts:
            child.send(prompt)
        shown = show(SpecviewApp(path, follow=True, child=child))
    finally:
        code = child.wait()
    # A child that refused the file (2) left it as it was, and so do we.
    if path.exists() and code != REFUSED:
        fold(path)
        _tell(path)
    if code in (0, 130) or child.stopped:
        return shown
    if code < 0:
        say(f"the run was ended by {signal.Signals(-code).name}; what it had recorded is kept.")
        return 1
    say(child.last_line.removeprefix("specview: "))
    return code


def _tell(path: Path) -> None:
    from specview.cli import say

    say(f"the trace is in {path}; see it again with `specview replay {path}`.")
