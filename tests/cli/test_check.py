"""`specview check`: a line a clause for people, JSON for machines, exit codes for scripts."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests import synthetic

Specview = Callable[..., Any]


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "trace.db"
    synthetic.write(path, 50)
    return path


def break_it(path: Path, sql: str = "UPDATE rounds SET target_calls = 2 WHERE round_index IN (7, 9)") -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute(sql)
    connection.close()


def test_a_valid_trace_has_a_line_a_clause(specview: Specview, trace: Path) -> None:
    result = specview("check", trace)
    assert result.code == 0
    assert result.err == ""
    lines = [line for line in result.out.splitlines() if line.startswith("  ✓")]
    assert [line.split()[1] for line in lines] == [f"C{i}" for i in range(1, 15)]
    assert "Every clause holds." in result.out
    assert "\x1b" not in result.out


def test_a_broken_clause_is_named_with_its_place(specview: Specview, trace: Path) -> None:
    break_it(trace)
    result = specview("check", trace)
    assert result.code == 1
    assert "✗ C13" in result.out
    assert "prompt 1 round 8: 2 target calls — expected 1" in result.out
    assert "Broken: C13." in result.out


def test_many_violations_are_summed_up(specview: Specview, trace: Path) -> None:
    break_it(trace, "UPDATE rounds SET target_calls = 2")
    out = specview("check", trace).out
    assert "50 violations" in out
    assert "… and 45 more" in out


def test_json_says_where_it_broke(specview: Specview, trace: Path) -> None:
    break_it(trace)
    result = specview("check", trace, "--json")
    assert result.code == 1
    (document,) = json.loads(result.out)
    (run,) = document["runs"]
    assert run["holds"] is False
    by_id = {clause["id"]: clause for clause in run["clauses"]}
    assert by_id["C1"]["verdict"] == "ok"
    assert by_id["C13"]["verdict"] == "broken"
    assert by_id["C13"]["violations"][0] == {
        "clause": "C13", "run": 1, "sequence": 0, "round": 7, "position": None, "recorded": "2 target calls",
        "expected": "1: all positions are scored in one forward",
    }  # fmt: skip


def test_several_traces_and_one_that_is_none(specview: Specview, trace: Path, tmp_path: Path) -> None:
    (tmp_path / "none.db").write_text("nothing")
    result = specview("check", trace, tmp_path / "none.db", tmp_path / "absent.db")
    assert result.code == 2
    assert "Every clause holds." in result.out
    assert result.err.count("specview: ") == 2
    assert "not a specview trace" in result.err
    assert "There is no file" in result.err
    documents = json.loads(specview("check", trace, tmp_path / "none.db", "--json").out)
    assert documents[0]["runs"][0]["holds"] is True
    assert "not a specview trace" in documents[1]["error"]


def test_hostile_text_reaches_no_terminal(specview: Specview, trace: Path) -> None:
    break_it(trace, "UPDATE runs SET target = char(27) || '[2J[bold]x', message = 'a' || char(10) || char(155)")
    out = specview("check", trace).out
    assert "\x1b" not in out
    assert "\x9b" not in out
    assert "␛[2J[bold]x" in out


def test_a_trace_without_a_run_says_so(specview: Specview, trace: Path) -> None:
    for table in ("positions", "tokens", "rounds", "sequences", "costs", "vocab", "runs"):
        break_it(trace, f"DELETE FROM {table}")
    result = specview("check", trace)
    assert result.code == 0
    assert "no run was recorded" in result.out


def test_a_clean_trace_is_left_as_it_was(specview: Specview, trace: Path, tmp_path: Path) -> None:
    before = trace.read_bytes()
    for command in (["check", trace], ["stats", trace], ["stats", trace, "--json"], ["export", trace],
                    ["export", trace, "--level", "positions", "--format", "jsonl"], ["list", tmp_path]):  # fmt: skip
        assert specview(*command).code == 0
    assert trace.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["trace.db"]
