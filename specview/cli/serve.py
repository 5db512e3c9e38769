"""`specview serve`: the replay in a browser."""

from __future__ import annotations

from pathlib import Path

import click

HOST = "localhost"


@click.command("serve", short_help="The replay of a trace in a browser, on this machine only.")
@click.argument("trace", required=False, type=click.Path(path_type=Path))
@click.option("--port", default=8000, type=click.IntRange(1, 65535), show_default=True, help="Port on localhost.")
def command(trace: Path | None, port: int) -> int:
    """Show TRACE, or the newest in traces/, in a browser.

    The server listens on localhost alone; it needs the extra `serve` (pip install 'specview[serve]')."""
    from specview.cli import say
    from specview.cli.replay import TRACES, check_readable, newest_trace
    from specview.errors import SpecviewError

    path = trace if trace is not None else newest_trace(TRACES)
    check_readable(path)
    try:
        from specview.tui.serving import TraceServer
    except ModuleNotFoundError as error:
        raise SpecviewError(
            f"{error.name} is not installed; `pip install 'specview[serve]'` brings what serving needs."
        ) from error
    try:
        TraceServer(path, HOST, port, say).run()
    except OSError as error:
        raise SpecviewError(f"port {port} cannot be used ({error.strerror}); choose another with --port.") from error
    return 0
