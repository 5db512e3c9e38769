"""`specview export`: a trace in the formats that other programs read."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

import click

FORMATS = ("csv", "jsonl", "parquet", "perfetto")
SUFFIXES = {".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet", ".json": "perfetto"}


@click.command("export", short_help="A trace as CSV, JSON Lines, Parquet or a Perfetto timeline.")
@click.argument("trace", type=click.Path(path_type=Path))
@click.option(
    "--level",
    type=click.Choice(("runs", "rounds", "positions", "tokens")),
    default="rounds",
    show_default=True,
    help="What a row is.",
)
@click.option(
    "--format",
    "format_",
    type=click.Choice(FORMATS),
    help="The format; told by the suffix of FILE (.json: perfetto), otherwise csv.",
)
@click.option("--run", "run_id", type=int, help="Only the run with this number.")
@click.option("-o", "--output", metavar="FILE", type=click.Path(path_type=Path), help="The file; stdout otherwise.")
@click.option("--force", is_flag=True, help="Overwrite the file.")
@click.option("--raw-text", is_flag=True, help="Token text exactly as it is, also where it is no safe text.")
def command(
    trace: Path, level: str, format_: str | None, run_id: int | None, output: Path | None, force: bool, raw_text: bool
) -> int:
    """Write a level of a trace, row by row, to a file or to stdout.

    Text is made safe by default: control characters are shown as pictures (inside JSON: as its escapes), and a cell
    that a spreadsheet would run as a formula gets an apostrophe in front. A file appears whole or not at all.
    `perfetto` writes a timeline of all phases for ui.perfetto.dev, whatever the level."""
    from specview.cli.progress import counting
    from specview.cli.wording import warn
    from specview.export import csv, jsonl, parquet, perfetto
    from specview.export.levels import export_of
    from specview.export.sink import opened, to_stdout
    from specview.trace.reader import TraceReader

    chosen = format_ or SUFFIXES.get(output.suffix.lower() if output else "", "csv")
    on_terminal = to_stdout(output) and sys.stdout.isatty()
    if on_terminal:
        if chosen == "parquet":
            raise click.UsageError("Parquet is no text for a terminal; name a file with -o")
        if raw_text:
            raise click.UsageError("raw text could command the terminal; name a file with -o")
    # Where the rows themselves run over the terminal, a bar would only stand in their way.
    bar = partial(counting, "exporting", shown=not on_terminal)
    with TraceReader(trace) as reader:
        warn(reader)
        if chosen == "perfetto":
            total = reader.number("SELECT count(*) FROM rounds")
            with opened(output, force=force, source=trace) as out, bar(total) as progress:
                perfetto.write(reader, out, run_id=run_id, progress=progress)
            return 0
        export = export_of(reader, level, run_id=run_id, raw_text=raw_text)  # type: ignore[arg-type]
        write = {"csv": csv.write, "jsonl": jsonl.write, "parquet": parquet.write}[chosen]
        with opened(output, force=force, source=trace) as out, bar(export.total) as progress:
            write(export, out, raw_text=raw_text, progress=progress)
    return 0
