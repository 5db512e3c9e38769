"""CSV by RFC 4180: a header line, CRLF, quotes only where they are needed, UTF-8."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable
from typing import BinaryIO

from specview.export.cells import safe
from specview.export.levels import Export, Row

# What can only stand in a batch of written lines if some cell needs a closer look: a cell that begins like a formula
# (or like a negative number), a quoted cell, and whatever is not plain ASCII text.
_SUSPICIOUS = re.compile(r'["\x00-\x09\x0b\x0c\x0e-\x1f\x7f-\U0010ffff]|(?:^|[,\n])[=+\-@]')


def write(export: Export, out: BinaryIO, *, raw_text: bool, progress: Callable[[int], None]) -> None:
    """Write the export to a binary stream.

    Args:
        raw_text: leave cells as they are, also those that a spreadsheet or a terminal would execute.
        progress: is told how many rows were written since the last call.
    """
    out.write(_lines([tuple(c.name for c in export.columns)]).encode())
    for rows in export.batches:
        lines = _lines(rows)
        if not raw_text and _SUSPICIOUS.search(lines):
            lines = _lines([_safe_row(row) for row in rows])
        out.write(lines.encode("utf-8", "backslashreplace"))
        progress(len(rows))


def _lines(rows: list[Row]) -> str:
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\r\n").writerows(rows)
    return text.getvalue()


def _safe_row(row: Row) -> Row:
    return tuple([safe(cell) if type(cell) is str else _safe_bytes(cell) for cell in row])


def _safe_bytes(cell: object) -> object:
    # Bytes stand in no column of ours; a damaged file may hold them.
    return safe(cell.decode("utf-8", "backslashreplace")) if isinstance(cell, bytes) else cell
