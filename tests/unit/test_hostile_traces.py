"""Traces made by hand to do harm: valid SQLite that lies, loops, or asks for everything at once.

The mutants of `test_mutations` are damage by accident; these are what somebody would send who knows the format. Each is
read, or refused with one sentence, in a second or so and in flat memory.
"""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path

import pytest

from tests import memory, synthetic
from tests.unit.every_view import use_everything

SECONDS = 5.0
MEGABYTES = 500

DAMAGE = "damaged"
ANYTHING = ""
"""Whether it is read or refused is of no matter, as long as it is one of the two."""

ENDLESS = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c)"
BILLION = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c LIMIT 1000000000)"


def renamed(table: str, then: str) -> str:
    """SQL that puts something else where a table should stand."""
    return f"ALTER TABLE {table} RENAME TO real_{table}; {then}"


def filled(column: str, value: str, table: str = "runs") -> str:
    return f"UPDATE {table} SET {column} = {value}"


HOSTILE: dict[str, tuple[str, str]] = {
    "probabilities that are infinite": (
        filled("draft_prob = 9e999, target_prob = -9e999, u = 9e999, overlap", "9e999", "positions"), ANYTHING,
    ),
    "probabilities that are no numbers": (
        filled("draft_prob = 'nan', target_prob = 'nan', u = 'nan', overlap", "'nan'", "positions"), ANYTHING,
    ),
    "subnormal probabilities": (filled("draft_prob = 5e-324, target_prob", "1e308", "positions"), ANYTHING),
    "residuals that are infinite": (
        filled("residual_mass = 9e999, correction_prob = 9e999, correction_target_prob", "9e999", "rounds"), ANYTHING,
    ),
    "alternatives that are infinite": (filled("target_top", "'[[1,1e999],[2,-1e999]]'", "positions"), ANYTHING),
    "alternatives with a number of a million digits": (
        filled("target_top", "'[[1,' || substr(hex(zeroblob(100000)), 1, 200000) || ']]'", "positions"), DAMAGE,
    ),
    "negative lengths": (filled("committed_before = -1, committed_after", "-9", "rounds"), DAMAGE),
    "a round that takes back a billion tokens": (
        filled("committed_before = 2000000000, committed_after", "3", "rounds"), ANYTHING,
    ),
    "token ids of 2⁶²": (filled("token", "4611686018427387904 + position", "tokens"), DAMAGE),
    "candidates of 2⁶²": (filled("candidate", "4611686018427387904", "positions"), DAMAGE),
    "a round that proposed two billion": (filled("proposed = 2000000000, accepted", "1999999999", "rounds"), ANYTHING),
    "a gamma of two billion": (filled("gamma", "2000000000"), ANYTHING),
    "a round number of 2⁶²": (filled("round_index", "4611686018427387904 + id", "rounds"), DAMAGE),
    "a sequence number of 2⁶³ − 1": (filled("sequence_index", "9223372036854775807 - id", "sequences"), DAMAGE),
    "a prompt of two billion tokens": (filled("prompt_tokens", "2000000000", "sequences"), ANYTHING),
    "clocks that overflow when they are added": (filled("round_ns = 9223372036854775807, score_ns",
                                                        "9223372036854775807", "rounds"), ANYTHING),
    "clocks that run backwards": (filled("start_ns = -id, round_ns = -5, score_ns", "-5", "rounds"), ANYTHING),
    "costs of no time": (filled("target_ns = 0, draft_ns", "0", "costs"), ANYTHING),
    "a baseline of no time": (filled("baseline_ms_per_token", "0.0"), ANYTHING),
    "a baseline of an infinite time": (filled("baseline_ms_per_token", "9e999"), ANYTHING),
    "a temperature below zero": (filled("temperature", "-1"), DAMAGE),
    "a temperature of infinity": (filled("temperature", "9e999"), DAMAGE),
    "a bias for no token": (filled("logit_bias", """'{"x": 1}'"""), DAMAGE),
    "a bias with digits of another script": (filled("logit_bias", """'{"٣": 1e400, "1_0": 2}'"""), ANYTHING),
    "a status of another world": (filled("status", "'undead'"), DAMAGE),
    "a process number of 2³¹": (filled("status = 'running', pid", "2147483648"), ANYTHING),
    "process number 0, which is everyone": (filled("status = 'running', pid = 0, host", "host"), ANYTHING),
    "a model named in escapes": (filled("target = char(27) || ']0;x', draft", "char(8238, 155, 0)"), ANYTHING),
    "JSON of 45 MB: an array of arrays": (
        filled("stop", "'[' || replace(hex(zeroblob(7500000)), '00', '[],') || '0]'"), DAMAGE,
    ),
    "JSON of 45 MB: one object with millions of keys": (
        f"{BILLION.replace('1000000000', '3000000')} UPDATE runs SET versions ="
        " (SELECT '{' || group_concat('\"' || x || '\":\"\"') || '}' FROM c)",
        DAMAGE,
    ),
    "JSON that nests a hundred thousand deep": (
        filled("stop", "replace(hex(zeroblob(50000)), '0', '[')"), DAMAGE,
    ),
    "a message of 49 MB": (filled("message", "hex(zeroblob(24500000))"), DAMAGE),
    "a name of 200 MB": (filled("draft", "zeroblob(200000000)"), DAMAGE),
    "a view instead of a table, without an end": (
        renamed("rounds", f"CREATE VIEW rounds AS {ENDLESS} SELECT x AS id FROM c"), DAMAGE,
    ),
    "a generated column that asks for a gigabyte": (
        renamed("costs", "CREATE TABLE costs (run_id, positions, target_ns, draft_ns,"
                         " context AS (length(hex(zeroblob(400000000)))));"
                         "INSERT INTO costs VALUES (1, 1, 1, 1)"),
        DAMAGE,
    ),
    "a rounds table without row ids": (
        renamed("rounds", "CREATE TABLE rounds (id TEXT PRIMARY KEY, {rounds}) WITHOUT ROWID;"
                          "INSERT INTO rounds SELECT * FROM real_rounds"),
        DAMAGE,
    ),
    "a strict table of other types": (
        renamed("tokens", "CREATE TABLE tokens (sequence_id ANY, position ANY, token ANY, origin ANY, round_id ANY)"
                          " STRICT; INSERT INTO tokens VALUES (1, 1.5, 'x', x'00', -1)"),
        DAMAGE,
    ),
    "triggers on every table": (
        "".join(f"CREATE TRIGGER t{t} AFTER UPDATE ON {t} BEGIN DELETE FROM runs; END;" for t in ("runs", "rounds")),
        ANYTHING,
    ),
    "views of ours that are endless": (
        f"DROP VIEW round_summary; CREATE VIEW round_summary AS {ENDLESS} SELECT x FROM c", ANYTHING,
    ),
    "an index on an expression that is costly": (
        "CREATE INDEX costly ON tokens (length(hex(zeroblob(10 + position))))", ANYTHING,
    ),
    "column names in capitals": (
        renamed("costs", "CREATE TABLE costs (RUN_ID, Positions, target_ns, draft_ns, context)"), DAMAGE,
    ),
    "a column that is not there twice": (renamed("vocab", "CREATE TABLE vocab (run_id, token, bytes, text)"), DAMAGE),
    "rounds of no sequence": (filled("sequence_id", "99 + sequence_id", "rounds"), ANYTHING),
    "sequences of no run": (filled("run_id", "99", "sequences"), ANYTHING),
    "positions of one round in all": (filled("round_id", "1000 + round_id", "positions"), ANYTHING),
    "text in UTF-16": ("", ANYTHING),
}  # fmt: skip


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("hostile") / "trace.db"
    synthetic.write(path, 4, sequences=2)
    return path.read_bytes()


