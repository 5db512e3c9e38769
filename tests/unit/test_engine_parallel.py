"""A target under tensor parallelism: the same tokens as in one process, and one rank that records."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.engine_folders import save_model

ROOT = Path(__file__).parents[2]


def launched(processes: int, target: str, draft: str, temperature: str) -> list[dict[str, object]]:
    script = str(Path(__file__).with_name("tensor_parallel_run.py"))
    launcher = (
        [] if processes == 1 else ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    )
    done = subprocess.run(
        [sys.executable, *launcher, script, target, draft, temperature],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("temperature", ["1"])
def test_two_ranks_decode_what_one_process_decodes(tmp_path: Path, temperature: str) -> None:
    target = save_model(tmp_path / "target", layers=2)
    draft = save_model(tmp_path / "draft", layers=1, seed=1)
    (alone,) = launched(1, target, draft, temperature)
    ranks = launched(2, target, draft, temperature)
    assert sorted(rank["rank"] for rank in ranks) == [0, 1]
    assert [rank["committed"] for rank in ranks] == [alone["committed"]] * 2
    assert [rank["rank"] for rank in ranks if rank["records"]] == [0]
