"""These tests run real vLLM engines, and only where vLLM is installed: `make vllm-test`."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from engine.round import Round
from specview.trace.reader import TraceReader
from specview.trace.records import RunRecord, SequenceRecord

HERE = Path(__file__).parent
ENGINE = {
    "dtype": "float32",
    "enforce_eager": True,
    "max_model_len": 256,
    "max_num_seqs": 16,
    "disable_log_stats": False,
    "per_request_spec_decode_metrics": "detailed",
    "seed": 0,
}

if importlib.util.find_spec("vllm") is None:
    collect_ignore_glob = ["test_*.py"]


@dataclass(frozen=True)
class Outcome:
    """What an engine's process left behind."""

    requests: dict[str, dict[str, Any]]
    """Request → tokens, text, finish reason, and vLLM's own metrics."""
    preempted: list[str]
    log: str
    trace: Path

    def recorded(self) -> dict[str, tuple[RunRecord, SequenceRecord, list[Round], list[int]]]:
        """Request → its run, sequence, rounds and output tokens, as the trace has them."""
        found = {}
        with TraceReader(self.trace) as reader:
            for run in reader.runs():
                for sequence in reader.sequences(run.id):
                    assert sequence.request_id is not None
                    rounds = reader.rounds(sequence.id, 0, reader.round_count(sequence.id))
                    tokens = reader.tokens(sequence.id, sequence.prompt_tokens, reader.token_count(sequence.id))
                    # vLLM appends letters of its own to the name that a client gives.
                    name = sequence.request_id.rpartition("-")[0]
                    found[name] = run, sequence, rounds, [t.token for t in tokens]
        return found


@pytest.fixture(scope="session")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """(target, draft)"""
    from tests.vllm.models import make_pair

    return make_pair(tmp_path_factory.mktemp("pair"))


@pytest.fixture(scope="session")
def speculative(pair: tuple[Path, Path]) -> dict[str, dict[str, Any]]:
    """Ways to draft three tokens."""
    draft = {"method": "draft_model", "model": str(pair[1]), "num_speculative_tokens": 3}
    lookup = {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 3, "prompt_lookup_min": 1}
    return {"greedy draft": draft, "drawn draft": draft | {"draft_sample_method": "probabilistic"}, "n-gram": lookup}


@pytest.fixture(scope="session")
def run_engine(pair: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Outcome]:
    """Runs an engine in a process of its own."""

    def run(
        speculative_config: dict[str, Any],
        requests: list[dict[str, Any]],
        *,
        engine: dict[str, Any] | None = None,
        environment: dict[str, str] | None = None,
        expand_correctly: bool = True,
        record: bool = True,
        trace: Path | None = None,
    ) -> Outcome:
        folder = tmp_path_factory.mktemp("engine")
        job, result = folder / "job.json", folder / "result.json"
        trace = trace or folder / "run.db"
        settings = ENGINE | {"model": str(pair[0]), "speculative_config": speculative_config} | (engine or {})
        job.write_text(
            json.dumps({"engine": settings, "requests": requests, "expand_correctly": expand_correctly}), "utf-8"
        )
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("SPECVIEW_")}
        done = subprocess.run(
            [sys.executable, HERE / "drive.py", job, result],
            env=inherited
            | {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_ENABLE_V1_MULTIPROCESSING": "0", "OMP_NUM_THREADS": "1"}
            | ({"SPECVIEW_TRACE": str(trace)} if record else {})
            | (environment or {}),
            capture_output=True,
            text=True,
        )
        log = done.stdout + done.stderr
        assert done.returncode == 0, log[-4000:]
        found = json.loads(result.read_text("utf-8"))
        return Outcome(found["requests"], found["preempted"], log, trace)

    return run
