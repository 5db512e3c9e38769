"""`specview import`: a trace out of another engine's log."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from specview.importing.run import Form


@click.command("import", short_help="A trace out of another engine's log.")
@click.argument("log", metavar="FILE", type=click.Path(path_type=Path, allow_dash=True))
@click.option(
    "--format",
    "form",
    type=click.Choice(("vllm", "llama.cpp")),
    help="Which log it is; found out from its first line otherwise.",
)
@click.option("-o", "--output", metavar="TRACE", type=click.Path(path_type=Path), help="Default: traces/FILE.db.")
@click.option("--force", is_flag=True, help="Overwrite the trace.")
def command(log: Path, form: Form | None, output: Path | None, force: bool) -> int:
    """Turn a log of rounds, one JSON object a line, into a trace. Prints the trace's path.

    vllm: completion responses with `metrics.speculative_decoding` at level `detailed`. llama.cpp: the file of
    `--spec-log-file`. `-` reads stdin. What the log lacks stays empty, and every view copes with that."""
    from specview.cli import say
    from specview.cli.progress import counting
    from specview.cli.streams import print_path
    from specview.cli.wording import count
    from specview.errors import SpecviewError
    from specview.importing.run import bounded, import_log

    stdin = str(log) == "-"
    trace = output or Path("traces") / f"{'stdin' if stdin else log.stem}.db"
    if not stdin and _same_file(log, trace):
        raise SpecviewError(f"{trace} is the log that is imported; choose another file with -o.")
    try:
        with (
            click.open_file(str(log), encoding="utf-8", errors="replace") as lines,
            counting("importing rounds", None) as progress,
        ):
            rounds = import_log(
                bounded(lines),
                "stdin" if stdin else str(log),
                trace,
                form=form,
                force=force,
                progress=progress,
            )
    except OSError as error:
        raise SpecviewError(
            f"{log} cannot be read ({error.strerror}); name a log with one JSON object a line."
        ) from error
    say(f"imported {count(rounds, 'round')}.")
    print_path(trace)
    return 0


def _same_file(log: Path, trace: Path) -> bool:
    try:
        return log.samefile(trace)
    except OSError:
        return False  # one of them is not there; whoever opens it says so
