"""`specview replay`: step through a trace, or follow one that is being written."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import click

from specview.errors import TraceError

TRACES = Path("traces")


class Positive(click.FloatRange):
    """A float in a range. NaN lies in none, but is neither below nor above one."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number: float = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail("nan is not a number", param, ctx)
        return number


@click.command("replay", short_help="Step through a trace; --follow tails one being written.")
@click.argument("trace", required=False, type=click.Path(path_type=Path))
@click.option("--follow", is_flag=True, help="Stay on the newest round while the trace grows.")
@click.option("--speed", default=1.0, type=Positive(0.01, 1000), show_default=True, help="Pace of playing.")
@click.option(
    "--idle-limit",
    default=2.0,
    type=Positive(0.01),
    show_default=True,
    help="Seconds that no round takes longer than, at normal speed.",
)
def command(trace: Path | None, follow: bool, speed: float, idle_limit: float) -> int:
    """Step through TRACE round by round; without one, through the newest in traces/.

    When stdout is no terminal, the summary is printed instead."""
    from specview.tui.run import has_terminal

    path = trace if trace is not None else newest_trace(TRACES)
    if not has_terminal():
        from specview.cli.stats import print_summary

        print_summary(path)
        return 0
    if not (follow and not path.exists()):
        check_readable(path)
    from specview.tui.app import SpecviewApp
    from specview.tui.run import show

    return show(SpecviewApp(path, follow=follow, speed=speed, idle_limit=idle_limit))


def check_readable(path: Path) -> None:
    """Refuse what is no trace before the screen opens.

    Raises:
        TraceError: one sentence about why it cannot be read.
    """
    from specview.trace.reader import TraceReader

    with TraceReader(path) as reader:
        reader.runs()


def newest_trace(folder: Path) -> Path:
    """The most recently written trace in a folder.

    Raises:
        TraceError: there is none.
    """
    traces = sorted(folder.glob("*.db"), key=lambda p: p.stat().st_mtime) if folder.is_dir() else []
    if not traces:
        raise TraceError(f"there is no trace in {folder}/; name one, or record one with `specview record --prompt …`.")
    return traces[-1]
