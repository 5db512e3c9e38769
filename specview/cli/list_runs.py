"""`specview list`: the runs in a folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from rich.table import Table

    from specview.trace.records import RunRecord

MODELS = 2
"""The column with the models' names."""
GAP = 3
"""Between two columns."""
NARROWEST_NAME = 10
SUFFIXES = (".db", ".sqlite", ".sqlite3")


@click.command("list", short_help="The runs in a folder.")
@click.argument("folder", metavar="[DIR]", default="traces", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="One JSON object a run, a line each.")
def command(folder: Path, as_json: bool) -> int:
    """The runs in every trace of a folder, newest file first. A file that cannot be read is named, and is no reason to
    stop. DIR may be one trace; without it, the folder is traces/."""
    from specview.errors import TraceError

    try:
        paths = _candidates(folder)
    except OSError as error:
        raise TraceError(f"{folder} cannot be listed ({error.strerror}); name another folder.") from error
    entries = [_read(path) for path in paths]
    if as_json:
        _print_json(entries)
    elif entries:
        _show(entries)
    else:
        click.echo(f"No traces in {folder}; record one with `specview record`.", err=True)
    # In a folder, a file that is no trace is nobody's mistake; the one file that was asked for is.
    return 2 if paths == [folder] and entries[0][2] is not None else 0


def _candidates(folder: Path) -> list[Path]:
    """The files that may be traces, newest first.

    Raises:
        TraceError: there is no such folder.
        OSError: it cannot be read.
    """
    from specview.errors import TraceError

    if folder.is_file():
        return [folder]
    if not folder.is_dir():
        raise TraceError(f"There is no folder {folder}; record a trace first, or name another folder.")
    found = [p for p in folder.iterdir() if p.suffix in SUFFIXES and not p.name.startswith(".") and p.is_file()]
    return sorted(found, key=_newest_first)


def _newest_first(path: Path) -> tuple[float, str]:
    try:
        return -path.stat().st_mtime, path.name
    except OSError:
        return 0.0, path.name  # gone since the folder was listed; reading it will say so


Entry = tuple[Path, list[tuple["RunRecord", int, int]], str | None]
"""A file, its runs with their numbers of sequences and rounds, and why it cannot be read."""


def _read(path: Path) -> Entry:
    from specview.errors import TraceError
    from specview.trace.reader import TraceReader

    try:
        with TraceReader(path) as reader:
            runs = [(run, reader.sequence_count(run.id), reader.run_round_count(run.id)) for run in reader.runs()]
            return path, runs, None
    except TraceError as error:
        return path, [], str(error)


def _print_json(entries: list[Entry]) -> None:
    import json

    from specview.summary import settings

    for path, runs, error in entries:
        documents: list[dict[str, Any]] = [
            {"trace": str(path), **settings(run), "num_sequences": sequences, "num_rounds": rounds}
            for run, sequences, rounds in runs
        ] or [{"trace": str(path), "error": error}]
        for document in documents:
            click.echo(json.dumps(document))


def _show(entries: list[Entry]) -> None:
    from specview.cli import say
    from specview.cli.tables import stdout

    console = stdout()
    made = _table(entries)
    _fit(made, console.width)
    console.print(made)
    for _, _, error in entries:
        if error is not None:
            say(error)


def _table(entries: list[Entry]) -> Table:
    from specview.cli.tables import cell, table
    from specview.cli.wording import model_name

    made = table(
        (("trace", False), ("run", True), ("target ◂ draft", False), ("prompts", True), ("rounds", True),
         ("UTC", False), ("status", False))
    )  # fmt: skip
    nothing = cell(None)
    styles = {"finished": "green", "failed": "red", "interrupted": "yellow", "running": "cyan", "loading": "cyan"}
    for path, runs, error in entries:
        name = cell(path.name)
        if error is not None:
            made.add_row(name, *[nothing] * 5, cell("✗ unreadable", "red"))
        elif not runs:
            made.add_row(name, nothing, cell("no run", "dim"), *[nothing] * 4)
        for run, sequences, rounds in runs:
            made.add_row(
                name,
                cell(str(run.id)),
                cell(f"{model_name(run.info.target)} ◂ {model_name(run.info.draft)}"),
                cell(f"{sequences:,}"),
                cell(f"{rounds:,}"),
                cell(run.created[:16].replace("T", " ")),
                cell(run.status, styles[run.status]),
            )
    return made


def _fit(made: Table, width: int) -> None:
    """Where the window is narrow, the models' names give way, and nothing else does."""
    from rich.text import Text

    others = [column for i, column in enumerate(made.columns) if i != MODELS]
    for column in others:
        column.min_width = max(part.cell_len for part in (column.header, *column.cells) if isinstance(part, Text))
    taken = sum((column.min_width or 0) + GAP for column in others)
    made.columns[MODELS].max_width = max(NARROWEST_NAME, width - taken)