def made(path: Path, original: bytes, sql: str) -> Path:
    path.write_bytes(original)
    connection = sqlite3.connect(path, isolation_level=None)
    for pragma in ("synchronous = OFF", "journal_mode = MEMORY", "legacy_alter_table = ON", "foreign_keys = OFF"):
        connection.execute(f"PRAGMA {pragma}")
    if "{rounds}" in sql:
        names = [row[1] for row in connection.execute("PRAGMA table_info(rounds)")][1:]
        sql = sql.replace("{rounds}", ", ".join(names))
    connection.executescript(sql)
    connection.close()
    return path


@pytest.mark.parametrize("name", HOSTILE)
def test_a_trace_made_to_do_harm(name: str, original: bytes, tmp_path: Path) -> None:
    sql, expected = HOSTILE[name]
    path = made(tmp_path / "trace.db", original, sql)
    content = path.stat().st_size
    memory.forget_peak()
    before, started = memory.resident_megabytes(), time.monotonic()
    sentence = use_everything(path)
    assert time.monotonic() - started < SECONDS
    assert memory.peak_megabytes() - before < MEGABYTES
    if expected:
        assert sentence is not None
        assert expected in sentence
    assert path.stat().st_size == content
    assert [p.name for p in tmp_path.iterdir()] == ["trace.db"]
