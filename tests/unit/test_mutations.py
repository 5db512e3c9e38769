"""Two thousand damaged traces: each is read, or refused with one sentence. No traceback, no hang, no gigabytes."""

from __future__ import annotations

import random
import sqlite3
import time
from pathlib import Path

import pytest

from engine.round import Cost
from specview.trace import schema
from specview.trace.writer import TraceWriter
from tests import memory, synthetic
from tests.unit.every_view import use_everything

MUTANTS = 2000
SECONDS_EACH = 5.0
MEGABYTES = 500


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("mutations") / "trace.db"
    rounds = [list(synthetic.rounds(6, seed=seed, pool=20)) for seed in (1, 2)]
    known = {t for rs in rounds for r in rs for t, _ in r.committed} | set(range(12))
    with TraceWriter(path) as writer:
        writer.begin_run(synthetic.run_info(random.Random(1)))
        writer.add_vocab(entry for entry in synthetic.vocab() if entry.token in known)
        writer.add_costs([Cost(1, 20_000_000, 1_500_000, 64), Cost(5, 21_000_000, 1_600_000, 64)])
        for index, rounds_of_one in enumerate(rounds):
            sequence = writer.begin_sequence(synthetic.prompt(index))
            writer.set_baseline(20.5, 16, tuple(range(100, 116)), sequence)
            for r in rounds_of_one:
                writer.add_round(sequence, r)
            writer.end_sequence(sequence, "length")
    return path.read_bytes()


def flip(data: bytearray, rng: random.Random) -> None:
    for _ in range(rng.choice((1, 2, 10, 100))):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def flip_headers(data: bytearray, rng: random.Random) -> None:
    """Bytes at the start of pages, where the tree's structure is."""
    for _ in range(rng.randrange(1, 6)):
        data[rng.randrange(len(data) // 4096) * 4096 + rng.randrange(40)] = rng.randrange(256)


def overwrite(data: bytearray, rng: random.Random) -> None:
    start = rng.randrange(len(data))
    length = min(rng.choice((4, 64, 4096)), len(data) - start)
    data[start : start + length] = rng.choice((bytes(length), b"\xff" * length, rng.randbytes(length)))


def swap_pages(data: bytearray, rng: random.Random) -> None:
    pages = len(data) // 4096
    a, b = rng.randrange(pages) * 4096, rng.randrange(pages) * 4096
    data[a : a + 4096], data[b : b + 4096] = data[b : b + 4096], data[a : a + 4096]


def duplicate_page(data: bytearray, rng: random.Random) -> None:
    pages = len(data) // 4096
    a, b = rng.randrange(pages) * 4096, rng.randrange(pages) * 4096
    data[a : a + 4096] = data[b : b + 4096]


def truncate(data: bytearray, rng: random.Random) -> None:
    del data[rng.randrange(len(data)) :]


def extend(data: bytearray, rng: random.Random) -> None:
    data += rng.randbytes(rng.randrange(1, 20_000))


BYTE_MUTATIONS = (flip, flip_headers, overwrite, swap_pages, duplicate_page, truncate, extend)

DEEP = "[" * 100_000
VALUES = [
    "NULL", "-1", "0", "1e308", "-1e308", "9223372036854775807", "-9223372036854775808", "4611686018427387904", "'nan'",
    "''", "'text'", "x''", "x'ff00'", "zeroblob(3000)", "'=cmd()'", "char(27) || '[2J'", "char(0)", "'[1,2'", "'[[]]'",
    "'{}'", "'[[1,2,3]]'", "'[[\"a\",\"b\"]]'", "'[[-5,0.5]]'", "'[1e999]'", "'NaN'", "'[[1,NaN]]'", f"'{DEEP}'",
    "cast(x'fffe' AS TEXT)", "hex(zeroblob(2000000))", "1.5", "-0.0", "2147483649",
]  # fmt: skip


def columns() -> list[tuple[str, str]]:
    return [(doc.table, doc.column) for doc in schema.column_docs()]


def set_values(path: Path, rng: random.Random) -> None:
    """Wrong types, absurd numbers and broken JSON in some columns."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA synchronous = OFF")
    connection.execute("PRAGMA journal_mode = MEMORY")
    for _ in range(rng.choice((1, 1, 1, 3))):
        table, column = rng.choice(columns())
        where = rng.choice(("", f"WHERE {column} = (SELECT max({column}) FROM {table})"))
        try:
            connection.execute(f"UPDATE {table} SET {column} = {rng.choice(VALUES)} {where}")
        except sqlite3.Error:
            continue  # a value that not even SQLite takes there, such as a second equal key
    connection.close()


HOSTILE_SCHEMAS = [
    "DROP TABLE {table}",
    "ALTER TABLE {table} RENAME TO elsewhere; CREATE VIEW {table} AS WITH RECURSIVE c(x) AS"
    " (SELECT 1 UNION ALL SELECT x FROM c) SELECT x AS id FROM c",
    "ALTER TABLE {table} RENAME TO elsewhere; CREATE TABLE {table} (id INTEGER PRIMARY KEY, other TEXT)",
    "ALTER TABLE {table} RENAME TO elsewhere; CREATE VIRTUAL TABLE {table} USING fts5(id)",
    "DELETE FROM {table}",
    "PRAGMA user_version = 99",
    "PRAGMA user_version = -3",
    "PRAGMA user_version = 0",
    "PRAGMA application_id = 0",
    "CREATE TABLE extra (a); ALTER TABLE {table} ADD COLUMN extra TEXT DEFAULT 'more'",
]


def change_schema(path: Path, rng: random.Random) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA synchronous = OFF")
    connection.execute("PRAGMA legacy_alter_table = ON")
    connection.executescript(rng.choice(HOSTILE_SCHEMAS).format(table=rng.choice(schema.TABLES)))
    connection.close()


def test_two_thousand_mutants(original: bytes, tmp_path: Path) -> None:
    rng = random.Random(20_260)
    path = tmp_path / "mutant.db"
    slowest, refused, damaged = 0.0, 0, 0
    memory.forget_peak()
    before = memory.resident_megabytes()
    for number in range(MUTANTS):
        data = bytearray(original)
        kind = rng.random()
        if kind < 0.55:
            rng.choice(BYTE_MUTATIONS)(data, rng)
            if rng.random() < 0.2 and data:
                rng.choice(BYTE_MUTATIONS)(data, rng)
        path.write_bytes(data)
        if 0.55 <= kind < 0.95:
            set_values(path, rng)
        elif kind >= 0.95:
            change_schema(path, rng)
        damaged += path.read_bytes() != original
        started = time.monotonic()
        try:
            refused += use_everything(path) is not None
        except Exception as error:
            raise AssertionError(f"mutant {number} was neither read nor refused: {error!r}") from error
        slowest = max(slowest, time.monotonic() - started)
    grown = memory.peak_megabytes() - before
    print(f"{damaged} damaged, {refused} refused, slowest {slowest:.2f} s, {grown:.0f} MB more")
    assert damaged > 0.9 * MUTANTS
    assert 0 < refused < damaged
    assert slowest < SECONDS_EACH
    assert grown < MEGABYTES
    assert sorted(p.name for p in tmp_path.iterdir()) == ["mutant.db"]
