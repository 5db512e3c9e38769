"""The open matrix: {clean, being written, killed, copied without its -wal} × {writable folder, read-only folder}.

Root may write everywhere, so a reader that starts as root becomes another user before it opens the trace.
"""

from __future__ import annotations

import hashlib
import json
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from specview.trace.writer import TraceWriter
from tests import synthetic

ROOT = Path(__file__).parents[2]
ROUNDS = 60

READ = """
import encodings.ascii, encodings.idna, json, os, shutil, sys, tempfile
from specview.errors import TraceError
from specview.trace.reader import TraceReader
if os.geteuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
if sys.argv[2:]:
    tempfile.tempdir = sys.argv[2]
try:
    with TraceReader(sys.argv[1]) as reader:
        runs = reader.runs()
        rounds = reader.rounds(1, 0, 1000)
        for run in runs:
            reader.totals(run.id, overlap=True)
        status = runs[0].status if runs else None
        print(json.dumps({"status": status, "rounds": len(rounds), "warning": reader.warning}))
except TraceError as error:
    print(json.dumps({"error": str(error)}))
"""
WRITE_AND_DIE = """
import os, random, sqlite3, sys, time
from pathlib import Path
from specview.trace.writer import TraceWriter
from tests import synthetic
writer = TraceWriter(Path(sys.argv[1]))
writer.begin_run(synthetic.run_info(random.Random(1)))
writer.set_status("running")
sequence = writer.begin_sequence(synthetic.prompt())
from specview.trace.reader import TraceReader
folded = int(sys.argv[2])
with TraceReader(sys.argv[1]) as reader:
    for r in synthetic.rounds(60, pool=40):
        writer.add_round(sequence, r)
        if r.index + 1 in (folded, 60):
            while reader.round_count(1) <= r.index:
                time.sleep(0.01)
        if r.index + 1 == folded:
            sqlite3.connect(sys.argv[1]).execute("PRAGMA wal_checkpoint").fetchall()
os.kill(os.getpid(), 9)
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that other users may look into, as those of pytest are not."""
    made = Path(tempfile.mkdtemp(prefix="matrix-"))
    made.chmod(0o777)
    yield made
    made.chmod(0o777)
    shutil.rmtree(made)


def listing(folder: Path) -> dict[str, str]:
    return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in sorted(folder.iterdir())}


