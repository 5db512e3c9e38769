"""CSV by RFC 4180: a header line, CRLF, quotes only where they are needed, UTF-8.

A million rows are formatted by SQLite itself, a line each: that takes as long as the `sqlite3` shell does, a third of
what Python needs. Only text goes through Python, to be made safe.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import BinaryIO

from specview.export.cells import safe, safe_json_cell
from specview.export.levels import TEXT, Column, Export, Row, limits
from specview.trace.reader import TraceReader

_TABLES = {"s": "sequences", "r": "rounds", "p": "positions", "t": "tokens"}
_NEEDS_QUOTES = re.compile(r'[",\r\n]')
_LARGER_THAN_ANY_NUMBER = "9e999"
"""Where a text or a blob stands in a column of numbers, SQLite holds it for larger than any number."""


def write(export: Export, out: BinaryIO, *, raw_text: bool, progress: Callable[[int], None]) -> None:
    """Write the export to a binary stream.

    Args:
        raw_text: leave cells as they are, also those that a spreadsheet or a terminal would execute.
        progress: is told how many rows were written since the last call.
    """
    out.write(_lines([tuple(c.name for c in export.columns)]).encode())
    fast = None if raw_text else _formatted_by_sqlite(export)
    for count, text in _formatted_here(export, raw_text) if fast is None else fast:
        out.write(text.encode("utf-8", "backslashreplace"))
        progress(count)


def _formatted_here(export: Export, raw_text: bool) -> Iterator[tuple[int, str]]:
    for rows in export.batches:
        yield len(rows), _lines(rows if raw_text else [_safe(export.columns, row) for row in rows])


def _lines(rows: list[Row]) -> str:
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\r\n").writerows(rows)
    return text.getvalue()


def _safe(columns: tuple[Column, ...], row: Row) -> Row:
    return tuple(
        (safe_json_cell if column.kind == "json" else safe)(_text(cell)) if isinstance(cell, (str, bytes)) else cell
        for column, cell in zip(columns, row, strict=True)
    )


def _formatted_by_sqlite(export: Export) -> Iterator[tuple[int, str]] | None:
    """The lines as one query makes them; None where some number is none (NaN, or a damaged file)."""
    if export.source is None or export.reader is None or _holds_other_than_numbers(export, export.reader):
        return None
    form = ",".join(["%s"] * len(export.columns))  # of a NULL, %s makes nothing
    cells = ", ".join(_cell(c) for c in export.columns)
    return _fetched(export.reader, f"SELECT printf('{form}', {cells}) || char(13, 10) {export.source}")


def _fetched(reader: TraceReader, sql: str) -> Iterator[tuple[int, str]]:
    longest, rows_per_fetch = limits(reader)
    with reader.reading(longest):
        reader.connection.create_function("text_cell", 1, _text_cell, deterministic=True)
        reader.connection.create_function("json_cell", 1, _json_cell, deterministic=True)
        cursor = reader.connection.execute(sql)
        while rows := cursor.fetchmany(rows_per_fetch):
            yield len(rows), "".join([line for (line,) in rows])


def _cell(column: Column) -> str:
    value = column.sql.format(text=TEXT)
    if column.kind == "text":
        return f"text_cell({value})"
    if column.kind == "json":
        return f"json_cell({value})"
    if column.kind == "real" and not column.name.endswith("_ms"):
        # 17 digits tell every double apart; what is a whole number of ns needs no more than SQLite's own 15.
        return f"CASE WHEN {value} NOT NULL THEN printf('%!.17g', {value}) END"
    return value


def _holds_other_than_numbers(export: Export, reader: TraceReader) -> bool:
    stored: dict[str, set[str]] = {}
    for column in export.columns:
        if column.kind in ("integer", "real"):
            for alias, name in re.findall(r"\b([srpt])\.(\w+)", column.sql):
                stored.setdefault(_TABLES[alias], set()).add(f"{name} > {_LARGER_THAN_ANY_NUMBER}")
    return any(
        reader.number(f"SELECT EXISTS (SELECT 1 FROM {table} WHERE {' OR '.join(sorted(conditions))})")
        for table, conditions in stored.items()
    )


@lru_cache(maxsize=65_536)
def _text_cell(value: object) -> str | None:
    return None if value is None else _quoted(safe(_text(value)))


def _json_cell(value: object) -> str | None:
    """Alternatives are different in every row, so a cache would only cost."""
    return None if value is None else _quoted(safe_json_cell(_text(value)))


def _text(value: object) -> str:
    # Bytes stand in no column of ours; a damaged file may hold them.
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"' if _NEEDS_QUOTES.search(text) else text
