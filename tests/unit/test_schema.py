"""The format of a trace: its documentation, its versions, and how it looks from other tools."""

from __future__ import annotations

import json
import shutil
import sqlite3
from pathlib import Path

import pytest
import sqlite_utils

from specview.contract import check
from specview.errors import TraceError
from specview.summary import summarize
from specview.trace import docs, schema
from specview.trace.reader import TraceReader
from tests import synthetic

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "golden"


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "trace.db"
    synthetic.write(path, 40)
    return path


def execute(path: Path, sql: str) -> list[tuple[object, ...]]:
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        return connection.execute(sql).fetchall()
    finally:
        connection.close()


def test_the_readme_documents_every_column_as_the_schema_has_it() -> None:
    text = (ROOT / "traces" / "README.md").read_text(encoding="utf-8")
    assert docs.with_tables(text) == text, "run: python -m specview.trace.docs traces/README.md"


def test_every_column_has_a_word_about_it(trace: Path) -> None:
    documented = {(doc.table, doc.column) for doc in schema.column_docs()}
    assert all(doc.doc for doc in schema.column_docs())
    existing = {
        (table, column)
        for table in schema.TABLES
        for (column,) in execute(trace, f"SELECT name FROM pragma_table_info('{table}')")
    }
    assert documented == existing


def test_the_queries_of_the_readme_run(trace: Path) -> None:
    text = (ROOT / "traces" / "README.md").read_text(encoding="utf-8")
    section = text.partition("## Questions in SQL")[2].partition("\n## ")[0]
    blocks, block = [], ""
    for line in section.splitlines():
        if line.startswith("    "):
            block += line + "\n"
            if line.endswith(";"):
                blocks.append(block)
                block = ""
    assert len(blocks) == 5
    *common, rare = [execute(trace, sql) for sql in blocks]
    assert all(common)
    assert rare == [] or len(rare[0]) == 3  # a made-up trace need not hold such a candidate


@pytest.mark.parametrize("view", schema.VIEWS)
def test_views_have_rows(trace: Path, view: str) -> None:
    assert execute(trace, f"SELECT * FROM {view}")


def test_views_count_as_the_metrics_do(trace: Path) -> None:
    with TraceReader(trace) as reader:
        totals = reader.totals(1)
        values = summarize(reader, reader.runs()[0]).values()
    rows = execute(trace, "SELECT num_draft_tokens, num_judged_draft_tokens, num_accepted_draft_tokens,"
                   " acceptance_rate_per_position FROM acceptance_by_position ORDER BY position")  # fmt: skip
    assert [row[0] for row in rows] == list(totals.proposed_at)
    assert [row[1] for row in rows] == list(totals.judged_at)
    assert [row[2] for row in rows] == list(totals.accepted_at)
    assert [row[3] for row in rows] == pytest.approx(values["acceptance_rate_per_position"])
    (rejections,) = execute(trace, "SELECT count(*) FROM rejections")[0]
    assert rejections == totals.num_judged_draft_tokens - totals.num_accepted_draft_tokens  # type: ignore[operator]
    assert execute(trace, "SELECT count(*) FROM round_summary") == [(totals.num_rounds,)]


def test_the_file_is_marked_as_a_trace(trace: Path) -> None:
    assert execute(trace, "PRAGMA application_id") == [(0x53505657,)]
    assert execute(trace, "PRAGMA user_version") == [(schema.VERSION,)]
    assert execute(trace, "PRAGMA foreign_key_check") == []


def test_sqlite_utils_sees_tables_keys_and_views(trace: Path) -> None:
    database = sqlite_utils.Database(trace)
    assert set(schema.TABLES) <= set(database.table_names())
    assert set(database.view_names()) == set(schema.VIEWS)
    keys = {(k.table, k.column, k.other_table) for t in schema.TABLES for k in database[t].foreign_keys}
    assert ("positions", "round_id", "rounds") in keys
    assert ("rounds", "sequence_id", "sequences") in keys
    assert ("sequences", "run_id", "runs") in keys
    assert len(list(database["positions"].rows_where("round_id = 1"))) > 1
    database.close()


def test_a_newer_version_is_refused_by_name(trace: Path) -> None:
    execute(trace, f"PRAGMA user_version = {schema.VERSION + 1}")
    with pytest.raises(TraceError, match=f"format {schema.VERSION + 1}, newer than this specview's {schema.VERSION}"):
        TraceReader(trace)


def test_unknown_columns_and_tables_are_ignored(trace: Path) -> None:
    with TraceReader(trace) as reader:
        before = reader.rounds(1, 0, 40), reader.runs(), reader.sequences(1), reader.totals(1, overlap=True)
    execute(trace, "ALTER TABLE rounds ADD COLUMN mood TEXT DEFAULT 'calm'")
    execute(trace, "ALTER TABLE runs ADD COLUMN colour TEXT")
    execute(trace, "CREATE TABLE notes (id INTEGER PRIMARY KEY, text TEXT)")
    with TraceReader(trace) as reader:
        assert (reader.rounds(1, 0, 40), reader.runs(), reader.sequences(1), reader.totals(1, overlap=True)) == before


@pytest.mark.parametrize("version", range(1, schema.VERSION + 1))
def test_golden_files_of_every_version_are_read(version: int, tmp_path: Path) -> None:
    """`tests/golden/trace_vN.db` was written when version N was current, and is never written again."""
    path = Path(shutil.copy(GOLDEN / f"trace_v{version}.db", tmp_path))
    expected = json.loads((GOLDEN / f"trace_v{version}.json").read_text(encoding="utf-8"))
    with TraceReader(path) as reader:
        (run,) = reader.runs()
        assert run.info.uuid == expected["uuid"]
        values = summarize(reader, run).values()
        assert {name: values[name] for name in expected["values"]} == expected["values"]
        (report,) = check(reader)
        assert report.holds
        rounds = reader.rounds(1, 0, 100)
        assert [list(r.candidates) for r in rounds] == expected["candidates"]
    assert path.read_bytes() == (GOLDEN / f"trace_v{version}.db").read_bytes()


def test_what_is_no_trace_is_refused_with_a_sentence(tmp_path: Path) -> None:
    for name, content, words in (
        ("empty.db", b"", "is empty"),
        ("text.db", b"hello, this is no database at all\n" * 9, "not a specview trace"),
        ("short.db", b"SQLite format 3\x00", "."),
    ):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(TraceError, match=words):
            TraceReader(tmp_path / name)
    execute(tmp_path / "other.db", "CREATE TABLE t (a)")
    with pytest.raises(TraceError, match="not a specview trace"):
        TraceReader(tmp_path / "other.db")
    with pytest.raises(TraceError, match="There is no file"):
        TraceReader(tmp_path / "absent.db")
    with pytest.raises(TraceError, match="not a file"):
        TraceReader(tmp_path)
