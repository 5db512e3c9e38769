"""The column tables of `traces/README.md`, generated from the comments in the schema.

`python -m specview.trace.docs traces/README.md` rewrites what stands between the markers; a test
fails when they differ.
"""

from __future__ import annotations

import sys
from itertools import groupby
from pathlib import Path

from specview.trace import schema

BEGIN, END = "<!-- begin: columns -->", "<!-- end: columns -->"


def column_tables() -> str:
    """One Markdown table a table of the schema: column, type, what it holds and in which unit."""
    parts = []
    for table, docs in groupby(schema.column_docs(), key=lambda doc: doc.table):
        rows = [f"| `{doc.column}` | {doc.type} | {doc.doc} |" for doc in docs]
        parts.append("\n".join([f"### `{table}`", "", "| column | type | what |", "|---|---|---|", *rows]))
    return "\n\n".join(parts)


def with_tables(text: str) -> str:
    """The text of the README with the tables as the schema has them now."""
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return f"{head}{BEGIN}\n\n{column_tables()}\n\n{END}{tail}"


def main() -> None:
    path = Path(sys.argv[1])
    path.write_text(with_tables(path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
