"""Exports: golden bytes, nothing for a spreadsheet to execute, readers without options, files whole or absent."""

from __future__ import annotations

import csv as stdcsv
import io
import json
import os
import random
import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.csv
import pyarrow.parquet
import pytest
import sqlite_utils
from sqlite_utils.utils import rows_from_file

from engine.round import PhaseTimes, Position, Round, Sequence, VocabEntry
from specview.errors import SpecviewError, TraceError
from specview.export import csv, jsonl, parquet, perfetto
from specview.export.cells import safe, safe_json
from specview.export.levels import LEVELS, Level, export_of
from specview.export.sink import opened
from specview.summary import summarize
from specview.trace.reader import TraceReader
from specview.trace.writer import TraceWriter
from tests import synthetic

HOSTILE = [
    b"=1+1",
    b"@SUM(A1)",
    b"+1",
    b"-2",
    b"\t=1",
    b"\r=1",
    b'say "hi", all',
    b"a\nb",
    b"\x1b[2J",
    b"\xe5\xa4",
    "漢".encode(),
]


def ignore(_: int) -> None:
    pass


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """One round whose tokens are everything that a spreadsheet or a terminal should not get."""
    path = tmp_path / "hostile.db"
    count = len(HOSTILE)
    with TraceWriter(path) as writer:
        writer.begin_run(replace(synthetic.run_info(random.Random(1)), target="=cmd|' /C calc'!A0", uuid="u1"))
        writer.add_vocab([VocabEntry(i, data) for i, data in enumerate(HOSTILE)])
        sequence = writer.begin_sequence(Sequence(0, "p", (0, 1), request_id="-1+2"))
        positions = tuple(Position(i + 1, i, 0.5, 0.25, fate="accepted", draft_top=((i, 0.5),)) for i in range(count))
        writer.add_round(
            sequence,
            Round(
                0, count, count, count, count, 2, 3 + count, (*((i, "accepted") for i in range(count)), (0, "bonus")),
                (*positions, Position(count + 1)), 0, "bonus", 0.125, 0.125,
                times=PhaseTimes(1_000_000, 2_000_000, 30_500_000, 1, None, None, 33_000_000),
            ),
        )  # fmt: skip
    return path


def exported(path: Path, level: Level, *, raw_text: bool = False) -> bytes:
    out = io.BytesIO()
    with TraceReader(path) as reader:
        csv.write(export_of(reader, level, raw_text=raw_text), out, raw_text=raw_text, progress=ignore)
    return out.getvalue()


def table(data: bytes) -> list[dict[str, str]]:
    return list(stdcsv.DictReader(io.StringIO(data.decode(), newline="")))


def test_csv_bytes_of_rounds(hostile: Path) -> None:
    assert exported(hostile, "rounds") == (
        b"run_id,sequence_index,request_id,round_index,gamma,num_draft_tokens,num_judged_draft_tokens,"
        b"num_accepted_draft_tokens,num_output_tokens,correction_kind,correction_token,correction_text,correction_prob,"
        b"correction_target_prob,correction_draft_prob,residual_mass,residual_fallback,cut,draft_stop,committed_before,"
        b"committed_after,target_kv_before,target_kv_written,target_kv_after,draft_kv_before,draft_kv_written,"
        b"draft_kv_after,start_ms,propose_ms,score_ms,accept_ms,rollback_ms,record_ms,round_ms,target_calls,"
        b"draft_calls\r\n"
        b"1,0,'-1+2,0,11,11,11,11,12,bonus,0,'=1+1,0.125,0.125,,,0,,,2,14,,,,,,,1.0,2.0,30.5,1.0e-06,,,33.0,,\r\n"
    )


def test_csv_bytes_of_tokens_safe_and_raw(hostile: Path) -> None:
    head = b"run_id,sequence_index,request_id,position,token,text,origin,round_index\r\n"
    assert (
        exported(hostile, "tokens")
        == head
        + (
            "1,0,'-1+2,0,0,'=1+1,prompt,\r\n"
            "1,0,'-1+2,1,1,'@SUM(A1),prompt,\r\n"
            "1,0,'-1+2,2,0,'=1+1,accepted,0\r\n"
            "1,0,'-1+2,3,1,'@SUM(A1),accepted,0\r\n"
            "1,0,'-1+2,4,2,'+1,accepted,0\r\n"
            "1,0,'-1+2,5,3,'-2,accepted,0\r\n"
            "1,0,'-1+2,6,4, =1,accepted,0\r\n"
            "1,0,'-1+2,7,5,␍=1,accepted,0\r\n"
            '1,0,\'-1+2,8,6,"say ""hi"", all",accepted,0\r\n'
            "1,0,'-1+2,9,7,a b,accepted,0\r\n"
            "1,0,'-1+2,10,8,␛[2J,accepted,0\r\n"
            "1,0,'-1+2,11,9,\\xe5\\xa4,accepted,0\r\n"
            "1,0,'-1+2,12,10,漢,accepted,0\r\n"
            "1,0,'-1+2,13,0,'=1+1,bonus,0\r\n"
        ).encode()
    )
    raw = table(exported(hostile, "tokens", raw_text=True))
    texts = [row["text"] for row in raw[2:-1]]
    assert texts == [data.decode("utf-8", "backslashreplace") for data in HOSTILE]
    assert raw[0]["request_id"] == "-1+2"


