"""JSON Lines: one object a row, UTF-8; alternatives are arrays, not strings."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, BinaryIO

from specview.export.cells import safe_json
from specview.export.levels import Column, Export, Row
from specview.summary import finite
from specview.text import showable


def write(export: Export, out: BinaryIO, *, raw_text: bool, progress: Callable[[int], None]) -> None:
    """Write the export to a binary stream; the arguments are those of `csv.write`."""
    shown = [c.kind == "text" and not raw_text for c in export.columns]
    # Texts are made safe one by one; strings inside JSON, which must stay what they are, by their escapes.
    finish = safe_json if not raw_text and any(c.kind == "json" for c in export.columns) else str
    for rows in export.batches:
        lines = [finish(json.dumps(_object(export.columns, shown, row), ensure_ascii=False)) for row in rows]
        out.write(("\n".join(lines) + "\n").encode("utf-8", "backslashreplace") if lines else b"")
        progress(len(rows))


def _object(columns: tuple[Column, ...], shown: list[bool], row: Row) -> dict[str, Any]:
    return {column.name: _value(column, show, value) for column, show, value in zip(columns, shown, row, strict=True)}


def _value(column: Column, show: bool, value: Any) -> Any:
    if isinstance(value, bytes):
        value = value.decode("utf-8", "backslashreplace")
    if isinstance(value, str):
        if column.kind == "json":
            return _parsed(value)
        return showable(value) if show or column.kind != "text" else value
    return finite(value)


def _parsed(text: str) -> Any:
    try:
        return finite(json.loads(text))
    except (ValueError, RecursionError):
        return showable(text)  # what a damaged file holds stays visible
