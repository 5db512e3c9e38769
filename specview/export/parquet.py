"""Apache Parquet through pyarrow (the extra `parquet`), a row group at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, BinaryIO

from specview.errors import SpecviewError
from specview.export.cells import safe_json
from specview.export.levels import Column, Export, Row
from specview.text import showable

ROWS_PER_GROUP = 50_000


def write(export: Export, out: BinaryIO, *, raw_text: bool, progress: Callable[[int], None]) -> None:
    """Write the export to a binary stream; the arguments are those of `csv.write`. A value that does not fit its
    column's type, as a damaged trace may hold, becomes null.

    Raises:
        SpecviewError: pyarrow is not installed.
    """
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise SpecviewError("Parquet needs pyarrow; install it with `pip install 'specview[parquet]'`.") from error
    types = {"integer": pa.int64(), "real": pa.float64(), "text": pa.string(), "json": pa.string()}
    schema = pa.schema([(c.name, types[c.kind]) for c in export.columns])
    with pq.ParquetWriter(out, schema) as writer:
        pending: list[Row] = []

        def flush() -> None:
            columns = list(zip(*pending, strict=True)) or [()] * len(export.columns)
            arrays = [
                pa.array([_fit(column, value, raw_text) for value in values], types[column.kind])
                for column, values in zip(export.columns, columns, strict=True)
            ]
            writer.write_table(pa.Table.from_arrays(arrays, schema=schema))
            progress(len(pending))
            pending.clear()

        for rows in export.batches:
            pending += rows
            if len(pending) >= ROWS_PER_GROUP:
                flush()
        flush()


def _fit(column: Column, value: Any, raw_text: bool) -> Any:
    if value is None:
        return None
    if column.kind == "integer":
        return value if isinstance(value, int) else None
    if column.kind == "real":
        return float(value) if isinstance(value, (int, float)) or value == "nan" else None
    if isinstance(value, bytes):
        value = value.decode("utf-8", "backslashreplace")
    text = value if isinstance(value, str) else str(value)
    if raw_text:
        return text
    return safe_json(text) if column.kind == "json" else showable(text)
