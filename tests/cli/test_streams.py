"""Standard streams as shells, services and pipes hand them over: closed, full, narrow, gone."""

from __future__ import annotations

import json
import os
import pty
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from tests import synthetic

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("streams") / "trace.db"
    synthetic.write(path, 20)
    return path


def shell(line: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a line of bash in which `specview` is ours."""
    script = f'set -o pipefail; specview() {{ "{sys.executable}" -m specview "$@"; }}; {line}'
    return subprocess.run(
        ["bash", "-c", script], cwd=ROOT, env=os.environ | environment, capture_output=True, text=True, timeout=60,
        check=False,
    )  # fmt: skip


@pytest.mark.parametrize("words", ["stats", "check", "list --json", "export"])
def test_a_closed_stream_leads_nowhere(trace: Path, words: str) -> None:
    for closed in (">&-", "2>&-", "<&- >/dev/null", "<&- >&- 2>&-"):
        done = shell(f"specview {words} {trace} {closed}")
        assert (done.returncode, done.stderr) == (0, ""), closed


def test_no_file_gets_the_number_of_a_closed_stream(trace: Path, tmp_path: Path) -> None:
    """What is said on stderr must not be written into the export."""
    out = tmp_path / "out.csv"
    done = shell(f"specview export {trace} -o {out} <&- >&- 2>&-")
    assert done.returncode == 0
    assert out.read_bytes().startswith(b"run_id,")


@pytest.mark.parametrize("words", ["stats", "check", "check --json", "list", "export", "export --format parquet"])
def test_a_full_disk_behind_stdout_is_one_sentence(trace: Path, words: str) -> None:
    done = shell(f"specview {words} {trace} > /dev/full")
    assert done.returncode == 1
    assert done.stderr == (
        "specview: the output could not be written (No space left on device); make room, or send it elsewhere.\n"
    )


def test_a_full_stderr_changes_no_exit_code(trace: Path) -> None:
    assert shell(f"specview stats {trace.parent}/absent.db 2> /dev/full").returncode == 2


@pytest.mark.parametrize("words", ["stats", "check", "check --json", "list", "export", "--help", "stats --help"])
def test_a_reader_that_is_gone_is_no_error(trace: Path, words: str) -> None:
    name = "" if words.endswith("--help") else trace
    done = shell(f"specview {words} {name} | true")
    assert (done.returncode, done.stderr) == (0, "")


def test_a_broken_clause_stays_broken_where_nobody_reads(trace: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken.db"
    broken.write_bytes(trace.read_bytes())
    with sqlite3.connect(broken) as connection:
        connection.execute("UPDATE rounds SET target_calls = 2")
    connection.close()
    for line in (f"check {broken}", f"check {trace} {broken}", f"check --json {broken}"):
        assert shell(f"specview {line} | true").returncode == 1


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_stream_that_has_no_gamma_is_no_error(trace: Path, encoding: str) -> None:
    for words in (f"stats {trace}", f"check {trace}", f"list {trace}", f"compare {trace} {trace}", "--help"):
        done = subprocess.run(
            [sys.executable, "-m", "specview", *words.split()], cwd=ROOT, capture_output=True, timeout=60, check=False,
            env=os.environ | {"PYTHONIOENCODING": encoding},
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (0, b"")
        assert done.stdout


def test_a_path_is_printed_byte_for_byte(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    log.write_text(
        json.dumps({"metrics": {"speculative_decoding": {"per_step_drafted": [3], "per_step_accepted": [1]}}})
    )
    for name in (b"a\x1b[2Jb.db", b"no\xffutf8.db", b"new\nline.db"):
        out = os.fsencode(tmp_path) + b"/" + name
        done = subprocess.run(
            [sys.executable, "-m", "specview", "import", log, "-o", out], cwd=ROOT, capture_output=True, timeout=60,
            check=True,
        )  # fmt: skip
        assert done.stdout == out + b"\n"
        assert Path(os.fsdecode(out)).is_file()


def on_a_terminal(*words: str) -> tuple[int, bytes]:
    """Exit code and output of a command whose stdout and stderr are one terminal."""
    leader, follower = pty.openpty()
    command = [sys.executable, "-m", "specview", *words]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=follower, stderr=follower) as process:
        os.close(follower)
        seen = b""
        try:
            while chunk := os.read(leader, 65_536):
                seen += chunk
        except OSError:
            pass  # Linux ends a terminal that nobody holds any more with an error
        os.close(leader)
    return process.returncode, seen


def test_no_bar_stands_in_the_way_of_rows_on_a_terminal(trace: Path) -> None:
    code, seen = on_a_terminal("export", str(trace))
    assert code == 0
    assert seen.startswith(b"run_id,")
    assert b"\x1b" not in seen


@pytest.mark.parametrize("output", [[], ["-o", "-"]])
@pytest.mark.parametrize("words", [["--raw-text"], ["--format", "parquet"]])
def test_a_terminal_gets_no_raw_text_and_no_bytes(trace: Path, words: list[str], output: list[str]) -> None:
    code, seen = on_a_terminal("export", str(trace), *words, *output)
    assert code == 2
    assert seen.startswith(b"specview: ")
    assert b"name a file with -o" in seen