@pytest.mark.parametrize("level", LEVELS)
def test_no_cell_begins_like_a_formula_or_holds_a_control(hostile: Path, level: Level) -> None:
    connection = sqlite3.connect(hostile)
    connection.execute("UPDATE rounds SET draft_stop = char(27) || '[31m', cut = '=1', correction_kind = '@x'")
    connection.execute("UPDATE positions SET fate = '+1', draft_top = '=[]', candidate = '=1' WHERE position = 1")
    connection.execute("UPDATE runs SET device = char(13) || '=1', device_name = '-x'")
    connection.commit()
    connection.close()
    rows = list(stdcsv.reader(io.StringIO(exported(hostile, level).decode(), newline="")))
    assert len(rows) > 1
    for cell in (cell for row in rows for cell in row):
        assert not cell.startswith(("=", "+", "@", "\t", "\r"))
        assert not (cell.startswith("-") and not cell[1:2].isdigit())
        assert cell == "" or cell.isprintable()


UNSAFE = "a\x9b\x7f\u202e\x1b[2J\U0001f1e6é漢"


@pytest.fixture
def hostile_json(tmp_path: Path) -> Path:
    """A trace whose JSON columns hold strings that no terminal should get."""
    path = tmp_path / "json.db"
    with TraceWriter(path) as writer:
        info = synthetic.run_info(random.Random(1))
        writer.begin_run(replace(info, stop=(UNSAFE,), versions={UNSAFE: "1"}))
        writer.add_round(writer.begin_sequence(synthetic.prompt()), next(synthetic.rounds(1)))
    connection = sqlite3.connect(path)
    connection.execute("UPDATE positions SET draft_top = ?", (json.dumps([[UNSAFE, 0.5]]),))
    connection.execute("UPDATE positions SET target_top = ?", (json.dumps([[UNSAFE, 0.5]], ensure_ascii=False),))
    connection.commit()
    connection.close()
    return path


@pytest.mark.parametrize("write", [csv.write, jsonl.write])
def test_json_is_safe_to_print_and_still_the_same(hostile_json: Path, write: Any) -> None:
    for level, wanted in (("positions", ("draft_top", "target_top")), ("runs", ("stop", "versions"))):
        out = io.BytesIO()
        with TraceReader(hostile_json) as reader:
            write(export_of(reader, level), out, raw_text=False, progress=ignore)
        text = out.getvalue().decode()
        assert "".join(text.split()).isprintable()
        assert "\U0001f1e6" not in text
        row = table(out.getvalue())[0] if write is csv.write else json.loads(text.splitlines()[0])
        for name in wanted:
            value = json.loads(row[name]) if write is csv.write else row[name]
            assert value in ([[UNSAFE, 0.5]], [UNSAFE], {UNSAFE: "1"}), name


def test_json_that_can_be_shown_is_left_alone() -> None:
    for text in ('["漢", "é"]', "[[1,0.5]]", "{}"):
        assert safe_json(text) == text
    assert safe_json('["漢\x9b"]') == '["\\u6f22\\u009b"]'
    assert safe_json('["\U0001f1e6"]') == '["\\ud83c\\udde6"]'


def test_safe_text_is_left_alone() -> None:
    for text in ("plain", "a=b", "1-2", " x", "漢字"):
        assert safe(text) == text
    assert safe("=x") == "'=x"
    assert safe("-x") == "'-x"


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("export") / "trace.db"
    synthetic.write(path, 60, sequences=2)
    return path


ROWS = {"runs": 1, "rounds": 120}


@pytest.mark.parametrize("level", LEVELS)
def test_csv_is_read_back_without_options(trace: Path, level: Level, tmp_path: Path) -> None:
    """By sqlite-utils, and by Arrow's reader, the strictest of the usual ones about types and quoting."""
    data = exported(trace, level)
    (tmp_path / "out.csv").write_bytes(data)
    rows = table(data)
    arrow = pyarrow.csv.read_csv(tmp_path / "out.csv", parse_options=pyarrow.csv.ParseOptions(newlines_in_values=True))
    assert arrow.num_rows == len(rows) == ROWS.get(level, len(rows))
    assert arrow.column("run_id").to_pylist() == [1] * len(rows)
    if level in ("rounds", "positions"):
        name = "round_ms" if level == "rounds" else "target_entropy"
        assert arrow.schema.field(name).type == "double"
    database = sqlite_utils.Database(memory=True)
    with (tmp_path / "out.csv").open("rb") as file:
        found, _ = rows_from_file(file)
        database["t"].insert_all(found)
    assert database["t"].count == len(rows)