def read_as_a_user(path: Path, *temporary: str) -> dict[str, object]:
    done = subprocess.run(
        [sys.executable, "-c", READ, str(path), *temporary],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    result: dict[str, object] = json.loads(done.stdout)
    return result


def clean(folder: Path) -> Path:
    synthetic.write(folder / "trace.db", ROUNDS)
    return folder / "trace.db"


def killed(folder: Path, folded: int = 0) -> Path:
    """A trace whose writer was killed after 60 rounds, when `folded` of them were in the file itself."""
    arguments = [sys.executable, "-c", WRITE_AND_DIE, str(folder / "trace.db"), str(folded)]
    subprocess.run(arguments, cwd=ROOT, check=False, timeout=60)
    assert (folder / "trace.db-wal").stat().st_size > 0
    return folder / "trace.db"


def copied_without_its_log(folder: Path, folded: int) -> Path:
    path = killed(folder, folded)
    for side in ("-wal", "-shm"):
        Path(f"{path}{side}").unlink()
    return path


def open_to_others(folder: Path, *, writable: bool) -> None:
    for path in folder.iterdir():
        path.chmod(0o666 if writable else 0o444)
    folder.chmod(0o777 if writable else 0o555)


@pytest.mark.parametrize("writable", [True, False], ids=["writable", "read-only"])
def test_a_clean_trace_is_read_and_left_alone(folder: Path, writable: bool) -> None:
    path = clean(folder)
    open_to_others(folder, writable=writable)
    before = listing(folder)
    assert read_as_a_user(path) == {"status": "finished", "rounds": ROUNDS, "warning": None}
    assert listing(folder) == before
    assert list(before) == ["trace.db"]


@pytest.mark.parametrize("writable", [True, False], ids=["writable", "read-only"])
def test_a_killed_trace_is_read_whole(folder: Path, writable: bool) -> None:
    path = killed(folder)
    open_to_others(folder, writable=writable)
    before = listing(folder)
    result = read_as_a_user(path)
    assert result["status"] == "interrupted"
    assert result["rounds"] == ROUNDS
    after = listing(folder)
    assert after["trace.db"] == before["trace.db"], "a reader never changes the trace"
    assert after["trace.db-wal"] == before["trace.db-wal"]


@pytest.mark.parametrize("side_files_left", [("-wal",), ("-wal", "-shm")], ids=["without -shm", "with -shm"])
def test_a_killed_trace_in_a_read_only_folder_needs_no_shared_memory_file(
    folder: Path, side_files_left: tuple[str, ...]
) -> None:
    path = killed(folder)
    if "-shm" not in side_files_left:
        Path(f"{path}-shm").unlink()
    open_to_others(folder, writable=False)
    before = listing(folder)
    result = read_as_a_user(path)
    assert result["rounds"] == ROUNDS
    assert listing(folder) == before


@pytest.mark.parametrize("writable", [True, False], ids=["writable", "read-only"])
def test_a_killed_trace_is_read_whole_through_a_link(folder: Path, writable: bool) -> None:
    """Its log lies beside what the link leads to, not beside the link."""
    killed(folder)
    link = folder / "elsewhere" / "link.db"
    link.parent.mkdir()
    link.symlink_to("../trace.db")
    if not writable:
        Path(f"{folder / 'trace.db'}-shm").unlink()
    for path in folder.glob("trace.db*"):
        path.chmod(0o666 if writable else 0o444)
    folder.chmod(0o777 if writable else 0o555)
    result = read_as_a_user(link)
    assert (result["rounds"], result["status"]) == (ROUNDS, "interrupted")


def test_without_a_place_for_the_copy_it_says_so(folder: Path) -> None:
    path = killed(folder)
    Path(f"{path}-shm").unlink()
    open_to_others(folder, writable=False)
    result = read_as_a_user(path, str(folder))
    assert "none could be made (Permission denied); point TMPDIR" in str(result["error"])


@pytest.mark.parametrize("writable", [True, False], ids=["writable", "read-only"])
def test_a_trace_that_is_being_written_is_read(folder: Path, writable: bool) -> None:
    path = folder / "trace.db"
    writer = TraceWriter(path)
    writer.begin_run(synthetic.run_info(random.Random(1)))
    writer.set_status("running")
    sequence = writer.begin_sequence(synthetic.prompt())
    for r in synthetic.rounds(ROUNDS, pool=40):
        writer.add_round(sequence, r)
    from specview.trace.reader import TraceReader

    with TraceReader(path) as reader:
        while reader.round_count(sequence) < ROUNDS:
            pass
    open_to_others(folder, writable=writable)
    try:
        result = read_as_a_user(path)
        assert result["status"] == "running"
        assert result["rounds"] == ROUNDS
    finally:
        folder.chmod(0o777)
        writer.close("finished")
    assert read_as_a_user(path)["status"] == "finished"


def test_a_second_reader_of_a_copy_writes_nothing_either(folder: Path) -> None:
    from specview.trace.reader import TraceReader

    path = copied_without_its_log(folder, 30)
    before = listing(folder)
    with TraceReader(path) as first, TraceReader(path) as second:
        assert "-wal" in str(first.warning)
        assert second.warning == first.warning
        assert second.round_count(1) == first.round_count(1) == 30
        assert listing(folder) == before


@pytest.mark.parametrize("writable", [True, False], ids=["writable", "read-only"])
@pytest.mark.parametrize("folded", [0, 30])
def test_a_copy_without_its_log_says_what_it_lacks(folder: Path, writable: bool, folded: int) -> None:
    path = copied_without_its_log(folder, folded)
    open_to_others(folder, writable=writable)
    before = listing(folder)
    result = read_as_a_user(path)
    assert "-wal" in str(result["warning"])
    assert result["rounds"] == folded
    assert result["status"] == ("interrupted" if folded else None)
    assert listing(folder) == before
