"""`specview stats`, `export`, `import` and `list` from the command line."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import pty
import random
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine.round import Sampling
from specview.trace.writer import TraceWriter
from tests import synthetic

Specview = Callable[..., Any]
ROOT = Path(__file__).parents[2]


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "trace.db"
    synthetic.write(path, 50)
    return path


def test_stats_has_every_metric_with_its_denominator(specview: Specview, trace: Path) -> None:
    result = specview("stats", trace)
    assert (result.code, result.err) == (0, "")
    for name in (
        "num_rounds", "draft_acceptance_rate", "judged_acceptance_rate", "mean_acceptance_length", "overlap",
        "propose_ms", "round_ms", "time_to_first_token_ms", "tokens_per_second", "measured_speedup",
    ):  # fmt: skip
        assert name in result.out
    assert " proposed" in result.out
    assert " judged" in result.out
    assert "median" in result.out
    assert "p95" in result.out
    assert "\x1b" not in result.out


def test_a_captured_run_says_that_its_speed_includes_the_prefill(specview: Specview, trace: Path) -> None:
    assert "prefill apart" in specview("stats", trace).out
    connection = sqlite3.connect(trace)
    connection.execute("UPDATE runs SET source = 'transformers'")
    connection.execute("UPDATE sequences SET target_prefill_ns = NULL, draft_prefill_ns = NULL")
    connection.commit()
    connection.close()
    captured = specview("stats", trace).out
    assert "prefill in round 1 included" in captured
    assert "prefill apart" not in captured


def test_stats_as_json_are_the_same_numbers(specview: Specview, trace: Path) -> None:
    result = specview("stats", trace, "--json")
    (line,) = result.out.splitlines()
    values = json.loads(line)
    assert values["num_rounds"] == 50
    assert values["status"] == "finished"
    assert values["draft_acceptance_rate"] == values["num_accepted_draft_tokens"] / values["num_draft_tokens"]
    assert values["score_ms"]["median"] <= values["score_ms"]["p95"]
    assert len(values["acceptance_rate_per_position"]) == 4
    assert sum(values["acceptance_histogram"]) == 50


def test_stats_of_one_run(specview: Specview, trace: Path) -> None:
    assert specview("stats", trace, "--run", 1).code == 0
    result = specview("stats", trace, "--run", 4)
    assert result.code == 2
    assert result.err == f"specview: {trace} has no run 4; it has 1.\n"


def test_json_holds_no_control_and_no_override(specview: Specview, tmp_path: Path) -> None:
    hostile = "a\x9b\x7f\u202e\u2066b"
    path = tmp_path / f"t{hostile}.db"
    with TraceWriter(path) as writer:
        info = replace(synthetic.run_info(random.Random(1)), target=hostile, stop=(hostile,))
        writer.begin_run(replace(info, sampling=Sampling(logit_bias={5: -math.inf})))
        writer.close("finished", hostile)

    def refuse(constant: str) -> None:
        pytest.fail(f"{constant} is no JSON")

    for command in ("stats", "list", "check"):
        out = specview(command, path, "--json").out
        assert out.isascii()
        assert "\x7f" not in out
        document = json.loads(out, parse_constant=refuse)
        if command != "check":
            assert (document["target"], document["message"]) == (hostile, hostile)
            assert document["logit_bias"] == {"5": "-inf"}


def test_export_to_stdout_and_to_a_file(specview: Specview, trace: Path, tmp_path: Path) -> None:
    result = specview("export", trace)
    rows = list(csv.DictReader(io.StringIO(result.out)))
    assert len(rows) == 50
    out = tmp_path / "rounds.csv"
    assert specview("export", trace, "-o", out).code == 0
    assert list(csv.DictReader(out.open(encoding="utf-8", newline=""))) == rows
    again = specview("export", trace, "-o", out)
    assert again.code == 2
    assert "already exists" in again.err
    assert specview("export", trace, "-o", out, "--force").code == 0


def test_export_takes_its_format_from_the_file_name(specview: Specview, trace: Path, tmp_path: Path) -> None:
    for name, start in (("a.jsonl", b'{"run_id"'), ("b.parquet", b"PAR1"), ("c.json", b'{"displayTimeUnit"')):
        assert specview("export", trace, "-o", tmp_path / name).code == 0
        assert (tmp_path / name).read_bytes().startswith(start)


@pytest.mark.parametrize(
    "words",
    [
        ["export", "TRACE", "--level", "letters"],
        ["export", "TRACE", "--format", "xlsx"],
        ["export", "ABSENT"],
        ["export", "TRACE", "-o", "FOLDER"],
        ["export", "TRACE", "--run", "9"],
        ["stats", "ABSENT"],
        ["stats", "FOLDER"],
        ["stats"],
        ["check"],
        ["list", "ABSENT"],
        ["import", "ABSENT"],
        ["import", "TRACE"],
        ["import", "LOOP"],
        ["import", "SOCKET"],
        ["import", "LONG"],
        ["import", "UNDER"],
        ["import", "LOG", "-o", "LONG"],
        ["import", "LOG", "-o", "LOG", "--force"],
        ["list", "LONG"],
        ["stats", "LONG"],
        ["stats", "LOOP"],
        ["stats", "SOCKET"],
        ["stats", "UNDER"],
        ["export", "TRACE", "-o", "LONG"],
        ["export", "TRACE", "-o", "LOOP", "--force"],
        ["export", "TRACE", "-o", "SOCKET", "--force"],
        ["export", "TRACE", "-o", "TRACE", "--force"],
        ["record", "--max-new-tokens", 2**31],
        ["record", "--top-k", 2**64],
        ["record", "--baseline-tokens", 2**64],
        ["replay", "TRACE", "--speed", "nan"],
        ["replay", "TRACE", "--idle-limit", "nan"],
        ["compare", "TRACE", "TRACE", "--prompt", 2],
        ["nothing"],
        ["--debug"],
        ["record", "-o", "LONG"],
        ["record", "-o", "LOOP", "--force"],
        ["capture", "-o", "LONG", "--", "SCRIPT"],
    ],
)
def test_wrong_use_gets_one_sentence_and_exit_code_2(
    specview: Specview, trace: Path, tmp_path: Path, words: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "script.py").touch()
    (tmp_path / "log.jsonl").write_text(
        json.dumps({"metrics": {"speculative_decoding": {"per_step_drafted": [3], "per_step_accepted": [1]}}})
    )
    (tmp_path / "loop").symlink_to("loop")
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind("socket")
    names = {
        "TRACE": trace, "ABSENT": tmp_path / "absent", "FOLDER": tmp_path / "folder", "LOG": tmp_path / "log.jsonl",
        "LOOP": tmp_path / "loop", "SOCKET": tmp_path / "socket", "LONG": tmp_path / ("x" * 300),
        "UNDER": trace / "below", "SCRIPT": tmp_path / "script.py",
    }  # fmt: skip
    before = sorted(tmp_path.rglob("*"))
    result = specview(*[names.get(str(word), word) for word in words])
    assert result.code == 2
    assert result.out == ""
    assert result.err.startswith("specview: ")
    assert result.err.count("\n") == 1
    assert "should not happen" not in result.err
    assert "Traceback" not in result.err
    assert sorted(p for p in tmp_path.rglob("*") if p.name != "traces") == before


def test_list_marks_what_cannot_be_read(specview: Specview, trace: Path, tmp_path: Path) -> None:
    (tmp_path / "broken.db").write_bytes(trace.read_bytes()[:9000])
    (tmp_path / "notes.txt").write_text("not listed")
    result = specview("list", tmp_path)
    assert result.code == 0
    assert "trace.db" in result.out
    assert "finished" in result.out
    assert "✗ unreadable" in result.out
    assert "notes.txt" not in result.out
    assert "broken.db is damaged" in result.err
    lines = [json.loads(line) for line in specview("list", tmp_path, "--json").out.splitlines()]
    assert {Path(line["trace"]).name: line.get("num_rounds") for line in lines} == {"trace.db": 50, "broken.db": None}


def test_the_one_trace_that_list_was_asked_for_must_be_readable(
    specview: Specview, trace: Path, tmp_path: Path
) -> None:
    assert specview("list", trace).code == 0
    (tmp_path / "broken.db").write_bytes(trace.read_bytes()[:9000])
    result = specview("list", tmp_path / "broken.db")
    assert result.code == 2
    assert "broken.db is damaged" in result.err


def test_list_of_an_empty_folder_says_what_to_do(specview: Specview, tmp_path: Path) -> None:
    result = specview("list", tmp_path)
    assert (result.code, result.out) == (0, "")
    assert "specview record" in result.err


def test_import_prints_the_trace_and_check_reads_it(specview: Specview, tmp_path: Path) -> None:
    log = tmp_path / "server.jsonl"
    log.write_text(
        json.dumps({"metrics": {"speculative_decoding": {"per_step_drafted": [3, 3], "per_step_accepted": [1, 3]}}})
    )
    out = tmp_path / "t.db"
    result = specview("import", log, "-o", out)
    assert (result.code, result.out) == (0, f"{out}\n")
    assert result.err == "specview: imported 2 rounds.\n"
    assert specview("check", out).code == 0
    for level in ("runs", "rounds", "positions", "tokens"):
        assert specview("export", out, "--level", level).code == 0
    stats = specview("stats", out)
    assert stats.code == 0
    assert "–" in stats.out
    assert "already exists" in specview("import", log, "-o", out).err


def test_a_terminal_sees_progress_and_a_pipe_sees_none(trace: Path, tmp_path: Path) -> None:
    leader, follower = pty.openpty()
    out = tmp_path / "rounds.csv"
    command = [sys.executable, "-m", "specview", "export", str(trace), "-o", str(out)]
    subprocess.run(command, cwd=ROOT, stderr=follower, check=True, timeout=60)
    os.close(follower)
    seen = os.read(leader, 65536).decode()
    os.close(leader)
    assert "exporting" in seen
    piped = subprocess.run([*command, "--force"], cwd=ROOT, stderr=subprocess.PIPE, check=True, timeout=60)
    assert piped.stderr == b""


def test_a_reader_that_goes_away_is_no_error(trace: Path) -> None:
    synthetic.write(trace, 5000, force=True)
    done = subprocess.run(
        f"{sys.executable} -m specview export {trace} | head -n 2", shell=True, cwd=ROOT, capture_output=True,
        text=True, timeout=60, check=True,
    )  # fmt: skip
    assert done.stdout.count("\n") == 2
    assert done.stderr == ""