def test_rounds_hold_what_the_trace_holds(trace: Path) -> None:
    with TraceReader(trace) as reader:
        rounds = [r for s in reader.all_sequences(1) for r in reader.rounds(s.id, 0, 100)]
    rows = table(exported(trace, "rounds"))
    for row, r in zip(rows, rounds, strict=True):
        assert int(row["num_draft_tokens"]) == r.proposed
        assert int(row["num_accepted_draft_tokens"]) == r.accepted
        assert int(row["num_output_tokens"]) == len(r.committed)
        assert float(row["correction_prob"]) == r.correction_prob
        assert float(row["score_ms"]) == (r.times.score_ns or 0) / 1e6
    positions = table(exported(trace, "positions"))
    assert [float(row["u"]) for row in positions if row["u"]] == [
        p.u for r in rounds for p in r.positions if p.u is not None
    ]


@pytest.mark.parametrize("level", LEVELS)
def test_jsonl_and_parquet_hold_the_same_as_csv(trace: Path, level: Level) -> None:
    rows = table(exported(trace, level))
    out = io.BytesIO()
    with TraceReader(trace) as reader:
        jsonl.write(export_of(reader, level), out, raw_text=False, progress=ignore)
        objects = [json.loads(line) for line in out.getvalue().decode().splitlines()]
        out = io.BytesIO()
        parquet.write(export_of(reader, level), out, raw_text=False, progress=ignore)
    records = pyarrow.parquet.read_table(io.BytesIO(out.getvalue())).to_pylist()
    assert len(objects) == len(records) == len(rows)
    for row, made, record in zip(rows, objects, records, strict=True):
        assert list(made) == list(record) == list(row)
        for name, cell in row.items():
            assert (cell == "") == (made[name] in (None, "")), name
            if isinstance(made[name], (int, float)):
                assert float(cell) == made[name] == record[name]
            elif isinstance(made[name], list):
                assert json.loads(cell) == made[name] == json.loads(record[name])


def test_the_runs_level_is_the_summary(trace: Path) -> None:
    (row,) = table(exported(trace, "runs"))
    with TraceReader(trace) as reader:
        values = summarize(reader, reader.runs()[0]).values()
    assert float(row["draft_acceptance_rate"]) == values["draft_acceptance_rate"]
    assert float(row["score_ms_p95"]) == values["score_ms"]["p95"]
    assert json.loads(row["acceptance_histogram"]) == values["acceptance_histogram"]


def test_one_run_of_several(tmp_path: Path) -> None:
    path = tmp_path / "trace.db"
    synthetic.write(path, 5)
    with TraceWriter(path, append=True) as writer:
        writer.begin_run(replace(synthetic.run_info(random.Random(9)), uuid="second"))
        sequence = writer.begin_sequence(synthetic.prompt())
        for r in synthetic.rounds(7, pool=20):
            writer.add_round(sequence, r)
    with TraceReader(path) as reader:
        out = io.BytesIO()
        csv.write(export_of(reader, "rounds", run_id=2), out, raw_text=False, progress=ignore)
        assert [row["run_id"] for row in table(out.getvalue())] == ["2"] * 7
        with pytest.raises(TraceError, match="has no run 3"):
            export_of(reader, "rounds", run_id=3)


def test_perfetto_has_a_track_a_phase_and_nests(trace: Path) -> None:
    out = io.BytesIO()
    with TraceReader(trace) as reader:
        perfetto.write(reader, out, progress=ignore)
        rounds = [r for s in reader.all_sequences(1) for r in reader.rounds(s.id, 0, 100)]
    events = json.loads(out.getvalue())["traceEvents"]
    names = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert list(names.values()) == ["round", "propose", "score", "accept", "rollback", "record"]
    spans = [e for e in events if e["ph"] == "X"]
    assert len(spans) == 6 * len(rounds)
    by_track = {name: [e for e in spans if names[e["tid"]] == name] for name in names.values()}
    for outer, propose, score, r in zip(by_track["round"], by_track["propose"], by_track["score"], rounds, strict=True):
        assert outer["ts"] == (r.times.start_ns or 0) / 1000
        assert outer["dur"] == (r.times.round_ns or 0) / 1000
        assert propose["ts"] == outer["ts"]
        assert score["ts"] == pytest.approx(propose["ts"] + propose["dur"])
        assert score["ts"] + score["dur"] <= outer["ts"] + outer["dur"]
    counters = {e["name"] for e in events if e["ph"] == "C"}
    assert counters == {"accepted", "KV length"}
    assert [e["args"]["target"] for e in events if e["name"] == "KV length"] == [r.target_kv_after for r in rounds]


def test_perfetto_without_clocks_is_refused(tmp_path: Path) -> None:
    synthetic.write(tmp_path / "trace.db", 3)
    connection = sqlite3.connect(tmp_path / "trace.db")
    connection.execute("UPDATE rounds SET round_ns = NULL, propose_ns = NULL, score_ns = NULL")
    connection.commit()
    connection.close()
    with TraceReader(tmp_path / "trace.db") as reader, pytest.raises(TraceError, match="has no clocks"):
        perfetto.write(reader, io.BytesIO(), progress=ignore)


def test_perfetto_looks_at_the_chosen_run(tmp_path: Path) -> None:
    path = tmp_path / "trace.db"
    with TraceWriter(path) as writer:
        for times in (PhaseTimes(), PhaseTimes(round_ns=5)):
            writer.begin_run(synthetic.run_info(random.Random(times.round_ns)))
            sequence = writer.begin_sequence(synthetic.prompt())
            writer.add_round(sequence, Round(0, 4, 1, None, 1, 12, 14, times=times))
    with TraceReader(path) as reader:
        for run_id, words in ((77, "has no run 77"), (1, "Run 1 .* has no clocks")):
            out = io.BytesIO()
            with pytest.raises(TraceError, match=words):
                perfetto.write(reader, out, run_id=run_id, progress=ignore)
            assert out.getvalue() == b""
        out = io.BytesIO()
        perfetto.write(reader, out, run_id=2, progress=ignore)
        assert {event["pid"] for event in json.loads(out.getvalue())["traceEvents"]} == {2}


@pytest.mark.parametrize("write", [csv.write, jsonl.write, parquet.write])
@pytest.mark.parametrize("raw_text", [False, True])
def test_a_token_of_a_megabyte_is_no_damage(write: Any, raw_text: bool, tmp_path: Path) -> None:
    path = tmp_path / "trace.db"
    with TraceWriter(path) as writer:
        writer.begin_run(synthetic.run_info(random.Random(1)))
        writer.add_vocab([VocabEntry(5, b"x" * 1_000_000)])
        writer.begin_sequence(Sequence(0, "p", (5,)))
    out = io.BytesIO()
    with TraceReader(path) as reader:
        write(export_of(reader, "tokens", raw_text=raw_text), out, raw_text=raw_text, progress=ignore)
    if write is not parquet.write:
        assert b"x" * 1_000_000 in out.getvalue()


def test_a_file_is_whole_or_absent(tmp_path: Path) -> None:
    path = tmp_path / "new" / "out.csv"
    with pytest.raises(RuntimeError), opened(path, force=False) as out:  # noqa: PT012
        out.write(b"half of i")
        raise RuntimeError
    assert list((tmp_path / "new").iterdir()) == []
    with opened(path, force=False) as out:
        out.write(b"all of it")
        assert not path.exists()
    assert path.read_bytes() == b"all of it"
    with pytest.raises(SpecviewError, match="already exists"), opened(path, force=False):
        pass
    with pytest.raises(RuntimeError), opened(path, force=True) as out:  # noqa: PT012
        out.write(b"something else")
        raise RuntimeError
    assert path.read_bytes() == b"all of it"
    with opened(path, force=True) as out:
        out.write(b"new")
    assert path.read_bytes() == b"new"
    assert [p.name for p in path.parent.iterdir()] == ["out.csv"]


def test_a_link_stays_and_what_it_leads_to_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "link.csv").symlink_to(tmp_path / "elsewhere" / "real.csv")
    with opened(tmp_path / "link.csv", force=False) as out:
        out.write(b"new")
    assert (tmp_path / "link.csv").is_symlink()
    assert (tmp_path / "elsewhere" / "real.csv").read_bytes() == b"new"


def test_no_export_replaces_its_trace_or_a_device(trace: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.db"
    copy.write_bytes(trace.read_bytes())
    (tmp_path / "link.db").symlink_to(copy)
    for path in (copy, tmp_path / "link.db"):
        with pytest.raises(SpecviewError, match="is the trace"), opened(path, force=True, source=copy):
            pass
    assert copy.read_bytes() == trace.read_bytes()
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(SpecviewError, match="not a regular file"), opened(tmp_path / "pipe", force=True):
        pass
    assert (tmp_path / "pipe").is_fifo()
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for name, words in (("a" * 300, "cannot be written"), ("loop", "in a circle")):
        with pytest.raises(SpecviewError, match=words), opened(tmp_path / name, force=True):
            pass
    with opened(tmp_path / ("a" * 250 + ".csv"), force=False) as out:
        out.write(b"a long name is no reason to fail")
